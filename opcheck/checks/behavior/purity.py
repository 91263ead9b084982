"""No stage of the operator changes arguments, outputs, cotangents, tangents or captured tensors.

Arguments include lists, mappings and other containers. The stages may draw from global random generators (torch's,
Python's, NumPy's), but not seed them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

import torch

from opcheck.checks.calls import Call, as_results, copies, parts_of, push, tangents_of, tensors_among
from opcheck.checks.per_sample import PerSample
from opcheck.checks.plain_torch import CALL, asserted
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, fails
from opcheck.derivatives import tried
from opcheck.derivatives.coordinates import are_strided
from opcheck.devices.generators import generators
from opcheck.samples.captured import captured
from opcheck.samples.results import PLAIN, with_gradient
from opcheck.samples.watched import Watched
from opcheck.text import class_of

T = TypeVar("T")
SEEDS = (0x5EED_0F_0C4EC4, 0x5EED_AB_0C4EC4)
"""Seeds that no operator sets by itself."""
MEANT = (
    'if the operator is meant to change it, list it, as in inplace = ["x", "residual"]: it is part of the result then; '
    "if what is written does not matter, set supports.purity = false"
)
WITHOUT_GRAD = "forward under torch.no_grad()"
STAGES = {
    "forward": ("", "", "function(*inputs)"),
    WITHOUT_GRAD: ("", "", "with torch.no_grad():\n    function(*inputs)"),
    "backward": (CALL, ", *outputs, *cotangents", "pulled(outputs, inputs, cotangents)"),
    "the backward pass of backward": (
        f"""\
{CALL}cotangents = [v.requires_grad_() for v in cotangents]
gradients = torch.autograd.grad(outputs, inputs, cotangents, create_graph=True, materialize_grads=True)
""",
        ", *outputs, *cotangents",
        """\
