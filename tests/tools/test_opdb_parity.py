"""How the library compares with PyTorch's operator database: what covers an entry, and whose claim is weaker."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import opcheck
from opcheck.running.session import RunSession
from opcheck.settings import Settings

tool = runpy.run_path(str(Path(__file__).resolve().parent.parent.parent / "tools" / "opdb_parity.py"))

SPECS = """
[[operator]]
name     = "torch.div"
variants = ["method", "inplace"]
dtypes   = { forward = ["floating", "int64"] }
supports = { forward_ad = false, batched_grad = false }
samples  = [{ args = [{ shape = [2] }, 2.0] }, { args = [{ shape = [2] }, 2.0], kwargs = { rounding_mode = "floor" } }]

[[operator]]
name    = "torch.div"
variant = "whole"
dtypes  = { forward = ["complex"] }
samples = [{ args = [{ shape = [2] }, 2.0] }]
"""


@pytest.fixture
def named(tmp_path):
    (tmp_path / "specs.toml").write_text(SPECS, encoding="utf-8")
    return tool["by_path"](opcheck.load(tmp_path))


def entry(name="div", variant="", **claims):
    full = f"{name}.{variant}" if variant else name
    dtypes = claims.pop("dtypes", {torch.float64, torch.complex32})
    usual = {
        "supports_forward_ad": False, "supports_gradgrad": True, "supports_fwgrad_bwgrad": False,
        "check_batched_grad": False, "check_batched_forward_grad": False, "inplace_variant": None, "decorators": (),
    }  # fmt: skip
    return SimpleNamespace(
        name=name, variant_test_name=variant, full_name=full, supported_dtypes=lambda device: dtypes,
        supported_backward_dtypes=lambda device: dtypes, **(usual | claims),
    )  # fmt: skip


def ids(operators):
    return [operator.id for operator in operators]


class TestCovering:
    def test_a_spec_covers_the_entry_of_its_name(self, named):
        assert ids(tool["covering"](entry(), named)) == ["torch.div", "torch.div[whole]"]
        assert tool["covering"](entry("mul"), named) == []

    def test_an_entry_with_a_keyword_is_covered_by_a_sample_with_that_keyword_only(self, named):
        assert ids(tool["covering"](entry("div", "floor_rounding"), named)) == ["torch.div"]
        assert ids(tool["covering"](entry("div", "no_rounding_mode"), named)) == ["torch.div", "torch.div[whole]"]
        assert tool["covering"](entry("div", "trunc_rounding"), named) == []

    def test_a_method_or_in_place_variant_is_a_name_of_its_own(self, named):
        assert ids(named["torch.Tensor.div_"]) == ["torch.div"]

    def test_a_variant_that_the_tool_does_not_know_is_no_guess(self, named):
        with pytest.raises(KeyError, match="mul"):
            tool["covering"](entry("mul", "sideways"), named)


def verdicts(specs, **claims):
    return {one.aspect: one.verdict for one in tool["compare"](entry(**claims), specs)}


class TestComparison:
    def test_claims_are_equal_weaker_or_stronger(self, named):
        plain, _ = named["torch.div"]
        weaker = verdicts([plain], dtypes={torch.float64, torch.complex128}, supports_forward_ad=True)
        assert (weaker["forward"], weaker["backward"], weaker["forward_ad"]) == ("weaker", "weaker", "weaker")
        assert (weaker["second_order"], weaker["inplace"], weaker["batched_grad"]) == ("equal", "stronger", "equal")

    def test_several_specs_claim_together(self, named):
        both = verdicts(named["torch.div"], dtypes={torch.float64, torch.complex128}, supports_forward_ad=True)
        assert (both["forward"], both["backward"], both["forward_ad"]) == ("stronger", "stronger", "equal")

    def test_a_dtype_that_opcheck_has_no_claims_about_is_left_out(self, named):
        plain, _ = named["torch.div"]
        (forward, *_) = tool["compare"](entry(dtypes={torch.complex32}), [plain])
        assert not forward.theirs

    @pytest.mark.parametrize(
        ("dtypes", "verdict"), [(None, "equal"), ((torch.float64,), "equal"), ((torch.half,), "weaker")]
    )
    def test_what_op_db_does_not_test_itself_is_no_claim(self, named, dtypes, verdict):
        def skip():
            """Stand for a decorator of torch's tests."""

        off = SimpleNamespace(
            cls_name="TestBwdGradients", test_name="test_fn_grad", device_type=None, dtypes=dtypes, decorators=[skip]
        )
        skip.__qualname__ = "skip.<locals>.decorator"
        plain, _ = named["torch.div"]
        assert verdicts([plain], check_batched_grad=True, decorators=(off,))["batched_grad"] == verdict


def sampled(name, op, *shapes):
    def sample_inputs(device, dtype, requires_grad):
        for shape in shapes:
            x = torch.rand(shape, dtype=dtype, device=device, requires_grad=requires_grad)
            yield SimpleNamespace(input=x, args=(), kwargs={})

    return SimpleNamespace(
        name=name, op=op, inplace_variant=None, sample_inputs=sample_inputs,
        supported_backward_dtypes=lambda device: {torch.float64},
    )  # fmt: skip


def test_conditions_that_only_op_db_meets(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text('[[operator]]\nname = "torch.sin"\nsamples = [{ args = [{ shape = [2, 3] }] }]\n', encoding="utf-8")
    (sin,) = opcheck.load(path)
    entries = [sampled("sin", torch.sin, (2, 3), (), (20, 20)), sampled("sin", torch.Tensor.svd, (2,))]
    got = tool["compare_conditions"]("torch.sin", [sin], entries, RunSession(Settings()), "none")
    assert got.missing == ["more than 16 elements", "more than 256 elements", "more than 32 elements", "rank 0"]
    assert "a last dim that is not a multiple of 4" in got.ours & got.theirs


def test_formulas_of_an_entry_are_those_of_both_orders_and_among_all_of_torch():
    assert tool["formulas_of"](sampled("sin", torch.sin, (2,))) == {"SinBackward", "CosBackward", "MulBackward"}
    every = tool["universe"]()
    assert {"SinBackward", "ForeachAddBackward0List", "CudnnRnnBackward"} <= every
    assert not any("::" in name or name[-1].isdigit() for name in every)


@pytest.mark.nightly
def test_the_shipped_library_covers_nearly_all_of_op_db(capsys):
    assert tool["main"](["--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    entries, claims = result["entries"], result["claims"]
    assert entries["covered"] + len(entries["missing"]) == entries["total"] > 500
    assert "clone" not in entries["missing"]
    assert entries["covered"] >= 518
    assert 480 <= result["formulas"]["ours"] <= result["formulas"]["universe"]
    assert {one["aspect"] for one in claims["weaker"]} <= {"inplace"}
