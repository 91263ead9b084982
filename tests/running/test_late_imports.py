"""What torch would import in the middle of a case is there before: an interrupted import leaves modules half done."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys

import torch
from opcheck.running.process_state import import_what_is_late

import_what_is_late()
before = set(sys.modules)
x = torch.ones(2, 2, dtype=torch.float64)
with torch.autograd.forward_ad.dual_level():
    dual = torch.autograd.forward_ad.make_dual(x, x)
    ((dual + 1) * 2 @ x).exp().sum()
torch.func.vmap(lambda t: torch.func.jvp(torch.log1p, (x,), (t,))[1])(torch.ones(3, 2, 2, dtype=torch.float64))
torch.testing.assert_close(x, x + 0)
print(sorted(name for name in set(sys.modules) - before if name.startswith(("torch", "sympy"))))
"""


def test_nothing_is_left_to_import_and_no_warning_is_in_the_way():
    done = subprocess.run([sys.executable, "-W", "error", "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
