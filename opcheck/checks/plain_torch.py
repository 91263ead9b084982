"""Writes a failure as a script in plain torch. It ends with an assertion that fails until the operator is fixed.

The script contains the inputs of the failing sample, the call of the operator, and a comparison: a derivative along two
directions with central differences, or the code that the check adds to its verdict (`Verdict.code`). That code may use
the `function`, its `inputs`, inputs at another point of the sample (`others`), its other tensors (`*constants`), and
its derivatives `pulled` and `pushed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from opcheck.checks.subject import Context, Subject
from opcheck.checks.verdict import Verdict
from opcheck.derivatives.check_claim import derivative_named, derivative_of
from opcheck.samples.cache import Cache
from opcheck.samples.inputs import Slot, parts
from opcheck.samples.modules import ModuleCall
from opcheck.samples.realize import constants
from opcheck.samples.results import has_derivative
from opcheck.samples.source import DRAWING, Source, Unwritable, tensor
from opcheck.text import printable

HELPERS = {
    "pulled(": """
def pulled(outputs, inputs, cotangents):
    return torch.autograd.grad(outputs, inputs, cotangents, retain_graph=True, materialize_grads=True)
""",
    "pushed(": """
def pushed(function, inputs, tangents):
    with fwad.dual_level():
        duals = [fwad.unpack_dual(y) for y in function(*map(fwad.make_dual, inputs, tangents))]
        return [torch.zeros_like(y) if t is None else t for y, t in duals]
""",
}
"""Functions that compute derivatives in reverse and in forward mode. The keys are the beginnings of their calls."""

STEPS = {
    "rev": """

def {name}(*arguments):
    inputs, cotangents = arguments[:{count}], arguments[{count}:]
    outputs = {inner}(*inputs)
    return torch.autograd.grad(outputs, inputs, cotangents, create_graph=True, materialize_grads=True)

""",
    "fwd": """

def {name}(*arguments):
    return pushed({inner}, arguments[:{count}], arguments[{count}:])

""",
}
"""Definitions of the derivative of a function as a function, which can be differentiated again, by mode."""

ALONG = """\
h = {eps:g}
above = {function}(*(x + h * t for x, t in zip(inputs, tangents)))
below = {function}(*(x - h * t for x, t in zip(inputs, tangents)))
expected = sum((v.conj() * (a - b)).real.sum() / (2 * h) for v, a, b in zip(cotangents, above, below))
"""
BY_MODE = {
    "reverse": """\
gradients = pulled({function}(*inputs), inputs, cotangents)
actual = sum((g.conj() * t).real.sum() for g, t in zip(gradients, tangents))
""",
    "forward": """\
