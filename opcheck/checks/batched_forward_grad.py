"""The vmapped jvp equals the loop over it."""

from __future__ import annotations

from opcheck.checks.evidence import ask
from opcheck.checks.per_sample import per_sample

check = per_sample(ask)
