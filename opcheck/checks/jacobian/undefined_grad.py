"""Undefined cotangents and tangents are treated as zeros."""

from __future__ import annotations

from opcheck.checks.jacobian.compare import compared
from opcheck.checks.judging import per_sample

check = per_sample(compared)