smooth = [g for g in gradients if g.requires_grad]
pulled(smooth, [*inputs, *cotangents], [torch.ones_like(g) for g in smooth])""",
    ),
    "forward mode": (
        f"{CALL}inputs = [x.detach() for x in inputs]\ntangents = [torch.randn_like(x) for x in inputs]\n",
        ", *outputs, *cotangents, *tangents",
        "pushed(function, inputs, tangents)",
    ),
}
"""The stages in plain torch: the setup, the tensors passed besides inputs and constants, and the stage itself."""


def judge(subject: Subject) -> Iterator[Verdict]:
    """Test that no stage of `STAGES` changes a tensor or seeds a generator.

    Exceptions of a stage after forward are ignored: other checks report them.
    """
    with torch.enable_grad():
        subject.result  # noqa: B018 - call once, so that tensors the operator caches are of this sample
    # It is the operator that may seed a generator, not opcheck, and it may write to what it is given.
    subject = subject.bare.calling(seed=None, on_copies=False)
    inputs = subject.context.realize(subject.sample)  # new tensors, which no call has used
    held = [*captured(subject.function.operator)]
    names, parameters = {name for name, _ in held}, subject.context.signature.positional
    args, kwargs = inputs.fill(as_results(copies(inputs.leaves)))  # non-leaf inputs, as in a network
    watched = [Watched.of(*named) for named in tensors_among(args, kwargs, parameters)]
    before = dict(parts_of(args, kwargs, parameters))
    verdict, _ = _unseeded("forward", lambda: subject.function.called(args, kwargs))
    yield verdict
    yield _same_items(before, dict(parts_of(args, kwargs, parameters)))
    yield _unchanged("forward", watched, names, advice=MEANT)
    args, kwargs = inputs.fill(leaves := copies(inputs.leaves))
    for leaf in leaves if are_strided(subject.leaves) else ():
        leaf.grad = torch.zeros_like(leaf)  # as if gradients were accumulated: an operator must not add to .grad
    watched = [Watched.of(*named) for named in (*tensors_among(args, kwargs, parameters), *held)]
    without_grad = torch.no_grad()(partial(subject.function.called, args, kwargs))
    yield from _stage(WITHOUT_GRAD, without_grad, watched, names)  # first: it may overwrite outputs of other calls
    outputs = subject.function.tested(subject.function.called(args, kwargs))
    yield _unchanged("forward", watched, names)
    call = Call(leaves, with_gradient(outputs))
    cotangents = tuple(v.requires_grad_() for v in call.cotangents)
    watched += Watched.all("output", call.outputs) + Watched.all("cotangent", cotangents)
    stages: dict[str, Callable[[], object]] = {}
    if call.outputs and subject.supports.backward:
        stages["backward"] = lambda: call.gradients(v.detach() for v in cotangents)
        if subject.supports.second_order:
            stages["the backward pass of backward"] = lambda: call.again(cotangents).gradients()
    vectors = tangents_of(subject)
    if vectors:
        watched += Watched.all("tangent", vectors)
        stages["forward mode"] = lambda: push(subject, vectors)
    for name, stage in stages.items():
        yield from _stage(name, stage, watched, names)


def _stage(
    name: str, stage: Callable[[], object], watched: Iterable[Watched], held: Container[str]
) -> Iterator[Verdict]:
    """Run a stage, which may raise, and yield whether it seeds a generator, and whether it changes a tensor."""
    verdict, error = _unseeded(name, partial(tried, stage))
    yield verdict
    how = f", which raised {class_of(error)}," if isinstance(error, Exception) else ""
    yield _unchanged(name, watched, held, how)


def _same_items(before: Mapping[str, object], after: Mapping[str, object]) -> Verdict:
    """Return whether containers have the same items as before forward. The keys are the names of the items."""
    for name in {**before, **after}:
        if name in before and name in after:
            one, other = before[name], after[name]
            is_plain = isinstance(one, PLAIN)
            is_same = one is other or (is_plain and type(one) is type(other) and one == other)
            how = "" if is_same else f"is another {'value' if is_plain else 'object'}"
        else:
            how = "is removed" if name in before else "is added"
        if how:
            return fails(f"purity: forward changes what it is given: {name} {how}", MEANT)
    return HOLDS


def _unseeded(stage: str, run: Callable[[], T]) -> tuple[Verdict, T]:
    """Run a stage. Return whether it does not seed a global random generator, and its return value.

    A stage that changes the state of a generator runs again from another seed. If the state is the same afterwards, the
    stage has seeded the generator.
    """
    watched = [*generators()]
    for one in watched:
        one.seed(SEEDS[0])
    before = [one.read() for one in watched]
    returned = run()
    drawn = [(one, one.read()) for one, state in zip(watched, before, strict=True) if not one.has_state(state)]
    if not drawn:
        return HOLDS, returned
    for one, _ in drawn:
        one.seed(SEEDS[1])
    returned = run()
    seeded = next((one for one, after in drawn if one.has_state(after)), None)
    if seeded is None:
        return HOLDS, returned
    return fails(f"purity: {stage} seeds {seeded.name}, so that later random numbers repeat", seeded.remedy), returned


def _unchanged(
    stage: str, watched: Iterable[Watched], held: Container[str], how: str = "", advice: str = ""
) -> Verdict:
    """Return whether a stage has left the watched tensors unchanged.

    held: the names of the tensors that the operator captures, for which there is no code in plain torch.
    how: text about an exception that the stage raised; advice: what to write in the spec.
    """
    changed = [(item.name, change) for item in watched if (change := item.change())]
    if not changed:
        return HOLDS
    (name, change), *others = changed
    before, more, itself = STAGES[stage]
    given = f"{before}given = [*inputs, *constants{more}]\nexpected = [x.detach().clone() for x in given]"
    code = "" if name in held else asserted(f"{given}\n{itself}\nactual = [x.detach() for x in given]")
    detail = "\n".join(filter(None, [*(other for _, other in others), advice]))
    return fails(f"purity: {stage}{how} changes what it is given: {change}", detail, code=code)


check = PerSample(judge)
