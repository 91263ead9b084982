"""The exceptions that `opcheck.gradcheck` and `opcheck.gradgradcheck` raise."""

from __future__ import annotations

from torch.autograd.gradcheck import GradcheckError as TorchGradcheckError

from opcheck.derivatives.disagreement import Disagreement


class GradcheckError(TorchGradcheckError):
    """A gradient is wrong. A subclass of torch's `GradcheckError`, which is a RuntimeError.

    `error.disagreement` describes the wrong entries as data. It is None if torch itself raised the error.

    Example:
        >>> import opcheck, torch
        >>> x = torch.tensor([0.5, 1.5, 2.5], dtype=torch.float64, requires_grad=True)
        >>> try:
        ...     opcheck.gradcheck(lambda x: x.detach() * x, x)
        ... except opcheck.GradcheckError as error:
        ...     print(error.disagreement.findings[0].text)
        output 0 with respect to input 0: the gradient is 1/2 times what it should be
    """

    def __init__(self, text: str, disagreement: Disagreement | None = None) -> None:
        super().__init__(text)
        self.disagreement = disagreement


class ChangedOutputsError(GradcheckError, AssertionError):
    """The outputs of a function change their shape or dtype if its inputs are perturbed.

    Like torch, which raises an AssertionError here, `opcheck.gradcheck` ignores `raise_exception` in this case.
    """
