"""The spec format: what an operator claims, how specs are loaded, how mistakes are reported. Never imports torch."""

from opcheck.spec.library import Library, Operator, Sample
from opcheck.spec.load import Loader
from opcheck.spec.problems import Problem, SpecError

__all__ = ["Library", "Loader", "Operator", "Problem", "Sample", "SpecError"]
