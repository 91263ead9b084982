"""The finding in kornia 0.9.0, by torch's own functions: the gradient of quaternion_exp_to_log at the identity."""

import torch
from kornia.geometry.conversions import quaternion_exp_to_log
from torch.autograd.functional import jacobian


def main():
    for x in (0.0, 1e-9, 1e-3):
        q = torch.tensor([1.0, x, 0.0, 0.0], dtype=torch.float64)
        value = quaternion_exp_to_log(q)[0].item()
        slope = jacobian(quaternion_exp_to_log, q)[0, 1].item()
        exact = torch.atan2(q[1], q[0]).item()
        print(f"at (1, {x:g}, 0, 0): log {value:g} instead of {exact:g}, derivative {slope:g} instead of 1")


if __name__ == "__main__":
    main()
