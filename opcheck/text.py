"""Makes text from specs and operators safe for reports, pipes and terminals. Needs only the standard library."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from hashlib import sha256
from typing import Any
from unicodedata import category

MOST = 1000
"""The maximum number of characters of a name or a line that is shown to users."""

ROOM = 50
"""The number of characters reserved for the note on how many were left out."""

BY_SOFTMAX = re.compile(r"modified by an inplace operation: \[.*\], which is output 0 of Exp, is at version 1")
"""The pattern of the error of backward over forward mode for torch's softmax: its jvp writes to a saved tensor."""
IN_TORCHSCRIPT = re.compile(r"\AThe following operation failed in the TorchScript interpreter\..*^\w+: ", re.S | re.M)
"""The pattern of the traceback with which a message of TorchScript begins."""


def well_formed(text: str) -> str:
    r"""Return text that every Unicode encoding can represent: a lone surrogate becomes its escape, `\udc80`."""
    return str.encode(text, "utf-8", "backslashreplace").decode()


def shortened(text: str, most: int, end: int = 0) -> str:
    """Return text of at most `most` characters, `end` of them from its end, with a note on how many were left out."""
    if len(text) <= most:
        return text
    begin = max(most - end - ROOM, 0)
    tail = f" ... {text[-end:]}" if end else ""
    return f"{text[:begin]} ... ({len(text) - begin - end} characters left out){tail}"


def printable(text: str, *, lines: bool = False, most: int | None = MOST) -> str:
    r"""Return text that a terminal shows literally.

    Characters that would move the cursor, change colors or reorder letters become escapes: `\x1b`, `\r`, `\u202e`. If
    `lines` is true, line ends and tabs are kept. Text beyond `most` characters is cut, with a note on how much.
    """
    text = text if most is None else shortened(text, most)
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(sign if sign.isprintable() or sign in kept else _escape(sign) for sign in text)


def message_of(error: BaseException) -> str:
    """Return the message of an exception, even if its `__str__` raises."""
    try:
        return well_formed(str(error))
    except Exception as broken:
        return f"(the message is unavailable: __str__ raised {class_of(broken)})"


def class_of(value: Any) -> str:
    """Return the name of the class of a value, even if the class overrides `__name__`."""
    return well_formed(type.__dict__["__name__"].__get__(type(value)))


def one_line(error: BaseException) -> str:
    """Return the class and message of an exception as one line, shortened in the middle. Works if `__str__` raises.

    Of an exception in TorchScript, the message is the last line, without the traceback before it.
    """
    text = " ".join(IN_TORCHSCRIPT.sub("", message_of(error)).split())
    return shortened(f"{class_of(error)}: {text}" if text else class_of(error), 500, 200)


def _escape(sign: str) -> str:
    # Python counts only the ASCII space as printable, but other characters of the category Zs are harmless.
    return sign if category(sign) == "Zs" else sign.encode("unicode_escape").decode()


def ending(status: int) -> str:
    """Return how a process has ended, in words. status: the exit status, or the negative number of a signal."""
    if status >= 0:
        return f"the process exited, with status {status}"
    if -status == signal.SIGKILL:
        return "the process was killed (SIGKILL), as by a system that runs out of memory"
    known = -status in signal.Signals._value2member_map_
    return f"the process crashed ({signal.Signals(-status).name if known else f'signal {-status}'})"


def counted(count: int, what: str) -> str:
    """Return a count with its noun, such as `1 case` or `2,000 cases`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def with_more(first: Iterable[str], count: int, separator: str = ", ") -> str:
    """Return the first texts of a list, with the number of the others. count: the length of the list."""
    shown = [*first]
    return separator.join(shown) + (f" and {count - len(shown)} more" if count > len(shown) else "")


def digest(texts: Iterable[str]) -> str:
    """Return a hash of texts as 16 hexadecimal digits. The order of the texts does not matter."""
    each = sorted(sha256(text.encode(errors="backslashreplace")).hexdigest() for text in texts)
    return sha256("".join(each).encode()).hexdigest()[:16]


def separated(values: Iterable[str]) -> tuple[str, ...]:
    """Split values at commas. Return each name once, in order, without surrounding spaces."""
    return tuple(dict.fromkeys(name.strip() for value in values for name in value.split(",") if name.strip()))
