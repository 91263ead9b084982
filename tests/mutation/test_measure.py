"""A condition is met by a sample that counts, or one is suggested; and a mutant is noticed exactly where it is met."""

from __future__ import annotations

import pytest

from opcheck.mutation.measure import Measured, Target, measure, score
from opcheck.mutation.mutant import drawn, prove
from opcheck.planning import load
from opcheck.running.own_process import Ended
from opcheck.running.session import RunSession
from opcheck.settings import Settings
from opcheck.spec.device_profile import DeviceProfile

CPU = DeviceProfile(name="cpu")


def target_of(tmp_path, text, derive="none", of="gradient"):
    path = tmp_path / "spec.toml"
    path.write_text(f"[[operator]]\n{text}\n")
    settings = Settings(modules=("torch", "operators"), derive=derive)
    session = RunSession(settings, derive=derive)
    (operator,) = load([path], settings)
    return Target(operator, CPU, session, derive, of)


def measured(tmp_path, text, derive="none", of="gradient"):
    return measure(target_of(tmp_path, text, derive, of))


def state(one: Measured, name: str) -> str:
    return next(answer.state for answer in one.answers if answer.condition == name)


def survivor(one: Measured, name: str) -> str:
    return next(answer.words for answer in one.those("survived") if answer.condition == name)


SCALED = "samples = [{ args = [{ shape = [2, 3] }], kwargs = { flip = true } }]"
SIN = 'name = "torch.sin"\nsamples = [{ args = [{ shape = [3, 4] }] }]'


def test_a_survivor_says_what_to_add(tmp_path):
    one = measured(tmp_path, SIN)
    assert state(one, "rank above 3") == "survived"
    assert survivor(one, "more than 256 elements") == (
        "a gradient wrong for more than 256 elements would pass: add { args = [{ shape = [17, 18] }] }"
    )
    assert state(one, "a last dim that is not a multiple of 4") == "survived"
    assert state(one, "a repeated index") == "unreachable"
    assert state(one, "one input alone requires grad") == "unreachable"
    assert {answer.by for answer in one.those("met")} == {"backward", "low_precision_grad"}


def test_derived_samples_count_where_they_are_wanted(tmp_path):
    written_only, standard = measured(tmp_path, SIN), measured(tmp_path, SIN, "standard")
    assert state(standard, "a dim of 1") == "met"
    assert state(standard, "more than 256 elements") == "met"
    assert score([written_only]) < score([standard])


def test_the_samples_that_are_said_kill_all_survivors(tmp_path):
    one = measured(tmp_path, SIN)
    added = ", ".join(answer.add for answer in one.those("survived"))
    again = measured(tmp_path, f"{SIN[:-1]}, {added}]")
    assert again.those("survived") == []
    assert score([again]) == 1


def test_what_to_add_is_for_the_dtypes_of_the_sample(tmp_path):
    text = 'samples = [{ args = ["i,i->i", [{ shape = [2] }, { shape = [2] }]], dtypes = ["float64"] }]'
    one = measured(tmp_path, f'name = "torch.einsum"\n{text}')
    assert survivor(one, "a dim of 1").endswith('{ shape = [1] }]], dtypes = ["float64"] }')


def test_a_disclaimed_check_lets_its_condition_survive(tmp_path):
    text = 'name = "torch.aminmax"\noutputs = {}\nsamples = [{ args = [{ shape = [3] }] }]\n'
    claimed = measured(tmp_path, text)
    disclaimed = measured(tmp_path, f"{text}supports = {{ undefined_grad = false }}")
    assert state(claimed, "one output alone") == "met"
    assert survivor(disclaimed, "one output alone").endswith(
        "it takes the check undefined_grad, which does not run for it"
    )


@pytest.mark.parametrize(("when", "count"), [("", 0), (', engine = "torch"', 1)])
def test_what_is_known_to_fail_in_other_runs_is_judged_in_this_one(tmp_path, when, count):
    expect = f'when = {{ check = "backward"{when} }}\noutcome = "fail"\nreason = "as an example"'
    assert len([*target_of(tmp_path, f"{SIN}\n[[operator.expect]]\n{expect}").written()]) == count


def test_bounds_are_the_authors_word(tmp_path):
    one = measured(tmp_path, 'name = "torch.log"\nsamples = [{ args = [{ shape = [3], low = 0.5 }] }]')
    assert state(one, "an element that is 0") == "unreachable"
    assert state(one, "an element beyond 10") == "unreachable"


