"""Each parameter of torch's two functions is reachable from a spec, and from the command line where docs say so.

What is then handed to torch is tested in tests/derivatives/test_by_torch.py.
"""

from types import SimpleNamespace

import pytest

from opcheck.derivatives import by_torch
from opcheck.running.session import RunSession
from opcheck.settings import Settings

ONE = "args = [{ shape = [2] }]"


@pytest.fixture
def requests(outcomes, monkeypatch):
    """What torch is asked for a spec."""

    def make(
        keys="", sample=ONE, overrides=None, checks=("backward",), dtype="float64", engine="torch",
        name="operators.right.square",
    ):  # fmt: skip
        made = []

        def record(check, function, leaves, numbers, **settings):
            made.append(SimpleNamespace(check=check, numbers=numbers, **settings))

        monkeypatch.setattr(by_torch, "check_claim", record)
        text = f'[[operator]]\nname = "{name}"\n{keys}\nsamples = [{{ {sample} }}]\n'
        outcomes(text, overrides={"engine": engine, **(overrides or {})}, checks=checks, dtypes=(dtype,))
        return made

    return make


@pytest.mark.parametrize(
    ("name", "key"), [("eps", "eps"), ("atol", "atol"), ("rtol", "rtol"), ("nondeterminism", "nondeterminism")]
)
def test_numbers_come_from_the_operator_its_dtypes_and_its_checks_and_the_command_line_wins(requests, name, key):
    def value(keys, **more):
        (request,) = requests(keys, **more)
        return getattr(request.numbers, name)

    assert value(f"tolerance = {{ {key} = 0.5 }}") == 0.5
    assert value(f"tolerance = {{ {key} = 0.5, dtype.float64.{key} = 0.25 }}") == 0.25
    assert value(f"tolerance = {{ {key} = 0.5, dtype.complex128.{key} = 0.25 }}") == 0.5
    by_check = f"tolerance = {{ {key} = 0.5, dtype.float64.{key} = 0.25, check.backward.{key} = 0.125 }}"
    assert value(by_check) == 0.125
    assert value(by_check, overrides={name: 0.0625}) == 0.0625


def test_without_a_word_the_numbers_are_those_of_torch(requests):
    (request,) = requests()
    numbers = request.numbers
    assert (numbers.eps, numbers.atol, numbers.rtol, numbers.nondeterminism) == (1e-6, 1e-5, 1e-3, 0.0)


@pytest.mark.parametrize("name", ["fast_mode", "raise_exception"])
@pytest.mark.parametrize("value", [True, False])
def test_settings_of_gradcheck_come_from_the_spec_and_the_command_line(requests, name, value):
    (request,) = requests(f"gradcheck = {{ {name} = {str(value).lower()} }}")
    assert getattr(request, name) is value
    (request,) = requests(overrides={name: value})
    assert getattr(request, name) is value


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("", (False, True)),
        ("gradcheck = { gen_non_contig_grad_outputs = true }", (True,)),
        ("gradcheck = { gen_non_contig_grad_outputs = false }", (False,)),
    ],
)
def test_generated_cotangents_follow_the_spec(requests, keys, expected):
    assert requests(keys)[0].non_contiguous == expected


def test_a_request_does_not_depend_on_what_else_is_selected(requests):
    (alone,) = requests(checks=("backward",))
    first, *others = requests(checks=("backward", "batched_grad", "grad_dtypes", "rev_over_rev"))
    assert len(others) == 3
    for request in (first, *others):
        assert vars(request) == {**vars(alone), "check": request.check}


def test_grad_outputs_of_a_sample_become_cotangents(requests):
    (request,) = requests(
        sample="args = [{ shape = [2] }], grad_outputs = [{ values = [3.0, 4.0] }]", checks=("rev_over_rev",)
    )
    assert [v.tolist() for v in request.grad_outputs] == [[3.0, 4.0]]
    assert all(v.requires_grad for v in request.grad_outputs)


# which claims torch's functions test when they are not chosen

