"""Evidence finds what is wrong with the faulty functions of the corpus, and nothing wrong with the right ones."""

import pytest
import torch
from operators.asking import ask_torch, check_claim, lost_digits
from operators.corpus import BESIDE, BLIND_SPOTS, FAULTS, JACOBIANS, LOW_ACCURACY, RIGHT
from operators.corpus_entries import SECOND
from operators.looped import forward_jacobian, reverse_jacobian, to_real

from opcheck.derivatives.autodiff import vjp
from opcheck.derivatives.by_torch import CannotAsk

# tests/derivatives/test_by_torch.py has what is to be known of torch by day.
BOTH = [pytest.param("torch", marks=pytest.mark.nightly), "batched"]
engines = pytest.mark.parametrize("engine", BOTH)

# The corpus asks for strange things, of which torch warns.
pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.filterwarnings("ignore::FutureWarning")]


def each(entries, one_by_day=False):
    """Parametrize over entries in each of their dtypes. By day in the last alone, where one is enough."""
    cases = [(entry, dtype) for entry in entries for dtype in entry.dtypes]
    ids = [f"{entry.name}-{str(dtype).removeprefix('torch.')}" for entry, dtype in cases]
    later = [one_by_day and dtype != entry.dtypes[-1] for entry, dtype in cases]
    params = [pytest.param(*case, marks=[pytest.mark.nightly] * late) for case, late in zip(cases, later, strict=True)]
    return pytest.mark.parametrize(("entry", "dtype"), params, ids=ids)


def answer(engine, check, entry, dtype):
    """Return what torch, or our own evidence, objects to; an exception of either is an answer, too."""
    torch.manual_seed(0)
    request = entry.request(dtype)
    try:
        return ask_torch(check, request) if engine == "torch" else check_claim(check, request)
    except Exception as error:
        return error


def found(engine, checks, entry, dtype):
    """Return those of the checks in which an engine finds something wrong, and those that torch cannot be asked for."""
    disagreements, unasked = answers(engine, checks, entry, dtype)
    return set(disagreements), unasked


def answers(engine, checks, entry, dtype):
    """Return what an engine objects to, by check, and the checks that torch cannot be asked for."""
    replies = {check: answer(engine, check, entry, dtype) for check in checks}
    unasked = {check for check, reply in replies.items() if isinstance(reply, CannotAsk)}
    # torch takes no second order of sparse leaves, and its vmap for batched gradients refuses many operators.
    sparse = any(leaf.layout is not torch.strided for leaf in entry.leaves(dtype))
    assert unasked <= {"batched_grad", "batched_forward_grad", *(SECOND if sparse else ())}
    return {check: reply for check, reply in replies.items() if reply is not None and check not in unasked}, unasked


def expected(engine, fault):
    return fault.caught_by - fault.torch_misses if engine == "torch" else fault.caught_by


@engines
@each(FAULTS, one_by_day=True)
def test_a_fault_is_found_by_each_check_that_should(engine, entry, dtype):
    disagreements, unasked = answers(engine, entry.caught_by, entry, dtype)
    assert set(disagreements) == expected(engine, entry) - unasked
    if engine == "torch" and not entry.raises:
        # What the corpus means is a wrong number, not an accident on the way to it.
        assert not any(isinstance(disagreement, Exception) for disagreement in disagreements.values())


@pytest.mark.nightly
@engines
@each((*FAULTS, *LOW_ACCURACY))
def test_no_other_jacobian_is_blamed_for_it(engine, entry, dtype):
    others = set(JACOBIANS) - entry.caught_by - entry.either - entry.disclaims
    assert found(engine, others, entry, dtype)[0] == set()


@engines
@each(RIGHT, one_by_day=True)
def test_nothing_is_wrong_with_a_right_function(engine, entry, dtype):
    sparse = any(leaf.layout is not torch.strided for leaf in entry.leaves(dtype))
    checks = {*JACOBIANS, *BESIDE, *(["masked"] if sparse else [])} - entry.disclaims - entry.either
    refused = entry.torch_refuses if engine == "torch" else set()
    assert found(engine, checks - refused, entry, dtype)[0] == set()


@engines
@each([entry for entry in RIGHT if entry.disclaims])
def test_what_a_right_function_disclaims_is_refused(engine, entry, dtype):
    refused, unasked = found(engine, entry.disclaims, entry, dtype)
    assert refused == entry.disclaims - unasked


MISSED = [fault for fault in (*FAULTS, *BLIND_SPOTS) if fault.torch_misses]


@pytest.mark.nightly
@each(MISSED)
def test_what_torch_misses_is_wrong_all_the_same(entry, dtype):
    leaves = entry.leaves(dtype)
    for check in entry.torch_misses:
        assert IS_WRONG[check](entry.function, leaves)


