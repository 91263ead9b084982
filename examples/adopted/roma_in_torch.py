"""The findings in roma 1.8.0, by torch's own functions: prints which second derivatives gradgradcheck refuses."""

import roma
import torch
from torch.autograd import gradcheck, gradgradcheck

FUNCTIONS = {
    "procrustes": {},
    "special_procrustes": {"return_singular_values": True},
    "special_procrustes by method svd": {"method": "svd"},
    "special_procrustes by method horn": {"method": "horn"},
    "procrustes_naive": {},
}


def main():
    torch.manual_seed(0)
    x = torch.randn(3, 3, dtype=torch.float64).requires_grad_()
    print("singular values:", torch.linalg.svdvals(x.detach()).tolist())
    for name, kwargs in FUNCTIONS.items():
        function = getattr(roma, name.split()[0])

        def called(x, function=function, kwargs=kwargs):
            return function(x, **kwargs)

        first = gradcheck(called, x, raise_exception=False)
        second = gradgradcheck(called, x, raise_exception=False)
        print(f"{name}: first order {first}, second order {second}")


if __name__ == "__main__":
    main()