JACOBIANS = ("backward", "forward_ad", "rev_over_rev", "fwd_over_rev", "rev_over_fwd", "scalarized_second_order")
BESIDE = ("batched_grad", "batched_forward_grad", "undefined_grad", "grad_dtypes", "nondeterminism")


def test_fast_mode_is_torchs(requests):
    (request,) = requests("gradcheck = { fast_mode = true }", engine="batched")
    assert (request.check, request.fast_mode) == ("backward", True)


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
def test_sparse_leaves_are_not_torchs(requests, layout):
    sample = f'args = [{{ shape = [3, 3], layout = "{layout}" }}]'
    checks = ("masked", *JACOBIANS, "batched_forward_grad")
    assert requests("masked = true", sample, engine="batched", checks=checks, name="torch.Tensor.to_dense") == []


def test_all_about_mkldnn_leaves_is_torchs(requests):
    sample = 'args = [{ shape = [3, 3], layout = "mkldnn" }]'
    checks = ("backward", "batched_grad", "undefined_grad")
    more = {"engine": "batched", "dtype": "float32", "name": "torch.Tensor.to_dense"}
    assert {request.check for request in requests('dtypes = ["float32"]', sample, checks=checks, **more)} == {*checks}


def test_all_else_is_not(requests):
    assert requests(engine="batched", checks=(*JACOBIANS, *BESIDE)) == []


def test_what_torch_leaves_out_in_fast_mode_is_tested_all_the_same(outcomes):
    text = """[[operator]]
name = "operators.faulty.wrong_for_noncontiguous_cotangents"
gradcheck = { fast_mode = true }
samples = [{ args = [{ shape = [2, 3] }] }]
"""
    wrong, right = outcomes(text, checks=("backward", "nondeterminism"), dtypes=("float64",)).values()
    assert (wrong.outcome, right.outcome) == ("failed", "passed")
    assert "depends on the memory of the cotangent" in wrong.message


@pytest.mark.parametrize(
    ("name", "sample", "keys", "dtype", "outcome"),
    [
        ("operators.right.square", ONE, "gradcheck = { fast_mode = true }", "float64", "passed"),
        (
            "torch.Tensor.to_dense", 'args = [{ shape = [3, 3], layout = "mkldnn" }]', 'dtypes = ["float32"]',
            "float32", "skipped",
        ),
    ],
    ids=["fast mode", "mkldnn"],
)  # fmt: skip
def test_where_torch_cannot_be_asked_own_evidence_decides_if_there_is_any(
    outcomes, monkeypatch, name, sample, keys, dtype, outcome
):
    def refuse(*_, **__):
        raise by_torch.CannotAsk("it cannot")

    monkeypatch.setattr(by_torch, "check_claim", refuse)
    text = f'[[operator]]\nname = "{name}"\n{keys}\nsamples = [{{ {sample} }}]\n'
    (found,) = outcomes(text, checks=("backward",), dtypes=(dtype,)).values()
    assert found.outcome == outcome


@pytest.mark.parametrize("key", ["masked", "check_sparse_nnz"])
@pytest.mark.parametrize("value", [True, False])
def test_masked_and_its_deprecated_alias_set_the_semantics(requests, key, value):
    assert requests(f"{key} = {str(value).lower()}")[0].masked is value


@pytest.mark.parametrize(
    ("claim", "check"),
    [
        ("backward", "backward"),
        ("forward_ad", "forward_ad"),
        ("batched_grad", "batched_grad"),
        ("batched_forward_grad", "batched_forward_grad"),
        ("undefined_grad", "undefined_grad"),
        ("second_order", "rev_over_rev"),
        ("fwd_over_rev", "fwd_over_rev"),
    ],
)
def test_a_disclaimed_feature_is_not_asked_for(requests, claim, check):
    assert len(requests(checks=(check,))) == 1
    assert requests(f"supports = {{ {claim} = false }}", checks=(check,)) == []


def test_settings_default_to_batched_evidence_and_know_the_reference_engine():
    assert RunSession(Settings()).engine == "batched"
    assert RunSession(Settings(engine="torch")).engine == "torch"
