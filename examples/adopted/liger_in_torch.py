"""The findings in Liger-Kernel 0.8.5, by torch alone: prints what goes wrong, beside what is right.

Run it in Triton's interpreter: `TRITON_INTERPRET=1 python liger_in_torch.py`.
"""

import torch
from liger_kernel import ops


def penalty():
    """Of f = relu(x)^2 the gradient of f.sum() + (f')^2 / 2 is 2 relu(x) + 4 relu(x)."""
    x = torch.tensor([[1.0, 2.0, -1.0]], requires_grad=True)
    for name, function in {"Liger": ops.LigerReLUSquaredFunction.apply, "torch": lambda x: x.relu() ** 2}.items():
        value = function(x).sum()
        (slope,) = torch.autograd.grad(value, x, create_graph=True)
        (gradient,) = torch.autograd.grad(value + slope.square().sum() / 2, x)
        print(f"relu(x)^2 with a penalty on its slope: the gradient is {gradient.tolist()} by {name}")


def two_passes():
    """A loss whose graph is kept for a second backward pass, as for two penalties."""
    torch.manual_seed(0)
    target = torch.tensor([0, 4, 2])
    for name in ("LigerCrossEntropyFunction", "LigerFusedLinearCrossEntropyFunction"):
        x, w = torch.randn(3, 2), torch.randn(5, 2)
        leaf = (x if "Linear" in name else torch.randn(3, 5)).requires_grad_()
        logits = leaf if "Linear" in name else leaf * 1  # which it overwrites
        arguments = (logits, w, target) if "Linear" in name else (logits, target, None)
        loss, *_ = getattr(ops, name).apply(*arguments)
        first, second = (torch.autograd.grad(3 * loss, leaf, retain_graph=True)[0].clone() for _ in range(2))
        print(f"{name}: the second gradient is {float(second.norm() / first.norm()):.3g} times the first one")


if __name__ == "__main__":
    penalty()
    two_passes()
