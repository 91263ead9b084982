"""Runs a case and returns its outcome. The package itself does not import torch; `runner` does."""

from opcheck.running.outcome import Outcome, OutcomeKind

__all__ = ["Outcome", "OutcomeKind"]