def is_wrong_for_some_cotangents(function, leaves):
    """Whether the backward pass gives other gradients than the matrix that it gives row by row."""
    outputs, jacobian = function(*leaves), reverse_jacobian(function, leaves)
    for make in (torch.randn_like, torch.ones_like):
        cotangents = tuple(make(output).detach() for output in outputs)
        for index, gradient in enumerate(vjp(outputs, leaves, cotangents)):
            rows = zip(jacobian, cotangents, strict=True)
            if not torch.allclose(to_real(gradient), sum(to_real(v) @ row[index] for row, v in rows)):
                return True
    return False


def is_wrong_for_some_tangents(function, leaves):
    """Whether forward mode gives other tangents than the matrix that it gives column by column."""
    (leaf,), ((jacobian,),) = leaves, forward_jacobian(function, leaves)
    tangent = torch.randn_like(leaf).detach()
    (pushed,) = torch.func.jvp(function, (leaf.detach(),), (tangent,))[1]
    return not torch.allclose(to_real(pushed), jacobian @ to_real(tangent))


def is_wrong_in_batches(derivative, leaf):
    """Whether vmap raises, or gives something else than the loop."""
    vectors = torch.randn(3, *leaf.shape, dtype=leaf.dtype)
    try:
        batched = torch.func.vmap(derivative)(vectors)
    except Exception:
        return True
    return not torch.allclose(batched, torch.stack([derivative(v) for v in vectors]))


def is_wrong_for_batched_cotangents(function, leaves):
    (output,) = function(*leaves)
    return is_wrong_in_batches(lambda v: torch.autograd.grad(output, leaves, v, retain_graph=True)[0], output)


def is_wrong_for_batched_tangents(function, leaves):
    (leaf,) = (leaf.detach() for leaf in leaves)
    return is_wrong_in_batches(lambda t: torch.func.jvp(function, (leaf,), (t,))[1][0], leaf)


IS_WRONG = {
    "backward": is_wrong_for_some_cotangents,
    "forward_ad": is_wrong_for_some_tangents,
    "batched_grad": is_wrong_for_batched_cotangents,
    "batched_forward_grad": is_wrong_for_batched_tangents,
}


@each([fault for fault in FAULTS if fault.beside])
def test_what_no_claim_about_derivatives_says_is_found_by_the_check_itself(verdict_of, entry, dtype):
    samples = f"samples = [{{ args = [{', '.join(recipe(leaf) for leaf in entry.leaves(dtype))}] }}]"
    for check in entry.beside:
        operator = f"operators.corpus.functions.{entry.name}"
        outcome = verdict_of(operator, check, str(dtype).removeprefix("torch."), samples=samples)
        assert outcome.outcome == "failed", outcome.message


def recipe(leaf):
    """Return a tensor in TOML that is like a leaf."""
    layout = str(leaf.layout).removeprefix("torch.")
    special = "" if layout == "strided" else f', layout = "{layout}"'
    return f"{{ shape = {list(leaf.shape)}, low = 0.5{special} }}"


def digits_lost(entry, dtype):
    """Return the checks whose Jacobians have lost digits."""
    request, lost = entry.request(dtype), set()
    point = request.point
    for check in JACOBIANS:
        try:
            disagreement = lost_digits(check, request, point)
        except Exception:
            continue
        lost |= {check} if disagreement is not None and disagreement.kind == "low accuracy" else set()
    return lost


@each(LOW_ACCURACY)
def test_digits_that_are_lost_within_the_tolerance_are_found(entry, dtype):
    assert digits_lost(entry, dtype)


@each([entry for entry in RIGHT if all(leaf.layout is torch.strided for leaf in entry.leaves(entry.dtypes[0]))])
def test_a_right_function_has_lost_no_digits(entry, dtype):
    assert digits_lost(entry, dtype) == set()


@pytest.mark.nightly
@each(LOW_ACCURACY)
def test_single_precision_is_found_at_second_order_if_at_all(entry, dtype):
    assert found("torch", JACOBIANS, entry, dtype) == (entry.caught_by, set())


@pytest.mark.nightly
@each(BLIND_SPOTS)
def test_torch_is_blind_to_what_it_does_not_ask_for(entry, dtype):
    assert found("torch", JACOBIANS, entry, dtype) == (set(), set())


def test_there_are_at_least_forty_faulty_functions_with_names_of_their_own():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 40


def test_names_of_entries_are_names_of_one_function_each():
    names = [entry.name for entry in (*FAULTS, *LOW_ACCURACY, *BLIND_SPOTS, *RIGHT)]
    assert sorted(names) == sorted(set(names))


def test_leaves_are_the_same_on_each_call():
    for entry in (*FAULTS, *LOW_ACCURACY, *BLIND_SPOTS, *RIGHT):
        for dtype in entry.dtypes:
            for first, again in zip(entry.leaves(dtype), entry.leaves(dtype), strict=True):
                assert first.requires_grad
                assert torch.equal(first.to_dense(), again.to_dense())
