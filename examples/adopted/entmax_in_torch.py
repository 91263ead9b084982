"""The findings in entmax 1.3, by torch's own functions: prints which derivatives gradgradcheck refuses."""

import entmax
import torch
from torch.autograd import gradcheck, gradgradcheck

SECOND = ("entmax15", "entmax_bisect", "budget_bisect")
LOSSES = ("sparsemax_loss", "entmax15_loss", "sparsemax_bisect_loss", "entmax_bisect_loss", "normmax_bisect_loss")
THIRD = ("normmax_bisect",)


def gradient_of(function):
    def gradient(x):
        return torch.autograd.grad(function(x).sin().sum(), x, create_graph=True)[0]

    return gradient


def main():
    torch.manual_seed(0)
    sparse = torch.randn(2, 3, dtype=torch.float64).requires_grad_()  # some of the results are zero
    dense = (sparse.detach() / 4).requires_grad_()  # none is
    target = torch.tensor([0, 1])
    functions = {name: getattr(entmax, name) for name in (*SECOND, *THIRD)}
    functions["normmax_bisect, alpha = 3"] = lambda x: entmax.normmax_bisect(x, alpha=3)
    functions |= {name: lambda x, name=name: getattr(entmax, name)(x, target) for name in LOSSES}
    for name, function in functions.items():
        tested = gradient_of(function) if name in THIRD else function
        x = dense if name in LOSSES else sparse
        first = gradcheck(function, x, raise_exception=False)
        higher = gradgradcheck(tested, x, raise_exception=False)
        print(f"{name}: first order {first}, order {3 if name in THIRD else 2} {higher}")


if __name__ == "__main__":
    main()
