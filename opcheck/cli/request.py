"""The error for requests that cannot be fulfilled."""

from __future__ import annotations

from opcheck.spec import SpecError
from opcheck.text import printable


class RequestError(SpecError):
    """A request for something that does not exist. Unlike other mistakes, it has no position in a file.

    lines: the messages. prefix: goes before each of them.
    """

    def __init__(self, lines: list[str], prefix: str = "opcheck: ") -> None:
        super().__init__([])
        self.args = ("\n".join(printable(f"{prefix}{line}", lines=True, most=100_000) for line in lines),)
