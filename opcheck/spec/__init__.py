"""The spec format: what an operator claims, how specs are loaded, how mistakes are reported. Never imports torch."""

from opcheck.spec.library import Library, Operator, Sample
from opcheck.spec.load import load
from opcheck.spec.problems import Problem, SpecError
from opcheck.spec.settings import Settings

__all__ = ["Library", "Operator", "Problem", "Sample", "Settings", "SpecError", "load"]
