"""opcheck: declarative tests of operators and their derivatives in PyTorch.

PYTEST_DONT_REWRITE: `opcheck run` imports this package before pytest does. Pytest would warn that it cannot rewrite its
assertions, of which there are none; in projects that turn warnings into errors, that would be an error.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opcheck.api.check import check, run
    from opcheck.api.plan import load, plan
    from opcheck.api.register import register_check
    from opcheck.api.result import CheckError, CheckReport
    from opcheck.checks.subject import Subject
    from opcheck.checks.verdict import Verdict
    from opcheck.dropin.errors import GradcheckError
    from opcheck.dropin.gradcheck import gradcheck, gradgradcheck
    from opcheck.mutation.conditions import register_condition
    from opcheck.planning.case import Case
    from opcheck.pytest_plugin.cases import cases
    from opcheck.running.outcome import Outcome
    from opcheck.spec.problems import SpecError

__all__ = [
    "Case", "CheckError", "CheckReport", "GradcheckError", "Outcome", "SpecError", "Subject", "Verdict", "__version__",
    "cases", "check", "gradcheck", "gradgradcheck", "load", "plan", "register_check", "register_condition",
    "run",
]  # fmt: skip
__version__ = "0.1.0"

HOMES = {
    "Case": "opcheck.planning.case",
    "CheckError": "opcheck.api.result",
    "CheckReport": "opcheck.api.result",
    "GradcheckError": "opcheck.dropin.errors",
    "Outcome": "opcheck.running.outcome",
    "SpecError": "opcheck.spec.problems",
    "Subject": "opcheck.checks.subject",
    "Verdict": "opcheck.checks.verdict",
    "cases": "opcheck.pytest_plugin.cases",
    "check": "opcheck.api.check",
    "gradcheck": "opcheck.dropin.gradcheck",
    "gradgradcheck": "opcheck.dropin.gradcheck",
    "load": "opcheck.api.plan",
    "plan": "opcheck.api.plan",
    "register_check": "opcheck.api.register",
    "register_condition": "opcheck.mutation.conditions",
    "run": "opcheck.api.check",
}
"""The module that defines each public name. It is imported on first use, so that `import opcheck` is cheap."""


if not TYPE_CHECKING:  # else type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name in HOMES:
            return getattr(import_module(HOMES[name]), name)
        raise AttributeError(f"module 'opcheck' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
