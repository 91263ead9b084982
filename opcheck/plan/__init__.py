"""Which tests follow from the claims: cases with stable ids, their selection and order. Never imports torch."""

from opcheck.plan.audited import load_audited
from opcheck.plan.case import Case
from opcheck.plan.expectations import audit
from opcheck.plan.kinds import CheckKind, check_kinds
from opcheck.plan.planner import default_devices, plan
from opcheck.plan.selection import Selection

__all__ = ["Case", "CheckKind", "Selection", "audit", "check_kinds", "default_devices", "load_audited", "plan"]
