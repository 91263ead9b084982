"""A draft takes back what an operator refuses, and nothing else."""

from __future__ import annotations

import pytest
import tomli

from opcheck.draft.draft import NO_GRAPH, Accepted, Draft, comment, what_happened
from opcheck.spec.dtypes import grouped

SAMPLE = {"args": [{"shape": [3]}]}


def tried(*, backward="", **keys):
    """Return what a call has shown. backward: why there is no derivative with respect to its argument."""
    return Accepted(SAMPLE, without_backward={0: backward}, **keys)


def draft(*tries, **keys):
    return Draft.of("mylib.f", tries or [tried()], **keys)


def record(check="backward", outcome="failed", reason="backward: not implemented", dtype="float64", **fields):
    return {"check": check, "outcome": outcome, "reason": reason, "dtype": dtype, "fields": fields}


def lacks(key, **keys):
    return record(remedy={"key": f"supports.{key}", "write": False}, **keys)


class TestRevise:
    def test_a_refusal_becomes_a_disclaimer_with_its_reason(self):
        own = draft()
        assert own.revise(lacks("forward_ad", reason="forward_ad: RuntimeError: no jvp defined"))
        assert own.supports == {"forward_ad": (False, "no jvp defined")}
        assert not own.revise(lacks("forward_ad", reason="forward_ad: RuntimeError: no jvp defined"))

    def test_a_wrong_number_does_not(self):
        own = draft()
        records = record(), record("purity"), record("linearity", outcome="blocked")
        assert not any(map(own.revise, records))
        assert own.supports == {}

    @pytest.mark.parametrize("key", ["purity", "saved", "aliasing", "context", "outputs"])
    def test_side_effects_are_left_to_a_person(self, key):
        own = draft()
        assert not own.revise(lacks(key))
        assert own.supports == {}

    def test_gradients_that_do_not_fit_are_no_refusal(self):
        reason = "backward: backward raised RuntimeError: Function F returned an invalid gradient at index 1"
        assert not draft().revise(lacks("backward", reason=reason))

    def test_what_works_after_all_is_claimed_again_and_stays(self):
        own = draft()
        own.revise(lacks("vmap"))
        assert own.revise(record("unsupported", remedy={"key": "supports.vmap", "write": True}))
        assert own.supports == {}
        assert not own.revise(lacks("vmap"))

    def test_a_disclaimed_feature_with_wrong_numbers_is_claimed_again_to_fail(self):
        own = draft()
        own.revise(lacks("backward"))
        assert own.revise(record("unsupported", feature="backward"))
        assert (own.supports, own.settled) == ({}, {"backward"})

    def test_dtypes_that_are_refused_are_left_out(self):
        own = draft()
        assert own.dtypes() == {}
        refusals = [
            record("dtypes", remedy={"key": "dtypes.forward", "write": f"-{name}"})
            for name in ("complex64", "complex128")
        ]
        refusals += [record("dtypes", remedy={"key": "dtypes.backward", "write": "-float16"})]
        assert all(map(own.revise, refusals))
        assert own.dtypes() == {"forward": ["floating"], "backward": ["bfloat16", "float32", "float64"]}

    def test_dtypes_without_a_backward_pass_are_left_out_of_it(self):
        own = draft()
        reason = "dtypes: no sample tests the claim about backward: no output requires grad: there is no backward pass"
        remedy = {"key": "dtypes.backward", "write": "-complex128"}
        assert own.revise(record("dtypes", "error", reason, "complex128", remedy=remedy))
        assert own.dtypes() == {"backward": ["complex64", "floating"]}

    def test_dtypes_whose_values_are_too_coarse_for_differences_are_left_out(self):
        own, why = draft(), "backward: at least some values have only float32 precision"
        remedy = {"key": "dtypes.forward", "write": "-float64"}
        assert own.revise(record(outcome="inconclusive", reason=why, remedy=remedy))
        assert own.dtypes()["forward"] == ["float16", "bfloat16", "float32", "complex"]
        assert "# No forward pass in float64: at least some values have only float32 precision\n" in own.toml()

    def test_that_a_higher_derivative_is_too_coarse_says_nothing_about_a_dtype(self):
        own, remedy = draft(), {"key": "dtypes.forward", "write": "-float64"}
        assert not own.revise({**record("rev_over_rev", remedy=remedy), "outcome": "inconclusive"})
        assert own.revise({**record("backward", remedy=remedy), "outcome": "inconclusive"})

    def test_each_reason_of_dtypes_that_are_left_out_has_a_comment(self):
        own = draft()
        for name, why in (
            ("float64", "coarse"),
            ("complex64", "KeyError: 'complex64'"),
            ("complex128", "KeyError: 'complex128'"),
        ):
            own.revise(record(reason=f"dtypes: {why}", remedy={"key": "dtypes.forward", "write": f"-{name}"}))
        assert "# No forward pass in float64: coarse\n" in own.toml()
        assert "# No forward pass in complex64, complex128: KeyError: 'complex64'\n" in own.toml()

    def test_dtypes_in_which_a_module_cannot_be_constructed_are_left_out(self):
        own = draft()
        reason = 'draft.toml:2:8: "mylib.L" cannot be constructed: ValueError: no complex bins'
        records = [record(check, "error", reason, "complex64") for check in ("backward", "dtypes")]
        assert [own.revise(one) for one in records] == [False, True]
        assert own.refused == {"forward": {"complex64": "ValueError: no complex bins"}, "backward": {}}
        assert not own.revise(record("dtypes", "error", "time-out", "float64"))

    def test_dtypes_that_must_be_listed_are_added(self):
        own = draft()
        assert own.revise(record("dtypes", remedy={"key": "dtypes.forward", "write": "int64"}))
        assert own.dtypes() == {"forward": ["int64", "floating", "complex"]}


