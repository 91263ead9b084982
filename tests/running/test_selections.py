"""What else is selected changes no outcome, no reason and no message."""

import random

import pytest

from opcheck.planning.selection import Selection

pytestmark = pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")

OPERATORS = (
    "torch.sin",
    "operators.right.square",
    "operators.awkward.coarse_gradient",
    "operators.awkward.depends_on_grad_mode",
    "operators.awkward.wrong_abs",
    "operators.faulty.forgets_tangent",
    "operators.faulty.missing_conjugate",
    "operators.faulty.one_wrong_entry",
    "operators.faulty.second_order_lost",
    "operators.faulty.wrong_jvp",
    "operators.faulty.wrong_sign",
)
SPEC = "".join(
    f'[[operator]]\nname = "{name}"\norders = ["rev_over_fwd", "scalarized_second_order"]\n'
    "samples = [{ args = [{ shape = [3], low = 0.5 }] }]\n"
    for name in OPERATORS
)


CHECKS = sorted(kind.name for kind in Selection().kinds())


@pytest.fixture
def told(outcomes, tmp_path):
    """Return a function that gives outcome, reason and message of the cases that are selected."""

    def run(**selection):
        found = outcomes(SPEC, **selection)
        return {
            name: (outcome.outcome, outcome.reason, outcome.message.replace(str(tmp_path), ""))
            for name, outcome in found.items()
        }

    return run


@pytest.fixture(scope="module")
def known():
    """What is told of each case where all of an operator are selected, by operator."""
    return {}


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(k, marks=pytest.mark.nightly) for k in range(3, 100))])
def test_a_random_selection_has_the_outcomes_of_a_whole_run(told, known, seed):
    draw = random.Random(seed)
    some = draw.sample(OPERATORS, 2)
    for name in some:
        if name not in known:
            known[name] = told(operators=(name,), derive="standard")
    checks = draw.sample(CHECKS, draw.randint(1, 6))
    found = told(operators=tuple(some), checks=tuple(checks))
    whole = {id_: case for name in some for id_, case in known[name].items()}
    assert found == {id_: case for id_, case in whole.items() if id_.split("::")[1].split("[")[0] in checks}
    assert found or not any(f"::{check}[" in id_ for check in checks for id_ in whole)