def test_where_the_operator_has_no_derivative_nothing_is_suggested(tmp_path):
    one = measured(tmp_path, 'name = "torch.abs"\nsamples = [{ args = [{ shape = [3] }] }]')
    assert state(one, "an element that is 0") == "unreachable"  # a kink


def test_an_operator_without_gradient_has_no_conditions(tmp_path):
    one = measured(tmp_path, f"{SIN}\nsupports = {{ backward = false }}")
    assert one.answers == ()
    assert score([one]) == 1


PROVED = {
    "sin": 'name = "torch.sin"\nsamples = [{ args = [{ shape = [3, 4] }] }, { args = [{ shape = [0] }] }]',
    "mul": 'name = "torch.mul"\nsamples = [{ args = [{ shape = [2, 3] }, { shape = [3] }] }]',
    "matmul": 'name = "torch.matmul"\n'
    'samples = [{ args = [{ shape = [2, 4], memory = "noncontiguous" }, { shape = [4] }] }]',
    "index_select": 'name = "torch.index_select"\n'
    'samples = [{ args = [{ shape = [5] }, 0, { values = [0, 2, 0], dtype = "int64" }] }]',
    "sum": 'name = "torch.sum"\nsamples = [{ args = [{ shape = [2, 3] }], kwargs = { dim = 1 } }]',
    "scaled": 'name = "operators.varied.scaled"\n'
    'samples = [{ args = [{ shape = [2, 3] }], kwargs = { factor = 3.0 } }]',
    "elu": 'name = "torch.nn.functional.elu"\nsamples = [{ args = [{ shape = [17] }] }]\n'
    'dtypes = { forward = ["floating"] }',
}  # fmt: skip


BY_NIGHT = {"sum", "scaled", "elu"}


@pytest.mark.parametrize(
    ("name", "of"),
    [
        *(pytest.param(name, "gradient", marks=[pytest.mark.nightly] * (name in BY_NIGHT)) for name in PROVED),
        ("mul", "tangent"),
        pytest.param("mul", "second derivative", marks=pytest.mark.nightly),
    ],
)
def test_every_mutant_is_noticed_exactly_where_its_condition_is_met(tmp_path, name, of):
    target = target_of(tmp_path, PROVED[name], of=of)
    tried = [answer for _, answer in drawn([measure(target)], 0)]
    proofs = [prove(target, answer) for answer in tried]
    assert [proof for proof in proofs if proof is None or not proof.agrees] == []
    assert {answer.state for answer in tried} == {"met", "survived"}


DRAWN = 'name = "torch.Tensor.exponential_"\ninplace = true\nreseed = true\nsupports = { out = false }\n'
DRAWN += 'dtypes = { forward = ["floating"] }\nsamples = [{ args = [{ shape = [3, 2] }] }]'


@pytest.mark.nightly
@pytest.mark.parametrize("spec", [SIN, DRAWN], ids=["sin", "exponential_"])
def test_mutants_are_noticed_at_derived_samples(tmp_path, spec):
    target = target_of(tmp_path, spec, "standard")
    proofs = [prove(target, answer) for _, answer in drawn([measure(target)], 0)]
    assert [proof for proof in proofs if not proof.agrees] == []
    assert any(proof.met for proof in proofs)


def test_the_same_mutants_are_drawn_each_time(tmp_path):
    one = measured(tmp_path, SIN)
    first, second, other = drawn([one], 0), drawn([one], 0), drawn([one], 1)
    assert first == second
    assert sorted(str(own) for own in first) == sorted(str(own) for own in other)
    assert first != other


def test_no_mutant_is_made_of_an_operator_that_does_not_pass(tmp_path):
    right, wrong = (
        target_of(tmp_path, f'name = "operators.varied.{name}"\n{SCALED}') for name in ("scaled", "wrong_flipped")
    )
    (_, answer), *_ = drawn([measure(right)], 0)
    assert prove(wrong, answer) is None
    assert measure(wrong) == Ended("backward fails without a mutation, at the sample 0: mend this first")


def test_second_derivatives_are_looked_at_at_written_samples_alone(tmp_path):
    first, second = (measured(tmp_path, SIN, "standard", of) for of in ("tangent", "second derivative"))
    assert state(first, "a dim of 1") == "met"
    assert survivor(second, "a dim of 1").startswith("a second derivative wrong for a dim of 1 would pass: add {")
    assert not any(not answer.is_of_samples for answer in (*first.answers, *second.answers))
