"""Runs a case and returns its outcome. The package itself needs no torch; `runner` does."""

from opcheck.running.outcome import Outcome, OutcomeKind

__all__ = ["Outcome", "OutcomeKind"]
