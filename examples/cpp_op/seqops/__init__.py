"""Operators on sequences, written in C++."""

from importlib.util import find_spec

import torch

library = find_spec("seqops._C")
if library is None:
    raise ImportError("seqops is not built; run: python setup.py build_ext --inplace")
torch.ops.load_library(library.origin)

scan = torch.ops.seqops.scan
wrong_scan = torch.ops.seqops.wrong_scan
rms_norm = torch.ops.seqops.rms_norm
wrong_rms_norm = torch.ops.seqops.wrong_rms_norm

__all__ = ["rms_norm", "scan", "wrong_rms_norm", "wrong_scan"]
