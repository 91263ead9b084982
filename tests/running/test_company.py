"""A verdict is the same alone and in any company: of other checks, of other samples, in any order.

By day some operators of the collections in double precision, and a few draws for each. By night all of them, each
check alone, two orders of checks and samples, and twenty pairs.
"""

import random
from dataclasses import replace

import company
import pytest

OPERATORS = company.operators()

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning"),
]  # fmt: skip


SAMPLED = (
    "habits.ReusesABuffer", "habits.ZeroesItsInput", "spoiling.no_gradients_from_now_on",
    "spoiling.spoils_what_it_saved", "faulty.crashes_on_undefined_cotangent",
)  # fmt: skip
"""Those that spoil their arguments or their graph, and one that does not."""


def differences(operator, folder, orders, pairs):
    cases = operator.cases(folder)
    assert cases
    return company.differences(cases, orders, pairs, random.Random(operator.name))


def each(operators):
    return pytest.mark.parametrize("operator", operators, ids=lambda operator: operator.name)


@each([one for one in OPERATORS if any(name in one.name for name in SAMPLED)])
def test_a_verdict_is_the_same_in_some_company(operator, tmp_path):
    assert differences(replace(operator, dtypes=("float64",)), tmp_path, orders=1, pairs=3) == []


@pytest.mark.nightly
@each(OPERATORS)
def test_a_verdict_is_the_same_in_any_company(operator, tmp_path):
    assert differences(operator, tmp_path, orders=2, pairs=20) == []


BLOCKED = "corpus.functions.random_value_of_sparse"
"""The one that is tested by day: its calls differ by themselves."""


@each([pytest.param(one, marks=() if one.name.endswith(BLOCKED) else pytest.mark.nightly) for one in OPERATORS])
def test_what_blocks_a_case_does_not_pass(operator, tmp_path):
    assert company.blocked_by_what_passes(operator.cases(tmp_path)) == []


REMEMBERING = [
    pytest.param(name, marks=() if "CachesByShape" in name else pytest.mark.nightly) for name in company.REMEMBERING
]
"""By night, but for one."""


@pytest.mark.parametrize("name", REMEMBERING)
def test_what_remembers_earlier_calls_fails_something_in_any_order(name, tmp_path):
    cases = company.remembering(name).cases(tmp_path)
    draw = random.Random(name)
    for order in (cases, draw.sample(cases, len(cases))):
        assert "failed" in company.outcomes(company.verdicts(order)).values()


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_a_backward_pass_that_spoils_what_was_saved_fails_alone_and_in_a_full_run(outcomes, dtype):
    spec = next(one.spec for one in OPERATORS if one.name.endswith("spoils_what_it_saved"))
    whole, alone = outcomes(spec, dtypes=(dtype,)), outcomes(spec, checks=("nondeterminism",), dtypes=(dtype,))
    (id_,) = alone
    assert (whole[id_].outcome, whole[id_].reason) == (alone[id_].outcome, alone[id_].reason)
    assert alone[id_].outcome == "failed"
    assert alone[id_].reason.startswith("nondeterminism")
