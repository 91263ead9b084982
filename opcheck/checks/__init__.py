"""The checks, one module each. A check takes a claim and evidence, and gives verdicts."""

from opcheck.checks.base import Context, Subject
from opcheck.checks.judging import per_sample
from opcheck.checks.verdict import Verdict

__all__ = ["Context", "Subject", "Verdict", "per_sample"]
