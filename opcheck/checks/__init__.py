"""The checks, one module each. A check takes a claim and evidence, and gives verdicts."""

from opcheck.checks.context import Context
from opcheck.checks.per_sample import per_sample
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import Verdict

__all__ = ["Context", "Subject", "Verdict", "per_sample"]
