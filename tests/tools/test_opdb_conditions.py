"""tools/opdb_conditions.py: an operator of both is one of the same dotted name; what only op_db meets is told."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from opcheck.planning import load
from opcheck.running.session import RunSession
from opcheck.settings import Settings

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("opdb_conditions", ROOT / "tools" / "opdb_conditions.py")
    module = sys.modules["opdb_conditions"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entry(name, op, *shapes, autograd=True):
    def sample_inputs(device, dtype, requires_grad):
        for shape in shapes:
            x = torch.rand(shape, dtype=dtype, device=device, requires_grad=requires_grad)
            yield SimpleNamespace(input=x, args=(), kwargs={})

    return SimpleNamespace(
        name=name, op=op, supports_autograd=autograd, sample_inputs=sample_inputs,
        supported_backward_dtypes=lambda device: {torch.float64},
    )  # fmt: skip


def operators(tmp_path):
    path = tmp_path / "spec.toml"
    samples = "samples = [{ args = [{ shape = [2, 3] }] }]"
    path.write_text(
        "".join(f'[[operator]]\nname = "{name}"\n{samples}\n' for name in ("torch.sin", "torch.Tensor.cos"))
    )
    return list(load([path]))


def test_names_are_mapped_in_one_way(tool, tmp_path):
    entries = [entry("sin", torch.sin), entry("cos", torch.cos), entry("tan", torch.tan)]
    both = tool.by_name(operators(tmp_path), [*entries, entry("sin", torch.sin, autograd=False)])
    assert {name: [e.name for e in own] for name, (_, own) in both.items()} == {
        "torch.sin": ["sin"],
        "torch.Tensor.cos": ["cos"],
    }


def test_it_tells_what_only_op_db_meets(tool, tmp_path):
    sin, _ = operators(tmp_path)
    entries = [entry("sin", torch.sin, (2, 3), (), (20, 20)), entry("sin", torch.Tensor.svd, (2,))]
    got = tool.compare("torch.sin", [sin], entries, RunSession.start(Settings()), "none")
    assert got.missing == ["more than 16 elements", "more than 256 elements", "more than 32 elements", "rank 0"]
    assert "a last dim that is no multiple of 4" in got.ours & got.theirs
