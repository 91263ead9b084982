"""opcheck: declarative tests of operators and their derivatives in PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opcheck.parametrize import cases

__all__ = ["__version__", "cases"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Public names load on first use: importing opcheck costs nothing and never imports torch.
    if name == "cases":
        from opcheck.parametrize import cases

        return cases
    raise AttributeError(f"module 'opcheck' has no attribute {name!r}")
