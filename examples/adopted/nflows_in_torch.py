"""The findings in nflows 0.14, by torch alone: prints what goes wrong, beside what is right."""

import torch
from nflows import transforms
from torch.autograd import forward_ad
from torch.nn.functional import softplus


def tanh():
    """log(1 - tanh(x)^2) loses its digits where x is large; 2 (log 2 - x - softplus(-2x)) is the same number."""
    for number in (6.0, 12.0, 15.0, 20.0):
        x = torch.tensor([[number]], dtype=torch.float64, requires_grad=True)
        _, value = transforms.Tanh()(x)
        (gradient,) = torch.autograd.grad(value.sum(), x)
        y = x.detach().requires_grad_()
        exact = (2 * (torch.log(torch.full_like(y, 2.0)) - y - softplus(-2 * y))).sum(1)
        (right,) = torch.autograd.grad(exact.sum(), y)
        print(f"Tanh at {number:g}: logabsdet {value.item():.10g} instead of {exact.item():.10g}, ", end="")
        print(f"its derivative {gradient.item():.12g} instead of {right.item():.12g}")


def cubic():
    """The backward pass divides by the fourth power of widths, which float16 has not."""
    torch.manual_seed(0)
    module = transforms.PiecewiseCubicCDF([3])
    x = torch.rand(2, 3) * 0.8 + 0.1
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        outputs, _ = module.to(dtype)(x.to(dtype))
        (gradient,) = torch.autograd.grad(outputs.sum(), module.unnormalized_widths)
        print(f"PiecewiseCubicCDF in {dtype}: {int(gradient.isnan().sum())} of {gradient.numel()} gradients are NaN")


def actnorm():
    """The first call in training mode initializes the parameters: they change, and are NaN after a batch of one."""
    module = transforms.ActNorm(3).double()
    before = module.log_scale.clone()
    module(torch.rand(2, 3, dtype=torch.float64))
    print("ActNorm: forward changes log_scale:", not torch.equal(module.log_scale, before))
    module = transforms.ActNorm(3).double()
    module(torch.rand(1, 3, dtype=torch.float64))
    print("ActNorm after a batch of one: log_scale =", module.log_scale.tolist())


def slogdet():
    """That of torch.linalg.slogdet, which NaiveLinear calls: its jvp takes the LU factors for constants."""
    torch.manual_seed(0)
    matrix = torch.rand(3, 3, dtype=torch.float64, requires_grad=True)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(matrix, torch.ones_like(matrix))
        tangent = forward_ad.unpack_dual(torch.linalg.slogdet(dual)[1]).tangent
    (gradient,) = torch.autograd.grad(torch.linalg.slogdet(matrix)[1], matrix, create_graph=True)
    (right,) = torch.autograd.grad(gradient.sum(), matrix)
    print(f"slogdet: its tangent has a graph: {tangent.requires_grad}; ", end="")
    print(f"its second derivative has entries up to {right.abs().max():.3g}")


if __name__ == "__main__":
    tanh()
    cubic()
    actnorm()
    slogdet()
