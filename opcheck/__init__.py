"""opcheck: declarative tests of operators and their derivatives in PyTorch.

`opcheck run` imports this package before pytest does, and nothing in it has assertions that pytest could rewrite, which
would be a warning, and an error where a project makes errors of warnings: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opcheck.derivatives.gradcheck import GradcheckError, gradcheck, gradgradcheck
    from opcheck.parametrize import cases

__all__ = ["GradcheckError", "__version__", "cases", "gradcheck", "gradgradcheck"]
__version__ = "0.1.0"


HOMES = {
    "cases": "opcheck.parametrize",
    "GradcheckError": "opcheck.derivatives.gradcheck",
    "gradcheck": "opcheck.derivatives.gradcheck",
    "gradgradcheck": "opcheck.derivatives.gradcheck",
}


def __getattr__(name: str) -> Any:
    # Public names load on first use: importing opcheck costs nothing and never imports torch.
    if name in HOMES:
        return getattr(import_module(HOMES[name]), name)
    raise AttributeError(f"module 'opcheck' has no attribute {name!r}")
