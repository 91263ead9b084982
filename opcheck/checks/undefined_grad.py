"""Undefined cotangents and tangents are treated as zeros."""

from __future__ import annotations

from opcheck.checks.evidence import ask
from opcheck.checks.per_sample import per_sample

check = per_sample(ask)
