"""The vmapped jvp equals the loop over it."""

from __future__ import annotations

from opcheck.checks.engine_verdict import engine_verdict
from opcheck.checks.per_sample import per_sample

check = per_sample(engine_verdict)
