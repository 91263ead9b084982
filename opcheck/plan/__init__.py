"""Which tests follow from the claims: cases with stable ids, their selection and order. Never imports torch."""

from opcheck.plan.case import Case
from opcheck.plan.kinds import check_kinds
from opcheck.plan.loading import load
from opcheck.plan.planner import plan
from opcheck.plan.selection import Selection
from opcheck.spec.check import CheckKind

__all__ = ["Case", "CheckKind", "Selection", "check_kinds", "load", "plan"]
