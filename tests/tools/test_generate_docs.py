"""The reference tables of docs/ say what the models say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


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
