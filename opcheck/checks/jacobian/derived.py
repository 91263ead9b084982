"""Derivatives are right at samples that are derived from the written ones: see samples/derive/.

Each derived sample is first tested by a look (checks/looks.py). If the look fails, the sample is shrunk to the smallest
one that still fails, which is then judged like a written sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from opcheck.checks.attempts import Attempt, at_derived, attempt, attempts
from opcheck.checks.behavior.context import of_a_new_module
from opcheck.checks.calls import Call
from opcheck.checks.jacobian.compare import check as jacobian
from opcheck.checks.looks import (
    FIRST,
    FOR_MEMORY,
    PLAIN,
    SECOND,
    Answer,
    Look,
    depends_on_memory,
    look,
    memories_of,
)
from opcheck.checks.per_sample import PerSample, implementation
from opcheck.checks.plain_torch import asserted, for_vectors
from opcheck.checks.raw_gradients import have_batching_rule, have_own_backward
from opcheck.checks.relations import compared
from opcheck.checks.subject import Context, Subject
from opcheck.checks.varied import confirmed, failure_at
from opcheck.checks.verdict import HOLDS, Verdict, cannot, fails, out_of_reach
from opcheck.derivatives import tried
from opcheck.planning.kinds import check_kinds
from opcheck.samples.derive import Derived, smallest, squared
from opcheck.samples.derive.change import updated
from opcheck.spec.library import Sample
from opcheck.spec.render import render
from opcheck.spec.values import UNSET, Value
from opcheck.strides import MEMORIES

REFUSED: Sequence[Answer] = ("refused", "refused in backward")
BLOCK, BLOCKS = 16, 512
"""A lower bound of the block sizes of most kernels, and a number of elements that takes several blocks in many."""
ALWAYS = ("reference", "device_consistency", "registration")
"""The checks of values that run at derived samples unless derivatives are wrong. Fake tensors may have other shapes or
strides than real ones at some sizes and in some memory formats only."""
OF_GRAPHS = ("detached",)
"""The checks that run at a derived sample where an output has no graph, although it has one at the written sample."""
BESIDES = (
    "purity", "nondeterminism", "needs_input_grad", "linearity", "saved", "aliasing", "vmap", "variants", "buffers",
    "registration",
)  # fmt: skip
"""The checks that, with derive = "thorough", also run at the first derived sample with each new value of a keyword, and
at the first ones with a dim of size 1 and with one larger than a block."""
OF_RULES = ("vmap",)
"""The checks that also run there, with any setting, if an autograd.Function has its own vmap rule: it may confuse dims,
or forget a keyword."""
WRONG = (*PLAIN, *FIRST, *SECOND)
MEMORIES_OF_COTANGENTS: Sequence[str] = ("noncontiguous", "transposed", "expanded", "offset", "channels_last")
"""The memory formats of cotangents that are tested at derived samples, besides plain ones."""


def judge(subject: Subject) -> Verdict:
    """Take a look at each derived sample. The first sample that fails is shrunk, and judged."""
    context, counts, notes = subject.context, Counter[str](), list[str]()
    always = {name: check.for_derived for name, check in _checks(context, ALWAYS).items()}
    for one, made, said, is_first in _looks(subject):
        checks = always | _at_first(context, made) if is_first else always
        answer = said.answer
        if answer in REFUSED and context.device.is_probed and context.device.fault():
            # All later calls would fail, too.
            what = f"derived: {one.what}: the device stops working here"
            return cannot(what, "\n".join(filter(None, [f"at the sample {one.sample.toml()}", said.note])))
        if answer in WRONG:
            verdict = _judged(context, made.written, one, said)
            if verdict is not None:
                return verdict
            answer = "inconclusive"
        elif made.has_values:
            graph = _checks(context, OF_GRAPHS) if _loses_graph(context, made) else {}
            verdict = _further(context, made, one, graph | checks)
            if verdict is not None:
                return verdict
        counts[answer] += 1
        notes += [f"{one.what}: {said.note}"] if said.note else []
    if not counts["hold"]:
        listed = ", ".join(f"{count} {answer}" for answer, count in counts.items())
        return out_of_reach("no derived sample could be compared: " + (listed or "nothing can be varied"))
    return replace(HOLDS, fields={"derived": dict(counts), **({"notes": notes} if notes else {})})


def _looks(subject: Subject) -> Iterator[tuple[Derived, Attempt, Look, bool]]:
    """Yield each derived sample with its call, the look, and whether it is the first with a new feature.

    New features (see `_novelty`) are those of samples where the look holds. There, the look includes second-order
    derivatives.

    Cotangents in other memory formats are tested once for each memory format of the tensors, at the first sample where
    it affects the strides. If the tensors are contiguous, or with derive = "thorough", all formats are tested; else
    those of the tensors and a storage offset, since outputs mostly have the format of the inputs, and cotangents that
    of the outputs.

    If backward raises, a sample with all sizes equal is tested, too: code that confuses two dims raises for different
    sizes, and gives wrong gradients for equal ones.
    """
    context, respects, layouts = subject.context, {frozenset[object]()}, set[frozenset[str]]()
    sample = subject.sample
    if memories_of(sample) and depends_on_memory(made := attempt(context, sample, sample)):
        yield Derived("memory as written", sample), made, Look("memory", FOR_MEMORY), False
    thorough = context.is_thorough
    further = SECOND if all(_is_claimed(context, name) for name in SECOND) else ()
    for one, made in attempts(context, sample, thorough):
        layout = memories_of(one.sample)
        is_new = layout not in layouts and (bool(layout) or _has_strides(one.sample))
        own = MEMORIES_OF_COTANGENTS if thorough or not layout else [*layout, "offset"]
        said = look(made, own if is_new else ())
        if is_new and said.answer == "hold":
            layouts.add(layout)
        written = made.written
        respect = _novelty(context, made, one.sample) if said.answer == "hold" else frozenset()
        is_first = respect not in respects
        if is_first and further and (again := look(made, claims=further)).answer in further:
            if look(attempt(context, written, written), claims=further).answer in further:
                further = ()  # it fails at the written sample as well, where another check reports it
            else:
                said = again
        yield one, made, said, is_first
        for other in squared(one) if said.answer == "refused in backward" else ():
            square = attempt(context, written, other.sample)
            said = look(square)
            if said.answer not in REFUSED:
                yield other, square, said, False
        respects.add(respect)


def _has_strides(sample: Sample) -> bool:
    """Return whether the largest tensor has two dims with several elements, or only such dims if it has fewer than two.

    Only then do its strides matter.
    """
    sizes = max(sample.tensors, key=lambda recipe: recipe.numel).sizes
    return sum(size > 1 for size in sizes) >= min(2, len(sizes))


def _judged(context: Context, written: Sample, one: Derived, said: Look) -> Verdict | None:
    """Return the verdict at the smallest sample that fails; None if the full check does not confirm the look."""
    answer = said.answer
    memories = [said.memory] if said.memory else MEMORIES_OF_COTANGENTS if answer == "memory" else []
    claims = SECOND if answer in SECOND else FIRST

    def said_of(made: Attempt) -> str:
        return look(made, memories, claims).answer

    if answer not in PLAIN:
        return confirmed(context, written, one, answer, jacobian, said_of)
    sample, words = smallest(one, written, lambda sample: said_of(attempt(context, written, sample)), answer)
    code = asserted(for_vectors(MEMORIES[said.memory].code)) if said.memory else ""
    lines = [*words, f"add this sample: {sample.toml()}", said.note, one.remedy]
    wrong = fails(f"derived: {one.what}: {PLAIN[answer]}", "\n".join(filter(None, lines)), code=code)
    return replace(wrong, at=("backward", sample))


def _at_first(context: Context, made: Attempt) -> dict[str, PerSample]:
    """Return the checks that run besides those in `ALWAYS` at the first sample with a new feature."""
    return _checks(context, BESIDES if context.is_thorough else OF_RULES if have_batching_rule(made.outputs) else ())


def _checks(context: Context, names: Sequence[str]) -> dict[str, PerSample]:
    """Return those among some checks whose claims are made, and not expected to fail."""
    return {name: implementation(check_kinds()[name]) for name in names if _is_claimed(context, name)}


def _further(context: Context, made: Attempt, one: Derived, checks: Mapping[str, PerSample]) -> Verdict | None:
    """Return the first failure of a check that passes at the written sample; None if there is none."""
    for name, check in checks.items():
        failure = failure_at(context, made, one, name, check)
        if failure is not None:
            return failure
    return _of_used_module(context, one) if _is_called_otherwise(context, made.written, one) else None


def _loses_graph(context: Context, made: Attempt) -> bool:
    """Return whether an output of a derived sample does not require grad, but requires it at the written sample."""

    def graphs(outputs: Sequence[Tensor]) -> list[bool]:
        return [output.requires_grad for output in outputs]

    written = made.written
    here = graphs(made.outputs)
    if all(here):
        return False
    there = context.memo.once(("graphs", written.name), lambda: graphs(attempt(context, written, written).outputs))
    return any(one and not other for one, other in zip(there, here, strict=False))


def _novelty(context: Context, made: Attempt, other: Sample) -> frozenset[object]:
    """Return what is new about a derived sample, as a key.

    That is a changed keyword with its value, several changed keywords without values, or the number of tensors if some
    are left out. Else, it is the dims of size 1 and those larger than a block with derive = "thorough", and without,
    whether a tensor takes several blocks, if a backward pass is not torch's own. Empty if other things differ, too.
    """
    written = made.written
    before, after = (_keywords(one, context) for one in (written, other))
    changed = {key for key, value in after.items() if before.get(key, UNSET) != value}
    if len(other.tensors) != len(written.tensors):  # some tensors are left out
        return frozenset({*changed, len(other.tensors)})
    if changed:
        key = (*changed, render(after[next(iter(changed))])) if len(changed) == 1 else changed
        return frozenset(key if other.tensors == written.tensors else ())
    if not context.is_thorough:
        is_large = any(recipe.numel > BLOCKS for recipe in other.tensors)
        if not (is_large and have_own_backward(made.outputs)):
            return frozenset()  # first, since it is so for nearly all samples
    pairs = [*zip(written.tensors, other.tensors, strict=True)]
    if any(updated(one, shape=None) != updated(another, shape=None) for one, another in pairs):
        return frozenset()
    if not context.is_thorough:
        return frozenset({BLOCKS})
    sizes = ((k, dim, size) for k, (_, own) in enumerate(pairs) for dim, size in enumerate(own.sizes))
    return frozenset((k, dim, size > BLOCK) for k, dim, size in sizes if size == 1 or size > BLOCK)


def _keywords(sample: Sample, context: Context) -> dict[str, Value]:
    """Return the keyword arguments of a call, its plain positional arguments, and the keywords of a module constructor.

    Numbers, flags and strings that are passed by position are named by the position, the keywords of the constructor
    and the mode of the module `module.<name>`.
    """
    module = sample.module or context.case.operator.spec.module
    constructor = {} if module is None else {**module.kwargs, "train": module.train}
    plain = {str(place): one for place, one in enumerate(sample.args) if isinstance(one, (bool, int, float, str))}
    return plain | sample.kwargs | {f"module.{name}": value for name, value in constructor.items()}


def _is_called_otherwise(context: Context, written: Sample, one: Derived) -> bool:
    """Return whether a derived sample passes other keywords to a module that is constructed in the same way."""
    if context.module(context.case.variant.path) is None or one.sample.module != written.module:
        return False
    before, after = (_keywords(sample, context) for sample in (written, one.sample))
    return before != after


def _of_used_module(context: Context, one: Derived) -> Verdict | None:
    """Return the failure of a module that, after calls at other samples, has other values than a new one; else None.

    All samples share one module. It may keep what depends on a keyword, such as a mask.
    """
    if not _is_claimed(context, "context"):
        return None
    subject = context.under("context").at(one.sample).calling(operator=context.operator_at(one.sample))
    rows = tried(lambda: [*of_a_new_module(subject, Call.of(subject).values, "with other samples")])
    for row in rows if not isinstance(rows, Exception) else ():  # new ones may refuse what needs an earlier call
        verdict = compared(subject, row)
        if verdict.is_failure:
            verdict = replace(verdict, realized=subject.inputs.describe())
            return at_derived(one, verdict, "context", one.sample, how="after calls with other samples, at")
    return None


def _is_claimed(context: Context, name: str) -> bool:
    """Return whether the claim of a check is made, and not expected to fail in this case."""
    return context.is_claimed(name) and not context.case.expectations_about(name)


check = PerSample(judge)
