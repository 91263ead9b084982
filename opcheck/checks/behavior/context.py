"""Values and gradients depend on the arguments, and on nothing around the call.

These must make no difference:

- during forward or backward: grad mode, inference mode, autocast, deterministic mode, the number of threads, and the
  previous contents of memory;
- other calls before the call, or between its forward and its backward pass; nor may later calls overwrite its results;
- earlier values of an argument that was changed in place;
- the thread of backward, the state of the random generator when it runs, `create_graph` and `retain_graph`.

Of modules, values in evaluation mode are tested, too. With `derive = "thorough"`, neither the stream, simultaneous
calls in other threads, nor torch.utils.checkpoint may make a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from threading import Barrier, BrokenBarrierError

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from opcheck.checks.calls import Call, Result, as_results, copies, direction_of, result, slope
from opcheck.checks.jacobian.compare import disagreement_on
from opcheck.checks.plain_torch import CALL, GRADIENTS, VALUES, asserted
from opcheck.checks.relations import Row, at_once, both, computed, relation, results, row
from opcheck.checks.subject import Subject
from opcheck.checks.surroundings import Surroundings, surroundings_of, within
from opcheck.checks.verdict import HOLDS, Verdict, fails, noted
from opcheck.derivatives import tried
from opcheck.derivatives.autodiff import Tensors
from opcheck.derivatives.coordinates import are_strided, tensors_of, vector
from opcheck.samples.modules import ModuleCall, evaluating
from opcheck.samples.watched import Watched
from opcheck.text import one_line

CALLS_PER_THREAD = 20
"""The number of calls that each of several threads makes at once."""

WITHOUT_GRAD = "the values under torch.no_grad() of a call with tensors that have changed in place since the last one"
OVERLAPPED = "when another call runs between forward and backward"
CHANGED = "of a call with tensors that have changed in place since the last one"
EXPECTED = f"{CALL}expected = {{call}}\n"
RECORDED = f"{EXPECTED}actual = torch.autograd.grad(outputs, inputs, cotangents, create_graph=True)"
AFTER = f"{EXPECTED}function(*others)\nactual = {{call}}"
ALONE = f"{EXPECTED}actual = torch.autograd.grad(function(*inputs), inputs, cotangents, materialize_grads=True)"
OVERLAPPING = f"{EXPECTED}outputs = function(*inputs)\nfunction(*others)\nactual = {{of_outputs}}"
RESEEDED = f"{EXPECTED}outputs = function(*inputs)\ntorch.manual_seed(1)\nactual = {{of_outputs}}"
OF_RESULTS = f"{EXPECTED}outputs = function(*[x.clone() for x in inputs])\nactual = {{of_outputs}}"
IN_PLACE = f"""\
{EXPECTED}with torch.no_grad():
    for x, other in zip(inputs, others):
        x.copy_(other)
actual = {{call}}
inputs = [x.detach().clone().requires_grad_() for x in inputs]
expected = {{call}}"""
"""The varied calls in plain torch, with the placeholders of `relations.both`."""
WITHOUT_GRAD_IN_PLACE = f"""\
{CALL}with torch.no_grad():
    function(*inputs)
    for x, other in zip(inputs, others):
        x.copy_(other)
    actual = {VALUES}
