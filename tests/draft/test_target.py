"""A target names an operator, or those of a Python module."""

from __future__ import annotations

import re
from functools import partial

import pytest
from operators import modules

from opcheck.draft.target import modules_in, names, resolve_either
from opcheck.samples.resolve import Unresolved

OURS = ("torch", "operators")


def test_functions_and_classes_of_modules_are_listed():
    found = names("operators.modules", OURS)
    assert found["operators.modules.Layer"] == ""
    assert "operators.modules.Linear" not in found  # an autograd.Function, of which apply is the operator


@pytest.mark.parametrize("target", ["torch.ops.prims", "torch.ops.mylib.scale"])
def test_operators_of_torch_ops_are_those_of_the_module_that_registers_them(target):
    with pytest.raises(Unresolved, match=r"; name the Python module that registers these operators$"):
        names(target, OURS)


def test_a_partial_of_a_class_of_modules_is_neither_a_function_nor_a_class(monkeypatch):
    monkeypatch.setattr(modules, "Layer3", partial(modules.Layer, 3), raising=False)
    why = '"operators.modules.Layer3" is a partial of the class Layer: name a class that derives from it'
    assert names("operators.modules", OURS)["operators.modules.Layer3"] == why
    with pytest.raises(Unresolved, match=re.escape(why)):
        resolve_either("operators.modules.Layer3", OURS)


FUNCTIONS = """
import functools

import torch


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x**3


class Named(Cube):
    pass


class Called(Cube):
    pass


class Constructed(Cube):
    pass


named = Named.apply
bound = functools.partial(named)
other = functools.partial(torch.sin)


def called(x):
    return Called.apply(x)


class Layer(torch.nn.Module):
    def forward(self, x):
        return Constructed.apply(x)
"""


def test_apply_of_a_function_is_listed_where_nothing_else_calls_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    own = ("functions.Cube.apply", "functions.named", "functions.bound", "functions.called", "functions.Layer")
    assert names("functions", ("torch", "functions")) == dict.fromkeys(own, "")


PARTS = """
import functools

import torch


def traced(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)

    return call


def cube(x):
    return x**3


def slope(x, grad):
    return 3 * x**2 * grad


def plain(x):
    return x + 1


def exp(x):
    return Exp.apply(x)


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp() + x.plain() if hasattr(x, "plain") else x.exp()

    @staticmethod
    def backward(ctx, grad):
        return grad * exp(*ctx.saved_tensors)


class Cube(torch.autograd.Function):
    exponent = 3

    @staticmethod
    @traced
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return cube(x) if Cube.exponent == 3 else x

    @staticmethod
    def backward(ctx, grad):
        return slope(*ctx.saved_tensors, grad)
"""


def test_what_a_function_calls_is_tested_with_it_unless_it_is_named(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "parts.py").write_text(PARTS)
    found = names("parts", ("torch", "parts"))
    assert [name for name, why in found.items() if not why] == [
        "parts.traced",
        "parts.plain",
        "parts.exp",
        "parts.Cube.apply",
    ]
    why = "already tested through Cube, which calls it; to draft it separately, run `opcheck new parts.{}`"
    assert (found["parts.cube"], found["parts.slope"]) == (why.format("cube"), why.format("slope"))
    assert names("parts.cube", ("torch", "parts")) == {"parts.cube": ""}


def test_objects_whose_attributes_raise_are_no_operators():
    assert "torch.sin" in names("torch", ("torch",))  # torch.classes makes a class of any attribute, or raises


def test_a_package_says_which_modules_are_in_it():
    (line,) = modules_in("torch.distributions")
    assert line.startswith("try a module in it: torch.distributions.bernoulli, ")
    assert modules_in("torch.distributions.bernoulli") == []


def test_a_class_without_forward_is_refused():
    with pytest.raises(Unresolved, match="has no forward"):
        resolve_either("torch.nn.ModuleList", OURS)


def test_operators_of_the_dispatcher_are_listed_where_they_are_exported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, exports in (("exporting", '__all__ = ["sine"]'), ("importing", "")):
        (tmp_path / f"{name}.py").write_text(f"import torch\nsine = torch.ops.aten.sin\n{exports}\n")
    assert names("exporting", ("torch", "exporting")) == {"exporting.sine": ""}
    assert names("importing", ("torch", "importing")) == {}


def test_operators_by_torch_library_are_those_of_the_module_that_defines_them(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "borrowing.py").write_text("from operators.registered import right_half\n")
    assert names("operators.registered", OURS)["operators.registered.right_half"] == ""
    assert names("borrowing", ("torch", "borrowing", "operators")) == {}


@pytest.mark.parametrize(("target", "hint"), [("mylib.py", "mylib"), ("./lib/mylib.py", "lib.mylib"), (".", "")])
def test_a_file_is_no_path(target, hint):
    with pytest.raises(Unresolved, match=r"is not a path of a module or an operator, such as mylib") as caught:
        names(target, OURS)
    assert caught.value.hint == hint
