"""Runs a case and yields its outcome. Import `runner` for the running: this package alone needs no torch."""

from opcheck.run.outcome import Outcome, OutcomeKind

__all__ = ["Outcome", "OutcomeKind"]
