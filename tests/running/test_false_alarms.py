"""No right operator is accused: what holds with one seed holds with others, and at samples derived from its own."""

from __future__ import annotations

import warnings
from pathlib import Path

import company
import pytest
import torch
from operators import corpus, habits, modules, old_style, orders

from opcheck.planning import Case, Selection, load, plan
from opcheck.running.runner import run
from opcheck.running.session import RunSession
from opcheck.spec.device_profile import profiles

SEEDS = (1, 2, 3, 4, 5)
NAMES = {
    *(f"operators.habits.{name}.apply" for name in habits.TWINS if name[0].isupper()),
    *(f"operators.habits.{name}" for name in habits.TWINS),
    *(f"operators.orders.{name}" for name in orders.TWINS),
    *(f"operators.old_style.{name}.apply" for name in old_style.RIGHT),
    *(f"operators.modules.{module.__name__}" for module in modules.TWINS),
    "operators.isolated.right_cumsum", "operators.objects.product", "operators.objects.ends",
}  # fmt: skip
GROUPS = ("operators.right.", "operators.scaled.right_")
RIGHT = [
    *(one for one in company.operators() if one.name in NAMES or one.name.startswith(GROUPS)),
    *(company.of_corpus(entry) for entry in corpus.RIGHT),
]
# torch takes the tangent of a layer norm in half a dozen steps, each rounded: 1.05 of what is allowed, with seed 3.
ROUNDED = "operators.scaled.right_layer_norm::low_precision_grad[cpu-bfloat16]"

# Right in one thread at a time: they share memory, or seed the generator of all threads. Thorough runs several at once.
NOT_AT_ONCE = {
    f"operators.corpus.functions.{name}"
    for name in ("on_shared_scratch_memory", "masked_by_captured_memory", "reseeded_on_each_call", "dropout_reseeded")
}

pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.filterwarnings("ignore::FutureWarning")]


def cases_of(operator: company.Operator, folder: Path, derive: str, seed: int = 0) -> list[Case]:
    path = folder / "spec.toml"
    path.write_text(str(operator.spec), encoding="utf-8")
    chosen = Selection(operators=(operator.name,), dtypes=operator.dtypes, derive=derive)
    return plan(load([path], company.SETTINGS), [profiles()["cpu"]], chosen, seed)


def accused(cases: list[Case], derive: str) -> dict[str, str]:
    """Return the reasons of the cases that fail, by id."""
    session = RunSession(company.SETTINGS.model_copy(update={"derive": derive}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = [run(case, session) for case in cases]
    return {one.id: one.reason for one in outcomes if one.outcome == "failed"}


@pytest.mark.nightly
@pytest.mark.parametrize("derive", ["standard", "thorough"])
@pytest.mark.parametrize("operator", RIGHT, ids=lambda operator: operator.name)
def test_no_right_operator_is_accused(operator, derive, tmp_path):
    # A spec this short claims more than some of them support: what is refused is refused with each seed.
    claimed_too_much = {*accused(cases_of(operator, tmp_path, "none"), "none"), ROUNDED}
    for seed in SEEDS:
        reasons = accused(cases_of(operator, tmp_path, derive, seed), derive)
        if operator.name in NOT_AT_ONCE:
            reasons = {name: why for name, why in reasons.items() if "of several threads at once" not in why}
        assert {name: why for name, why in reasons.items() if name not in claimed_too_much} == {}


@pytest.mark.skipif(torch.__version__ < "2.13", reason="torch.func gave zeros in inference mode")
def test_an_operator_that_refuses_hooks_on_saved_tensors_is_not_called_in_a_checkpoint(tmp_path):
    """torch.func refuses such hooks, which torch.utils.checkpoint sets."""
    (operator,) = (one for one in RIGHT if one.name.endswith(".func_grad_inside"))
    cases = [case for case in cases_of(operator, tmp_path, "thorough", 1) if case.check == "context"]
    assert cases
    assert accused(cases, "thorough") == {}
