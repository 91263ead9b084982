"""Devices that tests register from Python."""

from __future__ import annotations

import pytest
from torch.utils import backend_registration

needs_python_backend = pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this version of torch has no backends in Python",
)
