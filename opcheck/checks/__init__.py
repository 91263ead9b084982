"""One module a check: evidence and a claim in, a verdict out."""

from opcheck.checks.context import Context
from opcheck.checks.per_sample import per_sample
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import Verdict

__all__ = ["Context", "Subject", "Verdict", "per_sample"]
