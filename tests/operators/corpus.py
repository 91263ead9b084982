"""The corpus: functions with one mistake each, which engines must find, and right ones, where they must find none."""

from types import SimpleNamespace

from operators import (
    corpus_batching,
    corpus_cotangents,
    corpus_formulas,
    corpus_numbers,
    corpus_places,
    corpus_precision,
    corpus_right,
    corpus_second_order,
    corpus_sparse,
)
from operators.corpus_entries import BESIDE, JACOBIANS, NUMBERS, Entry, Fault, Right

FAULTS: tuple[Fault, ...] = (
    *corpus_numbers.FAULTS,
    *corpus_formulas.FAULTS,
    *corpus_cotangents.FAULTS,
    *corpus_second_order.FAULTS,
    *corpus_batching.FAULTS,
    *corpus_precision.FAULTS,
    *corpus_sparse.FAULTS,
    *corpus_places.FAULTS,
)

LOW_ACCURACY: tuple[Fault, ...] = corpus_precision.LOW_ACCURACY
"""Right at first order to single precision, which no tolerance for difference quotients tells from right."""

BLIND_SPOTS: tuple[Fault, ...] = corpus_cotangents.BLIND_SPOTS
"""Wrong for vectors that nobody asks for."""

RIGHT: tuple[Right, ...] = (*corpus_right.RIGHT, *corpus_sparse.TWINS)


class Functions(SimpleNamespace):
    """Of this module, as what a spec names has to be."""


functions = Functions(**{entry.name: entry.function for entry in (*FAULTS, *LOW_ACCURACY, *RIGHT)})
"""The functions by name, for specs: `operators.corpus.functions.wrong_sign_in_the_gradient`."""

__all__ = [
    "BESIDE", "BLIND_SPOTS", "FAULTS", "JACOBIANS", "LOW_ACCURACY", "NUMBERS", "RIGHT", "Entry", "Fault", "Right",
]  # fmt: skip
