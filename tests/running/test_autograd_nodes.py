"""Formulas are the nodes of the graphs that torch records, by hand for operators whose graph is known."""

from __future__ import annotations

import pytest
import torch

from opcheck.planning.loading import load
from opcheck.running.autograd_nodes import formulas, name_of, names_in, orders, reached
from opcheck.running.session import RunSession
from opcheck.settings import Settings


@pytest.fixture
def session():
    return RunSession(Settings(modules=("torch", "operators")))


def loaded(write, text):
    return list(load([write(text)], Settings(modules=("torch", "operators"))))


def test_overloads_have_one_formula():
    assert name_of("MulBackward0") == name_of("MulBackward12") == "MulBackward"


def test_nodes_of_the_engine_are_no_formulas():
    x = torch.ones(2, requires_grad=True)
    assert names_in([x.sin() * 2]) == {"SinBackward", "MulBackward"}
    assert names_in([]) == set()


def test_the_second_order_is_that_of_the_gradient():
    x = torch.ones(2, requires_grad=True)
    first, second = orders(torch.sin, [x])
    assert names_in(first) == {"SinBackward"}
    assert names_in(second) == {"MulBackward", "CosBackward"}  # v cos(x)


def test_samples_are_called_in_each_variant(write, session):
    (sin,) = loaded(write, '[[operator]]\nname = "torch.sin"\nsamples = [{ args = [{ shape = [2] }] }]\n')
    names = formulas(sin, session)
    assert names >= {"SinBackward", "CosBackward", "MulBackward"}
    assert "ConjBackward" in names  # of complex numbers


def test_what_refuses_a_sample_reaches_nothing(write, session):
    text = '[[operator]]\nname = "torch.mm"\nsamples = [{ args = [{ shape = [2, 3] }, { shape = [2, 3] }] }]\n'
    (mm,) = loaded(write, text)
    assert formulas(mm, session) == set()


def test_an_operator_that_ends_its_process_costs_its_own_answer(write, tmp_path, monkeypatch):
    (tmp_path / "ends_processes.py").write_text("import os\n\n\ndef aborts(x):\n    os._exit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = Settings(modules=("torch", "ends_processes"))
    samples = "samples = [{ args = [{ shape = [2] }] }]"
    path = write(
        "".join(f'[[operator]]\nname = "{name}"\n{samples}\n' for name in ("ends_processes.aborts", "torch.cos"))
    )
    names, lost = reached(list(load([path], settings)), RunSession(settings), 1)
    assert {"CosBackward", "SinBackward"} <= names
    assert list(lost) == ["ends_processes.aborts"]
