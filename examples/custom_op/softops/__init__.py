"""Smooth relatives of relu and abs."""

from softops.logcosh import logcosh, wrong_logcosh
from softops.squareplus import squareplus, wrong_squareplus

__all__ = ["logcosh", "squareplus", "wrong_logcosh", "wrong_squareplus"]