expected = {VALUES}"""
OVERWRITTEN = """\
outputs = function(*inputs)
expected = [y.detach().clone() for y in outputs]
function(*others)
actual = [y.detach() for y in outputs]"""
GRADIENTS_OVERWRITTEN = f"""\
{CALL}actual = pulled(outputs, inputs, cotangents)
expected = [g.clone() for g in actual]
pulled(outputs, inputs, [2 * v for v in cotangents])"""
"""Tests in plain torch that a later call does not write to earlier results."""


def rows(subject: Subject, here: Result) -> Iterator[Row | Verdict]:
    """Compare calls in different surroundings with an ordinary call."""
    yield from _without_grad(subject, here)
    around = surroundings_of(subject)
    yield from _surrounded(subject, here, around)
    yield from _among_others(subject, here, around)
    yield from _in_another_thread(subject, here)
    yield from _in_evaluation(subject)
    if subject.context.is_thorough:
        yield from _checkpointed(subject, here)
        yield from _in_several_threads(subject)


def _without_grad(subject: Subject, here: Result) -> Iterator[Row | Verdict]:
    """Compare values under inference mode, which turns grad mode off, too; if they differ, also under no_grad."""

    def under(mode: str, values: Callable[[], Tensor]) -> Iterator[Row]:
        yield row(f"the values under {mode}", values, here.values, _within(f"with {mode}:").format(call=VALUES))

    @torch.no_grad()
    def plain() -> Tensor:
        return Call.of(subject, _ordinary_leaves(subject)).values

    @torch.inference_mode()
    def inferred() -> Tensor:
        values = tried(plain)
        if isinstance(values, Exception):  # TorchScript rejects leaves that require grad, such as parameters
            return Call.of(subject, [leaf.detach() for leaf in _ordinary_leaves(subject)]).values
        return values

    return at_once(subject, lambda: under("torch.inference_mode()", inferred), lambda: under("torch.no_grad()", plain))


def _within(line: str, first: str = "actual = {call}", then: str = "") -> str:
    """Return code that compares a call after `line`, which changes the surroundings, with a call before it.

    It is empty if the line is.
    """
    indent = "    " if line.startswith("with ") else ""
    return f"{EXPECTED}{line}\n{indent}{first}\n{then}".rstrip() if line else ""


def _ordinary_leaves(subject: Subject) -> Tensors:
    """Return copies of the leaves that are normal tensors, as users pass them, and not inference tensors."""
    with torch.inference_mode(False):
        return copies(subject.leaves)


def _surrounded(subject: Subject, here: Result, around: Mapping[str, Surroundings]) -> Iterator[Row | Verdict]:
    """Compare a call in all surroundings at once, forward and backward, with an ordinary call.

    Its inputs are results of other operations, and its backward pass is recorded. If it differs, each of these
    variations is tested alone.
    """

    def varied() -> Result:
        return within(around.values(), lambda: _with_create_graph(subject, _call_on_results(subject)))

    def each() -> Iterator[Row]:
        for name, own in around.items():
            call = partial(within, [own], partial(result, subject))
            yield from both(f"under {name}", call, here, _within(own.code))
        what, code = "the gradients under create_graph=True", RECORDED.format(call=GRADIENTS)
        yield row(what, lambda: _with_create_graph(subject, Call.of(subject)).gradient, here.gradient, code)
        where = "of inputs that are results of other operations"
        yield from both(where, lambda: result(subject, _call_on_results(subject)), here, OF_RESULTS)

    return at_once(subject, lambda: both("in other surroundings", varied, here), each)


def _with_create_graph(subject: Subject, call: Call) -> Result:
    """Return the result of a call, with create_graph=True in the backward pass if second order is claimed.

    If recording raises, which another check reports, an ordinary backward pass runs instead.
    """
    if subject.supports.backward and subject.supports.second_order:
        values, gradient = call.values, tried(lambda: call.gradient(create_graph=True))
        if isinstance(gradient, Tensor):
            return Result(values, gradient, call.has_graph)
    return result(subject, call)


def _call_on_results(subject: Subject) -> Call:
    """Call the operator on results of other operations instead of leaves, as in a network."""
    leaves = copies(subject.leaves)
    return Call(leaves, subject.function(*as_results(leaves)))


def _among_others(subject: Subject, here: Result, around: Mapping[str, Surroundings]) -> Iterator[Row | Verdict]:
    """Compare calls that follow, or overlap with, another call with calls on their own.

    The operator is called at another point of the sample, then at the sample, with both backward passes after that.
    Then the inputs of the second call are changed in place to the other point, and the operator is called on them.
    """
    other = subject.elsewhere()
    first = within(around.values(), partial(tried, partial(Call.of, other)))
    if isinstance(first, Exception):
        refusal = tried(lambda: other.outputs)
        if not isinstance(refusal, Exception):
            raise first
        yield noted([f"other numbers by the recipes of the sample are refused: {one_line(refusal)}"])
        return
    outputs = Watched.all("output", first.outputs)
    what, code = "the values of a call that follows another one", AFTER.format(call=VALUES)
    second = computed(what, lambda: Call.of(subject), code)
    yield _as_returned(outputs, OVERWRITTEN)
    yield Row(what, second.values, here.values, code)
    yield from _without_retain_graph(subject, second, here)
    subject.function.reseed(1)
    gradients = results(OVERLAPPED, first.gradients, here, OVERLAPPING) if subject.supports.backward else ()
    there = Result(first.values, vector(gradients), first.has_graph)
    if subject.supports.backward:
        yield _overwritten(first, gradients)
    changed = partial(_in_place, second.leaves, other) if are_strided(subject.leaves) else partial(result, other)
    in_place = results(CHANGED, changed, here, IN_PLACE)

    def forward_in(own: Surroundings) -> Result:
        return result(other, within([own], lambda: Call.of(other)))

    def each() -> Iterator[Row]:
        alone = result(other)
        yield from both(CHANGED, lambda: in_place, alone, IN_PLACE)
        for name, own in around.items():
            code = _within(own.code, "outputs = function(*inputs)", "actual = {of_outputs}")
            yield from both(f"under {name} in forward alone", partial(forward_in, own), alone, code)
        call = Call.of(other)
        other.function.reseed(1)
        where = "when the random generator is reseeded before backward"
        yield from both(where, lambda: result(other, call), alone, RESEEDED)
        yield from both(OVERLAPPED, lambda: there, alone, OVERLAPPING)

    where = "of calls that follow another one"
    yield from at_once(subject, lambda: both(where, lambda: there, in_place, AFTER), each)
    if are_strided(subject.leaves):  # what is computed without a graph may be kept more readily
        without_grad = torch.no_grad()(partial(_in_place_again, subject, other))
        yield row(WITHOUT_GRAD, without_grad, in_place.values, WITHOUT_GRAD_IN_PLACE)
    yield from of_a_new_module(other, there.values, "with other numbers")
    if are_strided(subject.leaves) and subject.supports.backward:
        yield from _right_elsewhere(subject, other, vector(first.cotangents), there)


def of_a_new_module(subject: Subject, values: Tensor, before: str) -> Iterator[Row]:
    """Compare the values of a module that has been called before with those of a new module.

    A module may keep what its first call has made, which all later calls then use.

    before: the earlier calls, as in "with other numbers".
    """
    context, path = subject.context, subject.case.variant.path
    if context.module(path) is not None:
        fresh = subject.calling(operator=context.resolve(path, subject.sample))
        what = f"the values of a module that was called before {before}"
        yield Row(what, values, computed(what, lambda: Call.of(fresh).values))


def _overwritten(call: Call, gradients: Tensors) -> Verdict:
    """Return whether a second backward pass of a call leaves the gradients of the first one unchanged."""
    kept = Watched.all("gradient", gradients)
    call.gradients([2 * v for v in call.cotangents])
    return _as_returned(kept, GRADIENTS_OVERWRITTEN)


def _as_returned(watched: Iterable[Watched], code: str) -> Verdict:
    """Return whether a later call has left the watched results of an earlier call unchanged.

    code: the test in plain torch.
    """
    changed = next(filter(None, (item.change() for item in watched)), "")
    title = f"context: a later call overwrites a tensor returned by an earlier call: {changed}"
    return fails(title, REMEDY, code=asserted(code)) if changed else HOLDS


REMEDY = "clone a reused buffer before returning it"


def _without_retain_graph(subject: Subject, call: Call, here: Result) -> Iterator[Row]:
    """Compare the gradients of backward without retain_graph, as in loss.backward(), with those of an ordinary call.

    A second backward pass on the same graph must raise, or return the same gradients.
    """
    if not subject.supports.backward:
        return
    what, code = "the gradients of a call that follows another one, without retain_graph", ALONE.format(call=GRADIENTS)
    yield row(what, lambda: _last(call), here.gradient, code)
    again = tried(lambda: _last(call))
    if isinstance(again, Tensor):
        yield Row("the gradients of a second backward pass without retain_graph=True", again, here.gradient)


def _last(call: Call) -> Tensor:
    return vector(call.gradients(retain_graph=False))


def _in_place(leaves: Tensors, other: Subject) -> Result:
    """Change leaves in place to those of another point, and return the result of a call on them."""
    return result(other, Call.of(other, _changed(leaves, other)))


def _in_place_again(subject: Subject, other: Subject) -> Tensor:
    """Return the values of a call with leaves that have changed in place since another one."""
    leaves = copies(subject.leaves)
    Call.of(subject, leaves)
    return Call.of(other, _changed(leaves, other)).values


@torch.no_grad()
def _changed(leaves: Tensors, other: Subject) -> Tensors:
    """Change leaves in place to those of another point, and return them."""
    for leaf, changed in zip(leaves, other.leaves, strict=True):
        leaf.copy_(changed)
    return leaves


def _right_elsewhere(subject: Subject, other: Subject, cotangents: Tensor, there: Result) -> Iterator[Row | Verdict]:
    """Compare the gradient at another point with central differences along one random direction.

    If it differs, the Jacobian is compared in full. If that is right, a call at the same point differs from the one
    before: a cache may confuse tensors that occupy the same memory one after the other.
    """
    if subject.too_coarse:
        return
    numbers, direction = subject.numbers, direction_of(other)
    slopes = tried(lambda: slope(other, direction, numbers.eps))
    if isinstance(slopes, Exception) or slopes.shape != cotangents.shape:  # the shapes of outputs depend on numbers
        yield noted(["no differences at another point: the operator refuses numbers nearby, or has other outputs"])
        return
    along = float(cotangents @ slopes)
    allowed = (numbers.atol + numbers.rtol * abs(along)) * max(1.0, slopes.numel() ** 0.5)
    if abs(float(there.gradient @ direction) - along) <= allowed:
        return
    wrong = disagreement_on(other, "backward")
    if wrong is None:
        yield from both(CHANGED, lambda: there, result(other), IN_PLACE)
    elif wrong.kind == "wrong" and disagreement_on(subject, "backward") is None:
        # `backward` reports a gradient that is wrong at the sample, too.
        verdict = fails("context: the gradient is wrong at another point of the same sample", wrong.text)
        yield replace(verdict, at=("backward", subject.sample), elsewhere=True)


def _in_evaluation(subject: Subject) -> Iterator[Row]:
    """Compare values of a module in evaluation mode under no_grad, where it may take another path and cache results.

    They are compared with those in grad mode, and after another call with those of a module that was not called.
    """
    call = subject.function.operator
    if not isinstance(call, ModuleCall) or not call.module.training or not are_strided(subject.leaves):
        return
    moved = tensors_of(vector(subject.leaves) + 1e-3 * direction_of(subject), subject.leaves)
    nearby = [x.requires_grad_(leaf.requires_grad) for x, leaf in zip(moved, subject.leaves, strict=True)]
    fresh = tried(partial(_new_module, subject, call))
    with evaluating(call.module):
        here = tried(lambda: Call.of(subject).values)
        if isinstance(here, Exception):
            return
        what = "the values in evaluation mode under torch.no_grad()"
        with torch.no_grad():
            without_grad, follows = computed(
                what, lambda: [Call.of(subject, at).values for at in (None, copies(nearby))]
            )
    yield Row(what, without_grad, here)
    if not isinstance(fresh, Exception):
        with evaluating(fresh.module):
            alone = Call.of(subject.calling(operator=fresh), copies(nearby)).values
        yield Row(f"{what}, of a call that follows another one,", follows, alone)


def _new_module(subject: Subject, call: ModuleCall) -> ModuleCall:
    """Return the call of a module constructed anew; of a copy, if the module is passed in from Python."""
    context, path = subject.context, subject.case.variant.path
    if context.module(path) is not None:
        new = context.resolve(path, subject.sample)
        assert isinstance(new, ModuleCall)
        return new
    shared = {id(tensor): tensor for tensor in call.state.values()}
    return replace(call, _module=deepcopy(call.module, shared))


def _checkpointed(subject: Subject, here: Result) -> Iterator[Row | Verdict]:
    """Compare gradients under torch.utils.checkpoint, which repeats forward in backward, with those of a kept graph.

    Yields a note if the operator refuses hooks on saved tensors, which the checkpoint needs: torch.func does.
    """
    from torch.utils.checkpoint import checkpoint

    with saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        refusal = tried(lambda: subject.function(*copies(subject.leaves)))
    if isinstance(refusal, Exception):
        yield noted([f"not called under torch.utils.checkpoint: {one_line(refusal)}"])
        return

    def gradient() -> Tensor:
        leaves = copies(subject.leaves)
        call = Call(leaves, checkpoint(subject.function.__call__, *leaves, use_reentrant=False))
        return _last(call) if call.has_graph and subject.supports.backward else here.gradient

    yield row("the gradients under torch.utils.checkpoint", gradient, here.gradient)


def _in_another_thread(subject: Subject, here: Result) -> Iterator[Row]:
    """Compare ordinary gradients with those by backward in another thread than forward, as autograd uses on devices."""
    call = Call.of(subject)
    if call.has_graph and subject.supports.backward:
        with ThreadPoolExecutor(1) as pool:
            thread = pool.submit(_last, call)
        yield row("the gradients by backward in another thread than forward", thread.result, here.gradient)


def _in_several_threads(subject: Subject) -> Iterator[Row]:
    """Compare simultaneous calls in several threads, each at its own point, with calls one after the other.

    Random operators and modules are skipped: threads share the random generator, and the parameters that a module
    holds during a call.
    """
    if subject.function.is_random or isinstance(subject.function.operator, ModuleCall):
        return
    points = [subject.elsewhere() if number else subject for number in range(2)]
    alone = [result(point) for point in points]
    together = Barrier(len(points))  # without it, threads might call in turns

    def work(number: int) -> Result:
        """Return the first result that differs, or the last one."""
        try:
            for _ in range(CALLS_PER_THREAD):
                with suppress(BrokenBarrierError):  # the other thread has finished
                    together.wait()
                got, own = result(points[number]), alone[number]
                if not (torch.equal(got.values, own.values) and torch.equal(got.gradient, own.gradient)):
                    break
            return got
        finally:
            together.abort()

    with ThreadPoolExecutor(len(points)) as pool:
        threads = [pool.submit(work, number) for number in range(len(points))]
    for thread, expected in zip(threads, alone, strict=True):  # after all threads, since comparing may call
        yield from both("of several threads at once", thread.result, expected)


check = relation(rows)
