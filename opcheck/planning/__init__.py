"""Plans the tests of claims: cases with stable ids, their selection and order. Never imports torch."""

from opcheck.planning.case import Case
from opcheck.planning.kinds import check_kinds
from opcheck.planning.loading import load
from opcheck.planning.planner import plan
from opcheck.planning.selection import Selection
from opcheck.spec.checks import CheckKind

__all__ = ["Case", "CheckKind", "Selection", "check_kinds", "load", "plan"]
