"""Undefined cotangents and tangents are treated as zeros."""

from __future__ import annotations

from opcheck.checks.context import per_sample
from opcheck.checks.evidence import ask

check = per_sample(ask)
