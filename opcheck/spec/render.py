"""Writes values of a spec back as TOML, on one line, with defaults left out."""

from __future__ import annotations

import json
from typing import Any

from opcheck.spec.model import Model


def render(value: Any) -> str:
    """Return a value as inline TOML."""
    if isinstance(value, Model):
        return render(value.stated())
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{_key(key)} = {render(item)}" for key, item in value.items()) + " }" if value else "{}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(render(item) for item in value) + "]"
    if isinstance(value, complex):
        return f"{{ complex = [{render(value.real)}, {render(value.imag)}] }}"
    if isinstance(value, bool):
        return str(value).lower()
    return _string(value) if isinstance(value, str) else repr(value)


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _string(key)


def _string(text: str) -> str:
    # A JSON string is a TOML string, except that TOML escapes DEL. Invisible characters are escaped too.
    written = json.dumps(text, ensure_ascii=False)
    return written if written.isprintable() else "".join(map(_visible, written))


def _visible(char: str) -> str:
    code = ord(char)
    return char if char.isprintable() else f"\\u{code:04x}" if code < 2**16 else f"\\U{code:08x}"
