"""Mistakes planted in real specs: as text, where anything may come of it, and in the data, where its place is known."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tomli

ROOT = Path(__file__).parents[1]
BUILTIN = ROOT / "opcheck" / "spec" / "builtin"

KeyPath = tuple[Any, ...]

TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|[A-Za-z0-9_.+:-]+|\s+|.', re.DOTALL)

NASTY_NUMBERS = ("9" * 400, "-" + "9" * 4500, "0x" + "f" * 5000, str(2**63), "-1", "0", "nan", "-inf", "1e999", "1_0")
NASTY_STRINGS = (
    '""', '"""\n[template]\n"""', r'"\u001b[31m"', r'"\u0000"', r'"\u202e"', "'$low'", "'['", "'_x'", "'skip'", "'-'",
    "'a{99999999999999999999}'", '"' + "(" * 500 + ")" * 500 + '"', "'" + "x" * 5000 + "'", "'torch.sin'", "'<' ",
)  # fmt: skip
NASTY_TABLES = (
    "[]", "{}", "[[[[]]]]", '{ "[key]" = 1 }', "{ complex = [1, 2] }", "{ complex = [" + "9" * 400 + ", 0] }",
    "{ none = true }", "{ shape = [99999999999999999999] }", "{ use = 'unary' }", "{ values = [[1], []] }",
    "[" * 390 + "]" * 390, "{ a = " * 100 + "1" + " }" * 100, "1979-05-27", "{ dtype = 'int64' }", "{ slice = [1] }",
)  # fmt: skip
NASTY_LINES = (
    '\n"[key]" = 1\n', "\n[template]\n", "\ntemplate = {}\n", "\n[[operator]]\n", "\n[defaults]\n", "\n[operator]\n",
    "\nsamples = 3\n", "\nmatch = '('\n", "\n" + ".".join("a" * 600) + " = 1\n", "\ufeff", "\x1b", "\x00", "\u2028",
)  # fmt: skip
NASTY = (*NASTY_NUMBERS, *NASTY_STRINGS, *NASTY_TABLES, *NASTY_LINES, *"[]{}=,.\"'#$\n")


@cache
def operators() -> tuple[str, ...]:
    """Return specs of one operator each: those of the library that need no template of their folder, with defaults."""
    found = []
    texts = {file: file.read_text(encoding="utf-8") for file in sorted((ROOT / "specs").rglob("*.toml"))}
    with_templates = {file.parent for file, text in texts.items() if "[template]" in text}
    for file, text in texts.items():
        if file.parent in with_templates:
            continue
        head, *entries = re.split(r"(?m)^(?=\[\[operator\]\])", text)
        found += [head + entry for entry in entries]
    return tuple(found)


@cache
def templates() -> tuple[str, ...]:
    return tuple(file.read_text(encoding="utf-8") for file in sorted((BUILTIN / "templates").glob("*.toml")))


@cache
def profiles() -> tuple[str, ...]:
    return tuple(file.read_text(encoding="utf-8") for file in sorted((BUILTIN / "devices").glob("*.toml")))


@cache
def tokens() -> tuple[str, ...]:
    """Return what specs consist of, each once."""
    return tuple(dict.fromkeys(token for text in operators() for token in TOKEN.findall(text)))


def mutated(text: str, edits: list[tuple[str, int, int, str]]) -> str:
    """Return the text with its tokens deleted, doubled, swapped, replaced, or others put between them."""
    tokens = TOKEN.findall(text)
    for kind, first, second, new in edits:
        i, j = first % max(len(tokens), 1), second % max(len(tokens), 1)
        if kind == "insert":
            tokens.insert(i, new)
        elif tokens and kind == "delete":
            del tokens[i]
        elif tokens and kind == "duplicate":
            tokens.insert(i, tokens[i])
        elif tokens and kind == "swap":
            tokens[i], tokens[j] = tokens[j], tokens[i]
        elif tokens and kind == "replace":
            tokens[i] = new
    return "".join(tokens)


class Raw(str):
    """A value that is written as it stands."""


@dataclass
class Writer:
    """Writes a spec as TOML, one key a line, and notes where keys and values stand: a second source of positions."""

    text: str = ""

    def __post_init__(self) -> None:
        self.keys: dict[KeyPath, tuple[int, int]] = {}
        self.values: dict[KeyPath, tuple[int, int]] = {}

    def here(self) -> tuple[int, int]:
        line = self.text.count("\n") + 1
        return line, len(self.text) - (self.text.rfind("\n") + 1) + 1

    def spec(self, data: dict[str, Any]) -> Writer:
        self.table("[defaults]", data.get("defaults", {}), ("defaults",))
        for index, entry in enumerate(data["operator"]):
            self.table("[[operator]]", entry, ("operator", index))
        return self

    def table(self, header: str, table: dict[str, Any], path: KeyPath) -> None:
        self.values[path] = self.here()
        self.text += header + "\n"
        for key, value in table.items():
            self.assignment(key, value, (*path, key))
            self.text += "\n"

    def assignment(self, key: str, value: Any, path: KeyPath) -> None:
        self.keys[path] = self.here()
        self.text += (key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)) + " = "
        self.value(value, path)

    def value(self, value: Any, path: KeyPath) -> None:
        self.values[path] = self.here()
        if isinstance(value, dict):
            self.text += "{ "
            for index, (key, item) in enumerate(value.items()):
                self.text += ", " if index else ""
                self.assignment(key, item, (*path, key))
            self.text += " }"
        elif isinstance(value, list):
            self.text += "["
            for index, item in enumerate(value):
                self.text += ", " if index else ""
                self.value(item, (*path, index))
            self.text += "]"
        elif isinstance(value, Raw):
            self.text += value
        else:
            self.text += json.dumps(value) if isinstance(value, (str, bool)) else repr(value)


def places(data: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the path of everything that `data` holds."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, key))


def planted(text: str, choice: int, mistake: str, *, key: bool) -> tuple[str, KeyPath, tuple[int, int]]:
    """Return a spec with a mistake, where that is in its data, and its line and column.

    mistake: TOML of a value, put in place of any value of the spec; or a key, added to any of its tables.
    """
    data = tomli.loads(text)
    if "samples" in data["operator"][0]:
        data.get("defaults", {}).pop("samples", None)  # which the operator replaces: its templates are not looked at
    candidates = [path for path in places(data) if len(path) > (1 if path[0] == "defaults" else 2)]
    if key:
        tables = [path for path in places(data) if isinstance(at(data, path), dict)]
        # Any name can stand in `rename`, in `init`, in tolerances by check and dtype, and for a device. A complex
        # number in `values` is right or wrong as a whole.
        by_name = {("tolerance", "check"), ("tolerance", "dtype")}
        free = {"rename", "values", "init"}
        closed = [path for path in tables if path[-2:] not in by_name and path[-1] != "per_device"]
        candidates = [path for path in closed if not free & set(path)]
    path = candidates[choice % len(candidates)]
    data = deepcopy(data)
    if key:
        path = (*path, mistake)
        at(data, path[:-1])[mistake] = 1
    else:
        at(data, path[:-1])[path[-1]] = Raw(mistake)
    writer = Writer().spec(data)
    return writer.text, path, (writer.keys if key else writer.values)[path]


def at(data: Any, path: KeyPath) -> Any:
    for part in path:
        data = data[part]
    return data
