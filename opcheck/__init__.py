"""opcheck: declarative tests of operators and their derivatives in PyTorch.

`opcheck run` imports this package before pytest does, and nothing in it has assertions that pytest could rewrite, which
would be a warning, and an error where a project makes errors of warnings: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opcheck.api.check import check
    from opcheck.api.library import load, plan
    from opcheck.api.register import register_check
    from opcheck.api.report import CheckError, CheckReport
    from opcheck.api.running import run
    from opcheck.checks.base import Subject
    from opcheck.checks.verdict import Verdict
    from opcheck.dropin.gradcheck import GradcheckError, gradcheck, gradgradcheck
    from opcheck.parametrize import cases
    from opcheck.plan.case import Case
    from opcheck.run.outcome import Outcome
    from opcheck.spec.problems import SpecError

__all__ = [
    "Case", "CheckError", "CheckReport", "GradcheckError", "Outcome", "SpecError", "Subject", "Verdict", "__version__",
    "cases", "check", "gradcheck", "gradgradcheck", "load", "plan", "register_check", "run",
]  # fmt: skip
__version__ = "0.1.0"

HOMES = {
    "Case": "opcheck.plan.case",
    "CheckError": "opcheck.api.report",
    "CheckReport": "opcheck.api.report",
    "GradcheckError": "opcheck.dropin.gradcheck",
    "Outcome": "opcheck.run.outcome",
    "SpecError": "opcheck.spec.problems",
    "Subject": "opcheck.checks.base",
    "Verdict": "opcheck.checks.verdict",
    "cases": "opcheck.parametrize",
    "check": "opcheck.api.check",
    "gradcheck": "opcheck.dropin.gradcheck",
    "gradgradcheck": "opcheck.dropin.gradcheck",
    "load": "opcheck.api.library",
    "plan": "opcheck.api.library",
    "register_check": "opcheck.api.register",
    "run": "opcheck.api.running",
}
"""The module that defines each public name. It is imported on first use, so that `import opcheck` is cheap."""


if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name in FOLDERS:
            return import_module(f"opcheck.{name}")
        if name in HOMES:
            return getattr(import_module(HOMES[name]), name)
        raise AttributeError(f"module 'opcheck' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


FOLDERS = ("plan", "run")
"""Public functions that share their name with a subpackage. Importing the subpackage would hide the function."""


class _CallableFolder(ModuleType):
    """Such a subpackage. Calling it calls the function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = self.__name__.rpartition(".")[2]
        return getattr(import_module(HOMES[name]), name)(*args, **kwargs)


class _Package(ModuleType):
    """This package. It makes those subpackages callable as soon as they are imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FOLDERS and type(value) is ModuleType:
            value.__class__ = _CallableFolder
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