class TestFound:
    def test_without_a_graph_there_is_no_backward_pass(self):
        own = draft(tried(backward=NO_GRAPH))
        assert own.supports.keys() == {"backward", "forward_ad"}
        assert own.backward is False

    def test_arguments_without_a_derivative_are_named(self):
        own = draft(Accepted(SAMPLE, without_backward={0: "", 1: "not implemented"}))
        assert own.supports == {"backward": ([0], "not implemented")}
        assert own.backward == [0]

    def test_what_one_sample_takes_is_not_refused(self):
        some = Accepted(SAMPLE, without_backward={0: "", 1: "not implemented"})
        assert draft(some, Accepted(SAMPLE, without_backward={0: "", 1: ""})).supports == {}

    def test_what_has_no_out_does_not_claim_it(self):
        assert draft(out=False).supports == {"out": (False, "no such parameter")}


@pytest.mark.parametrize(
    ("reason", "what"),
    [
        ("forward_ad: no jvp", "no jvp"),
        ("vmap: vmap raised RuntimeError: no rule", "RuntimeError: no rule"),
        ("backward raised IndexError: not supported", "IndexError: not supported"),
        ("dtypes: forward is claimed for int8, but the operator refuses the sample: E: x", "E: x"),
        ("dtypes: backward is claimed for int8, but is refused: E: x", "E: x"),
    ],
)
def test_a_comment_says_what_happened(reason, what):
    assert what_happened(reason) == what


def test_groups_stand_for_all_of_their_members():
    assert grouped(["float16", "bfloat16", "float32", "float64", "int8"]) == ["int8", "floating"]


def test_samples_whose_gradients_show_nothing_are_named():
    own = draft(tried(is_conclusive=False), tried(is_conclusive=False))
    assert [*own.remarks()] == [
        "has gradients of 0, or infinite ones, at these samples, which show little: give others by --args"
    ]
    assert not [*draft(tried(is_conclusive=False), tried()).remarks()]


class TestWritten:
    def test_each_disclaimer_has_a_comment(self):
        own = draft(tried(random=True), variants=["method"])
        own.revise(lacks("forward_ad", reason="forward_ad: no\njvp"))
        own.revise(record("dtypes", reason="x: refused", remedy={"key": "dtypes.forward", "write": "-complex64"}))
        text = own.toml()
        assert "forward_ad = false  # no jvp\n" in text
        assert "# No forward pass in complex64: refused\n" in text
        (operator,) = tomli.loads(text)["operator"]
        assert operator == {
            "name": "mylib.f", "variants": ["method"], "reseed": True, "samples": [SAMPLE],
            "supports": {"forward_ad": False}, "dtypes": {"forward": ["complex128", "floating"]},
        }  # fmt: skip

    def test_a_module_says_how_it_is_constructed(self):
        drafts = [draft(module={"args": [3]}), draft(module={})]
        operators = tomli.loads("".join(own.toml() for own in drafts))["operator"]
        assert [operator["module"] for operator in operators] == [{"args": [3]}, {}]

    def test_a_comment_is_one_line_whatever_an_operator_says(self):
        assert comment("a\x1b[1m\n# b\r\n[[operator]]\x7f") == "a [1m # b [[operator]]"
        assert len(comment("word " * 100)) <= 100
        assert len(comment("w" * 1000)) <= 100
        assert comment("w" * 1000).startswith("www")
