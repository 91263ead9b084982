"""A device in Python: torch takes `sim` for an accelerator (PrivateUse1), and it computes on the CPU."""

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from torch_sim import runtime
from torch_sim.tensor import copy_from, run

# Everything that torch has for a backend in C++ is public, but what a backend in Python needs (a device guard, hooks)
# is not: this function calls itself experimental. It also names the device, and makes `runtime` torch.sim.
_setup_privateuseone_for_python_backend("sim", backend_module=runtime)

# Tensors of the device bring their own dispatch. The fallback is for what makes the first one, such as torch.empty.
_fallback = torch.library.Library("_", "IMPL")  # registrations live as long as these objects
_fallback.fallback(run, "PrivateUse1")
_aten = torch.library.Library("aten", "IMPL")
_aten.impl("_copy_from", copy_from, "PrivateUse1")
