"""The reference tables of docs/ say what the models say."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent.parent
PINNED = f"torch=={torch.__version__.partition('+')[0]}" in (ROOT / "constraints.txt").read_text().split()


@pytest.mark.skipif(not PINNED, reason="docs/library.md has the claims for the torch that constraints.txt pins")
def test_the_generated_tables_are_up_to_date():
    command = [sys.executable, str(ROOT / "tools" / "generate_docs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_parameter_of_gradcheck_and_gradgradcheck_has_a_row_in_the_documents():
    import inspect

    from torch.autograd import gradcheck, gradgradcheck

    text = (ROOT / "docs" / "parameters.md").read_text()
    for function in (gradcheck, gradgradcheck):
        for name in inspect.signature(function).parameters:
            if name not in ("func", "inputs"):
                assert f"| `{name}` |" in text, name
    assert "| `check_sparse_nnz` |" in text
