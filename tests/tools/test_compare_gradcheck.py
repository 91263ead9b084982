"""The comparison with torch's gradcheck over PyTorch's database of operators: here, with operators of our own."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from operators import faulty

PATH = Path(__file__).resolve().parent.parent.parent / "tools" / "compare_gradcheck.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("compare_gradcheck", PATH)
    module = sys.modules["compare_gradcheck"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def op(function, *shapes, name="mine", **more):
    """Return an operator in the form of PyTorch's database, with one sample for each shape."""

    def sample(shape, dtype):
        x = torch.rand(shape, dtype=dtype, requires_grad=True)
        return SimpleNamespace(input=x, args=(), kwargs={}, output_process_fn_grad=lambda y: y)

    fields = {
        "name": name, "variant_test_name": "", "op": function, "supports_autograd": True, "supports_gradgrad": True,
        "supports_forward_ad": False, "supports_fwgrad_bwgrad": False, "check_batched_grad": False,
        "check_batched_forward_grad": False, "gradcheck_nondet_tol": 0.0,
        "supported_backward_dtypes": lambda device: {torch.float64},
        "gradcheck_wrapper": lambda f, *args, **kwargs: f(*args, **kwargs),
        "sample_inputs": lambda device, dtype, requires_grad: (sample(shape, dtype) for shape in shapes),
    }  # fmt: skip
    return SimpleNamespace(**{**fields, **more})


def asked(tool, *operators, order=1, samples=9, dtype=torch.float64):
    return list(tool.questions(operators, dtype, order, samples, 60))


def test_small_samples_that_work_are_asked_about(tool):
    def refuses(x):
        raise ValueError("no")

    found = asked(tool, op(torch.sin, 3, (4, 5), 70, 0), op(refuses, 3), op(torch.cos, 2, supports_autograd=False))
    assert [one.name for one in found] == ["mine[0]", "mine[1]"]
    assert len(asked(tool, op(torch.sin, 3, 3, 3), samples=2)) == 2
    assert asked(tool, op(torch.sin, 3), dtype=torch.complex128) == []
    assert asked(tool, op(torch.sin, 3, supports_gradgrad=False), order=2) == []


@pytest.mark.parametrize("order", [1, 2])
def test_right_and_wrong_operators_get_the_verdict_of_torch(tool, capsys, order):
    operators = [op(torch.sin, 3), op(faulty.wrong_sign, 3), op(faulty.second_order_wrong, 3)]
    count, different, seconds = tool.compare(asked(tool, *operators, order=order), order, "float64")
    assert (count, different, capsys.readouterr().out) == (3, [], "")
    assert seconds["passing"] == 2  # one fault shows in gradients only, the other in second derivatives only
    assert all(seconds[way] > 0 for way in tool.WAYS)


def test_a_difference_is_told(tool, monkeypatch, capsys):
    monkeypatch.setattr(tool.opcheck, "gradcheck", lambda *args, **kwargs: True, raising=False)
    _, different, _ = tool.compare(asked(tool, op(faulty.wrong_sign, 3)), 1, "float64")
    assert different == [tool.Difference("mine", 1, "float64", "True", "False", "mine[0]")]
    assert capsys.readouterr().out == "mine[0], order 1, float64: opcheck True, torch False\n"


def test_differences_are_expected_if_they_are_listed_as_they_are(tool):
    known = [tool.Difference("mine", 1, "float64", "True", "False", reason="torch is wrong")]
    found = tool.Difference("mine", 1, "float64", "True", "False", "mine[7]")
    assert tool.unexpected([found], known, is_whole=True) == []
    for changed in ({"operator": "other"}, {"order": 2}, {"dtype": "complex128"}, {"torch": "refused: RuntimeError"}):
        other = replace(found, **changed)
        assert tool.unexpected([found, other], known, is_whole=True) == [f"not listed: {other}"]


def test_an_entry_that_no_sample_meets_is_told_only_if_all_were_asked_about(tool):
    known = [tool.Difference("mine", 1, "float64", "True", "False", reason="torch is wrong")]
    gone = "listed, but there is none: mine, order 1, float64: opcheck True, torch False"
    assert tool.unexpected([], known, is_whole=True) == [gone]
    assert tool.unexpected([], known, is_whole=False) == []


def test_the_list_gives_reasons_and_has_each_entry_once(tool):
    known = tool.known_differences()
    keys = [(one.operator, one.order, one.dtype, one.opcheck, one.torch) for one in known]
    assert keys
    assert len(keys) == len(set(keys))
    assert all(one.opcheck != one.torch and one.order in tool.ORDERS and one.dtype in tool.DTYPES for one in known)


def test_an_entry_without_a_reason_is_refused(tool, tmp_path):
    path = tmp_path / "known.toml"
    path.write_text(
        '[[difference]]\noperator = "f"\norders = [1]\ndtypes = ["float64"]\nopcheck = "True"\ntorch = "False"\n'
        'reason = " "\n'
    )
    with pytest.raises(ValueError, match="the entry for f gives no reason"):
        tool.known_differences(path)


def test_the_exit_status_tells_unexpected_differences(tool, monkeypatch, capsys):
    database = SimpleNamespace(op_db=[op(faulty.wrong_sign, 3)])
    monkeypatch.setitem(sys.modules, "torch.testing._internal.common_methods_invocations", database)
    monkeypatch.setattr(tool, "known_differences", list)
    assert tool.main([]) == 0
    monkeypatch.setattr(tool.opcheck, "gradcheck", lambda *args, **kwargs: True, raising=False)
    assert tool.main([]) == 1
    assert "not listed: mine[0], order 1, float64: opcheck True, torch False\n" in capsys.readouterr().out
    listed = tool.Difference("mine", 1, "float64", "True", "False", reason="torch is wrong")
    monkeypatch.setattr(tool, "known_differences", lambda: [listed])
    assert tool.main(["--all"]) == 0
    said = "all: 2 samples, 1 differ; CPU time of the 1 that pass in each way: "
    assert capsys.readouterr().out.splitlines()[-1].startswith(said)
    monkeypatch.setattr(tool, "known_differences", lambda: [listed, replace(listed, order=2)])
    assert tool.main(["--all"]) == 1


def test_an_exception_is_a_verdict_too(tool, monkeypatch):
    def raises(*args, **kwargs):
        raise TypeError("no")

    monkeypatch.setattr(tool.opcheck, "gradcheck", raises, raising=False)
    assert tool.answer("opcheck", 1, asked(tool, op(torch.sin, 3))[0])[0] == "refused: TypeError"
