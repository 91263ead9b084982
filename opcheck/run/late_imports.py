"""Makes torch import now what it would import at the first derivative of some kind.

An exception in the middle of such an import, a time-out or a warning that is an error, leaves modules half done: all
that needs them fails from then on.
"""

from __future__ import annotations

import warnings

import torch
from torch.autograd import forward_ad


def import_what_is_late() -> None:
    """Take a derivative of each kind. It takes a second or two the first time, and nothing after it."""
    point, tangents = torch.zeros(2), torch.ones(3, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(point, tangents[0])  # type: ignore[no-untyped-call]
            (dual + 1).sin()  # of a tensor and a number: torch's own compiler, for its tensors of zeros
        torch.func.vmap(lambda tangent: torch.func.jvp(torch.sin, (point,), (tangent,)))(tangents)  # decompositions
        torch.testing.assert_close(point, point + 0)  # torch.distributed
