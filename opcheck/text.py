"""Text of somebody else, made fit for a report, a pipe or a terminal. Needs nothing but Python."""

from __future__ import annotations

from typing import Any

MOST = 1000
"""Characters of a name or a line that a person is shown."""

ROOM = 50
"""Characters that it takes to say that some were left out."""


def well_formed(text: str) -> str:
    r"""Return text that every encoding of Unicode can hold: a lone surrogate becomes its escape, `\udc80`."""
    return str.encode(text, "utf-8", "backslashreplace").decode()


def shortened(text: str, most: int, end: int = 0) -> str:
    """Return text of at most `most` characters, `end` of them from its end; what is cut says how much was left out."""
    if len(text) <= most:
        return text
    begin = max(most - end - ROOM, 0)
    tail = f" ... {text[-end:]}" if end else ""
    return f"{text[:begin]} ... ({len(text) - begin - end} characters left out){tail}"


def printable(text: str, *, lines: bool = False, most: int | None = MOST) -> str:
    r"""Return text that shows on a terminal as what it is, and does nothing to it.

    What would move the cursor, change colours or the order of letters becomes an escape: `\x1b`, `\r`, `\u202e`. Line
    ends and tabs stay where `lines` is true. What is over `most` characters is cut, with a word on how much.
    """
    text = text if most is None else shortened(text, most)
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(sign if sign.isprintable() or sign in kept else _escape(sign) for sign in text)


def message_of(error: BaseException) -> str:
    """Return the message of an exception, whatever its class makes of `str`."""
    try:
        return well_formed(str(error))
    except Exception as broken:
        return f"(the message is unavailable: __str__ raised {class_of(broken)})"


def class_of(value: Any) -> str:
    """Return the name of the class of a value, whatever the class makes of its name."""
    return well_formed(type.__dict__["__name__"].__get__(type(value)))


def _escape(sign: str) -> str:
    return sign if sign in _SPACES else sign.encode("unicode_escape").decode()


_SPACES = "\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
"""Spaces that Python counts among what is not printable, and which do no harm."""
