"""The findings in kornia 0.9.0, by torch's own functions: derivatives of rotations at the identity."""

import torch
from kornia.geometry import conversions
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.functional import jacobian

IDENTITY = {
    "quaternion_exp_to_log": [[1.0, 0, 0, 0]],
    "axis_angle_to_quaternion": [[0.0, 0, 0]],
    "quaternion_log_to_exp": [[0.0, 0, 0]],
    "quaternion_to_axis_angle": [[1.0, 0, 0, 0]],
    "rotation_matrix_to_axis_angle": [[[1.0, 0, 0], [0, 1, 0], [0, 0, 1]]],
    "axis_angle_to_rotation_matrix": [[0.0, 0, 0]],
    "quaternion_to_rotation_matrix": [[1.0, 0, 0, 0]],
    "rotation_matrix_to_quaternion": [[[1.0, 0, 0], [0, 1, 0], [0, 0, 1]]],
    "normalize_quaternion": [[1.0, 0, 0, 0]],
}


def orders():
    """Print which derivatives torch refuses, to the first and to the second order."""
    for name, values in IDENTITY.items():
        torch.manual_seed(0)
        function = getattr(conversions, name)
        x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
        first, second = (check(function, x, raise_exception=False) for check in (gradcheck, gradgradcheck))
        print(f"{name}: first order {first}, second order {second}")


def near_the_identity():
    """Print the logarithm of small rotations, which is too small itself."""
    log = conversions.quaternion_exp_to_log
    for x in (0.0, 1e-9, 1e-3):
        q = torch.tensor([1.0, x, 0.0, 0.0], dtype=torch.float64)
        value, slope, exact = log(q)[0].item(), jacobian(log, q)[0, 1].item(), torch.atan2(q[1], q[0]).item()
        print(f"log (1, {x:g}, 0, 0) = {value:g} instead of {exact:g}, its derivative {slope:g} instead of 1")


if __name__ == "__main__":
    orders()
    near_the_identity()
