"""The vmapped vjp equals the loop over it."""

from __future__ import annotations

from opcheck.checks.context import per_sample
from opcheck.checks.evidence import ask

check = per_sample(ask)
