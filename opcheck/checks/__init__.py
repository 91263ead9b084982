"""The common parts of checks, which are in `jacobian`, `behavior` and `values`. `opcheck/spec/checks.py` lists them."""

from opcheck.checks.per_sample import PerSample
from opcheck.checks.subject import Context, Subject
from opcheck.checks.verdict import Verdict

__all__ = ["Context", "PerSample", "Subject", "Verdict"]
