"""Makes torch import what it would otherwise import with the first derivative of some kind.

A time-out, or a warning turned into an error, can interrupt an import and leave a module half initialized. Whatever
needs that module fails from then on. And the time that imports take is no case's own.
"""

from __future__ import annotations

import warnings

import torch
from torch.autograd import forward_ad


def import_what_is_late() -> None:
    """Take a derivative of each kind. The first call takes a second or two, later ones no time."""
    point, tangents = torch.zeros(2), torch.ones(3, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about its own code
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(point, tangents[0])  # type: ignore[no-untyped-call]
            (dual + 1).sin()  # a tensor and a number: imports parts of the compiler
        torch.func.vmap(lambda tangent: torch.func.jvp(torch.sin, (point,), (tangent,)))(tangents)  # decompositions
        torch.testing.assert_close(point, point + 0)  # torch.distributed
