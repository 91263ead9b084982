"""The findings in geoopt 0.5.1, by torch's own functions: derivatives at the center of the ball, and of TorchScript."""

from functools import partial

import torch
from geoopt.manifolds.stereographic import math
from torch.autograd import gradcheck
from torch.autograd.functional import jacobian

K = torch.tensor(-0.75, dtype=torch.float64)
ZERO = torch.zeros(3, dtype=torch.float64, requires_grad=True)
X = torch.tensor([0.3, -0.2, 0.4], dtype=torch.float64, requires_grad=True)


def constant_weights():
    """Print that a weight of zeros gets no gradient, although the product is linear in it near zero."""
    for product, weight in ((math.mobius_matvec, torch.zeros(3, 3)), (math.mobius_pointwise_mul, torch.zeros(3))):
        weight = weight.double().requires_grad_()
        right = gradcheck(partial(product, x=X.detach(), k=K), weight, raise_exception=False)
        (gradient,) = torch.autograd.grad(product(weight, X, k=K).sum(), weight)
        largest = gradient.abs().max().item()
        print(f"{product.__name__}: gradcheck {right}, largest gradient of zero weights {largest:g}")


def digits_at_the_center():
    """Print the derivatives of the logarithm and of a multiple at the center, which are 1 and the factor."""
    for dtype in (torch.float64, torch.float32):
        zero, k = ZERO.detach().to(dtype), K.to(dtype)
        half = torch.full((1,), 0.5, dtype=dtype)
        slopes = {
            "logmap0": (jacobian(lambda y, k=k: math.logmap0(y, k=k), zero), 1),
            "mobius_scalar_mul": (jacobian(lambda x, r=half, k=k: math.mobius_scalar_mul(r, x, k=k), zero), 0.5),
        }
        for name, (slope, exact) in slopes.items():
            print(f"{name} in {dtype}: derivative {slope[0, 0].item():g} instead of {exact}")


def second_order_at_the_center():
    """Print the second derivative of the exponential map, which is zero at the center by symmetry."""
    (first,) = torch.autograd.grad(math.expmap0(ZERO, k=K).sum(), ZERO, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), ZERO)
    print(f"expmap0: second derivative {second.tolist()} instead of zeros")


def forward_over_backward():
    """Print the Hessian by forward mode over the backward pass, next to that by two backward passes."""

    def factor(x):
        return math.lambda_x(x, k=K)

    for _ in range(3):  # TorchScript compiles the function after the first calls
        jacobian(factor, X)
    forward = torch.autograd.functional.hessian(factor, X, outer_jacobian_strategy="forward-mode", vectorize=True)
    backward = torch.autograd.functional.hessian(factor, X)
    print(f"lambda_x: Hessian {forward[0, 0].item():g} in forward mode, {backward[0, 0].item():g} in reverse mode")


if __name__ == "__main__":
    constant_weights()
    digits_at_the_center()
    second_order_at_the_center()
    forward_over_backward()
