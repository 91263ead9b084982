"""What is wrong with a request: lines for the person who made it."""

from __future__ import annotations

from opcheck.spec import SpecError
from opcheck.text import printable


class RequestError(SpecError):
    """A request that names something that does not exist: lines without a place in a file.

    prefix: says who speaks, where the lines do not begin with the place of a mistake.
    """

    def __init__(self, lines: list[str], prefix: str = "opcheck: ") -> None:
        super().__init__([])
        self.args = ("\n".join(printable(f"{prefix}{line}", lines=True, most=100_000) for line in lines),)
