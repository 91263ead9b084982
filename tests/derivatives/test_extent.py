"""A whole Jacobian is computed only where it fits into the memory that is allowed."""

import pytest
from operators.asking import Request, check_claim
from operators.closed_forms import leaf

from opcheck.derivatives import Coverage, TooLarge
from opcheck.derivatives.extent import MATRICES
from opcheck.derivatives.tolerances import DOUBLE

CHECKS = ("backward", "forward_ad", "batched_grad", "batched_forward_grad")


def ask(check, size, coverage):
    request = Request(lambda x: (x.sin(),), (leaf(size),), DOUBLE, coverage=coverage)
    return check_claim(check, request)


@pytest.mark.parametrize("check", [*CHECKS, "rev_over_rev", "fwd_over_rev"])
def test_in_full_a_large_jacobian_is_refused_before_it_is_allocated(check):
    with pytest.raises(
        TooLarge, match=r"batch_memory of \[tool.opcheck\].*smaller, or choose jacobian = \"projected\""
    ):
        ask(check, 4096, Coverage("full"))


@pytest.mark.parametrize("check", CHECKS)
def test_the_budget_is_for_all_matrices_that_are_held_at_a_time(check):
    needed = 8 * MATRICES * 10 * 10
    assert ask(check, 10, Coverage("full", memory=needed)) is None
    with pytest.raises(TooLarge, match=r"shape \(10, 10\) takes about 1 MiB"):
        ask(check, 10, Coverage("full", memory=needed - 1))


@pytest.mark.parametrize("jacobian", ["projected", "auto"])
def test_projected_and_by_size_there_is_no_jacobian_that_could_be_too_large(jacobian):
    assert ask("backward", 4096, Coverage(jacobian)) is None
    assert ask("backward", 10, Coverage(jacobian, memory=1)) is None