results = pushed({function}, inputs, tangents)
actual = sum((v.conj() * y).real.sum() for v, y in zip(cotangents, results))
""",
}

CALL = """\
torch.manual_seed(0)
outputs = function(*inputs)
cotangents = [torch.randn_like(y) for y in outputs]
"""
TANGENTS = """\
torch.manual_seed(0)
inputs = [x.detach() for x in inputs]
vectors = [torch.randn_like(x) for x in inputs]"""
VALUES, GRADIENTS = "function(*inputs)", "pulled(function(*inputs), inputs, cotangents)"
"""Expressions for the values of a call, and for its gradients for the cotangents of `CALL`."""


def for_vectors(varied: str, factor: str = "", *, forward: bool = False) -> str:
    """Return code that computes derivatives for varied cotangents (`actual`) and for plain ones (`expected`).

    varied: an expression for the varied vector, in terms of a vector `v`.
    factor: the code of a number c, if the varied vector is c v: then c times the derivative for `v` is expected.
        Empty: the derivative for a contiguous copy of the varied vector is expected.
    forward: whether to vary tangents instead of cotangents.
    """
    drawn, derivative = f"{CALL}vectors = cotangents", "pulled(outputs, inputs"
    if forward:
        drawn, derivative = TANGENTS, "pushed(function, inputs"
    like, scaled = ("vectors", f"\nexpected = [{factor} * y for y in expected]") if factor else ("varied", "")
    return f"""\
{drawn}
varied = [{varied} for v in vectors]
actual = {derivative}, varied)
vectors = [v.resolve_conj().resolve_neg().contiguous() for v in {like}]
expected = {derivative}, vectors){scaled}"""


def asserted(code: str, tolerance: str = "") -> str:
    """Return code that defines `actual` and `expected`, followed by the assertion that they are close.

    Returns an empty string if `code` is empty.
    """
    return f"{code}\ntorch.testing.assert_close(actual, expected{tolerance})" if code else ""


def script_of(context: Context, verdict: Verdict) -> str:
    """Return a script that reproduces the failure of a verdict. Raises Unwritable if plain torch cannot express it."""
    subject = _subject(context, verdict)
    source = Source(subject.function, subject.leaf_names)
    function = "\n".join(_function(subject, source))
    code = verdict.code or _jacobian(subject, next(iter(verdict.fields.get("worst", ())), None))
    defined = (definition.partition(" = ")[0] for definition in source.definitions)
    constants = "".join(f", {name}" for name in defined if name != "module")
    body = "\n".join([*_inputs(subject, source, code), code.replace(", *constants", constants)])
    helpers = [helper.strip() for name, helper in HELPERS.items() if name in body]
    imports = ["import torch", *["import torch.autograd.forward_ad as fwad"] * ("fwad." in "".join(helpers))]
    own = dict.fromkeys([*subject.case.operator.spec.imports, *source.imports])
    imports += ["", *(f"import {name}" for name in own)] if own else []
    head = [f"# {subject.case.operator.id}: {printable(verdict.title)}", *imports]
    is_drawn = any(call in text for text in (*source.definitions, body) for call in DRAWING)
    head += ["", "torch.manual_seed(0)"] if is_drawn else []
    head += ["", *source.definitions] if source.definitions else []
    return "\n\n\n".join(["\n".join(head), *helpers, function, body]) + "\n"


def _subject(context: Context, verdict: Verdict) -> Subject:
    """Return the operator at new inputs of the sample that fails. Raises Unwritable."""
    named = {sample.name: sample for sample in context.case.samples}
    check, sample = verdict.at or (context.case.check, named.get(str(verdict.sample)))
    if sample is None:
        raise Unwritable("the failure belongs to no single sample")
    if context.case.operator.spec.surrogate:
        raise Unwritable("the gradient is meant to be that of a surrogate")
    through = next((recipe.through for recipe in sample.tensors if recipe.through), "")
    if through:
        raise Unwritable(f'a tensor is passed through "{through}"')
    if not verdict.code and derivative_named(check) is None:
        raise Unwritable(f"what {check} compares here cannot be written as a script")
    subject = replace(context.under(check), cache=Cache()).subject(sample)
    return subject.elsewhere() if verdict.elsewhere else subject


def _inputs(subject: Subject, source: Source, code: str) -> Iterator[str]:
    """Yield the definition of `inputs`, and of `others` if the code uses them."""
    yield "inputs = ["
    yield from (f"    {x}.requires_grad_(),  # {name}" for x, name in zip(source.leaves(), source.names, strict=True))
    yield "]"
    if "others" in code:
        yield "others = ["
        yield from (f"    {x}," for x in replace(source, function=subject.elsewhere().function).leaves())
        yield "]"


def _function(subject: Subject, source: Source) -> Iterator[str]:
    """Yield the lines that define the tested function of the inputs. It returns a list of outputs."""
    function, names, path = subject.function, source.names, subject.case.variant.path
    module = _module(subject, source) if isinstance(function.operator, ModuleCall) else ""
    call, result = source.call(path, module), subject.result
    yield f"def function({', '.join(names)}):"
    if function.is_random:
        yield f"    torch.manual_seed({function.seed})\n    torch.rand(())"  # as TestedFunction.reseed does
    changed = function.written_among(function.inputs.args, function.inputs.kwargs)
    if not all(isinstance(part, Slot) for part in parts([*changed.values()])):
        raise Unwritable("it writes to something else than a tensor that requires grad")
    for index in function.written:
        yield f"    {names[index]} = {names[index]}.clone()"
    smooth = subject.output_info.requires_grad and subject.check != "detached"
    outputs = source.outputs(result, lambda y: y.requires_grad if smooth else has_derivative(y))
    if outputs == ["result"] and not changed:
        yield f"    return [{call}]"
        return
    yield f"    result = {call}"
    if "" in changed:
        yield from (f"    result = {names[index]} if result is None else result" for index in function.written)
    elif changed:
        items = ["'returned': result"] if "returned" in result else []
        items += [f"{name!r}: {source.expression(own)}" for name, own in changed.items()]
        yield f"    result = {{{', '.join(items)}}}"
    yield f"    return [{', '.join(outputs)}]"


def _module(subject: Subject, source: Source) -> str:
    """Return an expression that constructs the module. Raises Unwritable if the module is lazy."""
    context, path = subject.context, subject.case.variant.path
    recipe = context.module(path, subject.sample)
    if recipe is None or subject.function.operator.is_lazy:  # type: ignore[attr-defined]
        raise Unwritable("the module is lazy")
    args, kwargs = constants(recipe.spec, context.case.dtype, context.settings.modules)
    listed = [*map(source.expression, args), *(f"{k}={source.expression(v)}" for k, v in kwargs.items())]
    mode = "" if recipe.spec.train else ".eval()"
    return f"{source.path(path)}({', '.join(listed)}).to({context.dtype}){mode}"


def _jacobian(subject: Subject, worst: dict[str, Any] | None) -> str:
    """Return code that compares a derivative along two directions with central differences. Raises Unwritable.

    worst: the worst entry of the Jacobian, which gives the directions; None for random directions.
    """
    steps, mode = derivative_of(subject.check)
    if not set(steps) <= set(STEPS) or (steps[:1] == ("fwd",) and mode == "forward"):
        raise Unwritable("it is a derivative by transforms of torch.func")
    point, function, lines = subject.point, "function", list[str]()
    for order, step in enumerate(steps, start=1):
        name, count = f"{'backward' if step == 'rev' else 'forward'}{order}", len(point.leaves)
        point = point.derived(step)
        lines.append(STEPS[step].format(name=name, inner=function, count=count))
        more = ", ".join(f"{tensor(leaf.detach())}.requires_grad_()" for leaf in point.leaves[count:])
        lines.append(f"inputs += [{more}]")
        function = name
    lines += [] if worst else ["torch.manual_seed(0)"]
    for what, like, at in (("tangents", "inputs", "leaf"), ("cotangents", f"{function}(*inputs)", "output")):
        lines.append(f"{what} = [torch.{'zeros' if worst else 'randn'}_like(y) for y in {like}]")
        if worst:
            index = ", ".join(map(str, worst[f"{at}_index"])) or "()"
            lines.append(f"{what}[{worst[at]}][{index}] = {'1j' if worst[f'{at}_part'] == 'imag' else '1'}")
    numbers = subject.numbers
    off = abs(worst["numerical"] - worst["analytical"]) / 2 if worst else numbers.atol
    atol = min(numbers.atol, off) if off == off else numbers.atol
    lines += [code.format(eps=numbers.eps, function=function).rstrip() for code in (ALONG, BY_MODE[mode])]
    lines.append(f"torch.testing.assert_close(actual, expected, rtol={numbers.rtol:g}, atol={atol:.1g})")
    return "\n".join(lines)
