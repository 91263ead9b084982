"""Writes a failure as a script of plain torch, which ends with an assertion that fails as long as it is so.

The script has the inputs of the sample that fails, the call of the operator, and what the check objects to: a
derivative along two directions against central differences, or two calls that differ in one respect. Which respect, the
title of the verdict tells.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from opcheck.checks.base import Context, Subject
from opcheck.checks.verdict import Verdict
from opcheck.derivatives.claims import steps_of
from opcheck.samples.cache import Cache
from opcheck.samples.modules import ModuleCall
from opcheck.samples.realize import constants
from opcheck.samples.source import DRAWING, Source, Unwritable, tensor
from opcheck.text import printable

T = TypeVar("T")

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
"""The derivatives of a function by reverse and by forward mode, by what calls them."""

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
"""The derivative of a function as a function."""

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

TRANSPOSED = "v.permute(*range(v.dim())[::-1]).contiguous().permute(*range(v.dim())[::-1])"
BEHIND = "torch.cat([v.new_full((2,), 7), v.reshape(-1)])[2:].view(v.shape)"
WITH_GAPS = "torch.stack([torch.zeros_like(v), v], -1)[..., 1]"
VARIED = {
    "times -1000,": (-1000, "-1000 * v"),
    "times 0.001,": (0.001, "0.001 * v"),
    "lazily conjugated": (1, "v.conj().resolve_conj().conj()"),
    "lazily negated": (1, "torch.complex(torch.zeros_like(v.real), -v.real).conj().imag"),
    "in permuted memory": (1, TRANSPOSED),
    "behind others in memory": (1, BEHIND),
    "a non-contiguous cotangent": (1, WITH_GAPS),
    "stride 0 in the first dim": (1, "v[:1].expand(v.shape)"),
    "stride 0 in the last dim": (1, "v[..., :1].expand(v.shape)"),
    "an expanded (stride 0) cotangent": (1, "torch.ones((), dtype=v.dtype, device=v.device).expand(v.shape)"),
    "that is noncontiguous": (1, WITH_GAPS),
    "that is transposed": (1, TRANSPOSED),
    "that is offset": (1, BEHIND),
    "that is expanded": (1, "v[:1].expand(v.shape)"),
    "that is channels_last": (1, "v.contiguous(memory_format=torch.channels_last)"),
}
"""How a cotangent or a tangent differs from a plain one, and by which factor, by what a title says of it."""

DIRTY = "[torch.full((x.numel() * x.element_size(),), 255, dtype=torch.uint8) for x in 4 * [*inputs, *outputs]]"
AROUND = {
    "torch.no_grad()": "with torch.no_grad():",
    "torch.inference_mode()": "with torch.inference_mode():",
    "torch.autocast": 'with torch.autocast("cpu", dtype=torch.bfloat16):',
    "another number of threads": "torch.set_num_threads(torch.get_num_threads() + 1)",
    "deterministic mode": 'torch.set_deterministic_debug_mode("warn")',
    "memory with other contents": DIRTY,
}
"""What surrounds a call, by what a title says of it."""

AMONG = {
    "create_graph=True": "actual = torch.autograd.grad(outputs, inputs, cotangents, create_graph=True)",
    "that follow": "function(*others)\nactual = {call}",
    "with another one before its backward pass": (
        "outputs = function(*inputs)\nfunction(*others)\nactual = pulled(outputs, inputs, cotangents)"
    ),
    "that have changed in place since the last one": (
        "with torch.no_grad():\n    for x, other in zip(inputs, others):\n        x.copy_(other)\nactual = {call}\n"
        "inputs = [x.detach().clone().requires_grad_() for x in inputs]\nexpected = {call}"
    ),
    "with the random generator elsewhere in backward": (
        "outputs = function(*inputs)\ntorch.manual_seed(1)\nactual = pulled(outputs, inputs, cotangents)"
    ),
}
"""What happens between calls, by what a title says of it."""

STAGES = {
    "the backward pass of backward": (
        "cotangents = [v.requires_grad_() for v in cotangents]\n"
        "gradients = torch.autograd.grad(outputs, inputs, cotangents, create_graph=True, materialize_grads=True)",
        "smooth = [g for g in gradients if g.requires_grad]\n"
        "pulled(smooth, [*inputs, *cotangents], [torch.ones_like(g) for g in smooth])",
    ),
    "backward": ("", "pulled(outputs, inputs, cotangents)"),
    "forward mode": (
        "inputs = [x.detach() for x in inputs]\ntangents = [torch.randn_like(x) for x in inputs]",
        "pushed(function, inputs, tangents)",
    ),
    "forward": ("", "function(*inputs)"),
}
"""What leads to a stage, and the stage that changes what it is given."""


def written(context: Context, verdict: Verdict) -> str:
    """Return a script that is to fail as a verdict says. Raises Unwritable."""
    named = {sample.name: sample for sample in context.samples}
    check, sample = verdict.at or (context.case.check, named.get(str(verdict.sample)))
    if sample is None:
        raise Unwritable("the failure is of no single sample")
    if context.case.operator.spec.surrogate:
        raise Unwritable("the gradient is meant to be that of a surrogate")
    for through in filter(None, (recipe.through for recipe in sample.tensors())):
        raise Unwritable(f'a tensor is passed through "{through}"')
    subject = replace(context.under(check), cache=Cache()).subject(sample)
    if "wrong at another point" in verdict.title:
        check, subject = "backward", subject.elsewhere()
    elif "memory of the cotangent" in verdict.title:
        check = "linearity"
    return _Script(subject, check, f"{verdict.title}\n{verdict.detail}", verdict.fields).text()


class _Script:
    """A script about one check at one sample."""

    def __init__(self, subject: Subject, check: str, said: str, fields: dict[str, Any]) -> None:
        self.subject, self.check, self.said, self.fields = subject, check, said, fields
        self.title = said.partition("\n")[0]
        self.source = Source(subject.function, subject.leaf_names)

    def text(self) -> str:
        """Return the script. Raises Unwritable."""
        function, body = "\n".join(self.function()), "\n".join([*self.inputs(), self.body()])
        helpers = [helper.strip() for name, helper in HELPERS.items() if name in body]
        imports = ["import torch", *["import torch.autograd.forward_ad as fwad"] * ("fwad." in "".join(helpers))]
        own = dict.fromkeys([*self.subject.case.operator.spec.imports, *self.source.imports])
        imports += ["", *(f"import {name}" for name in own)] if own else []
        head = [f"# {self.subject.case.operator.id}: {printable(self.title)}", *imports]
        drawn = [*self.source.definitions, body]
        head += ["", "torch.manual_seed(0)"] if any(call in code for code in drawn for call in DRAWING) else []
        head += ["", *self.source.definitions] if self.source.definitions else []
        return "\n\n\n".join(["\n".join(head), *helpers, function, body]) + "\n"

    def inputs(self) -> Iterator[str]:
        """Yield the definition of the inputs."""
        yield "inputs = ["
        for value, name in zip(self.source.leaves(), self.source.names, strict=True):
            yield f"    {value}.requires_grad_(),  # {name}"
        yield "]"

    def function(self) -> Iterator[str]:
        """Yield the definition of the function of the inputs that is tested, which returns a list of outputs."""
        subject, source = self.subject, self.source
        function, names, path = subject.function, source.names, subject.case.variant.path
        module = ""
        if isinstance(function.operator, ModuleCall):
            module = self.module(path)
        call, result = source.call(path, module), subject.result
        yield f"def function({', '.join(names)}):"
        if function.seed is not None:
            yield "    torch.manual_seed(0)"
        if function.inplace and not function.written:
            raise Unwritable("it writes to something else than a tensor that requires grad")
        for index in function.written:
            yield f"    {names[index]} = {names[index]}.clone()"
        smooth = subject.output_info.requires_grad and self.check != "detached"
        outputs = source.outputs(
            result, lambda y: y.requires_grad if smooth else y.is_floating_point() or y.is_complex()
        )
        if outputs == ["result"] and not function.inplace:
            yield f"    return [{call}]"
            return
        yield f"    result = {call}"
        yield from (f"    result = {names[index]} if result is None else result" for index in function.written)
        yield f"    return [{', '.join(outputs)}]"

    def module(self, path: str) -> str:
        """Return an expression that constructs the module."""
        context = self.subject.context
        recipe = context.module(path)
        if recipe is None or self.subject.function.operator.is_lazy:  # type: ignore[attr-defined]
            raise Unwritable("the module is lazy")
        args, kwargs = constants(recipe.spec, context.case.dtype, context.settings.modules)
        listed = [*map(self.source.expression, args), *(f"{k}={self.source.expression(v)}" for k, v in kwargs.items())]
        mode = "" if recipe.spec.train else ".eval()"
        return f"{self.source.path(path)}({', '.join(listed)}).to({context.dtype}){mode}"

    def body(self) -> str:
        """Return what the check compares, and the assertion."""
        if steps_of(self.check) is not None:
            return self.jacobian()
        if self.check not in BODIES:
            raise Unwritable(f"what {self.check} compares has no such form")
        return BODIES[self.check](self)

    def named(self, table: Mapping[str, T]) -> T:
        """Return the entry of a table whose key occurs in what the check says. Raises Unwritable."""
        for key, value in table.items():
            if key in self.said:
                return value
        raise Unwritable("what differs between these two calls has no such form")

    def index(self, before: str, after: str = "") -> int:
        """Return the number of the input that the check names between two texts."""
        return self.named({f"{before}{name}{after}": k for k, name in enumerate(self.subject.leaf_names)})

    def jacobian(self) -> str:
        """Compare a derivative along two directions with central differences."""
        steps, mode = steps_of(self.check) or ((), "reverse")
        if not set(steps) <= set(STEPS) or (steps[:1] == ("fwd",) and mode == "forward"):
            raise Unwritable("it is a derivative by transforms of torch.func")
        point, function, lines = self.subject.point, "function", list[str]()
        for order, step in enumerate(steps, start=1):
            name, count = f"{'backward' if step == 'rev' else 'forward'}{order}", len(point.leaves)
            point = point.derived(step)
            lines.append(STEPS[step].format(name=name, inner=function, count=count))
            more = ", ".join(f"{tensor(leaf.detach())}.requires_grad_()" for leaf in point.leaves[count:])
            lines.append(f"inputs += [{more}]")
            function = name
        lines += self.directions(function)
        numbers, worst = self.subject.request.numbers, next(iter(self.fields.get("worst", ())), None)
        off = abs(worst["numerical"] - worst["analytical"]) / 2 if worst else numbers.atol
        atol = min(numbers.atol, off) if off == off else numbers.atol
        lines += [code.format(eps=numbers.eps, function=function).rstrip() for code in (ALONG, BY_MODE[mode])]
        lines.append(f"torch.testing.assert_close(actual, expected, rtol={numbers.rtol:g}, atol={atol:.1g})")
        return "\n".join(lines)

    def directions(self, function: str) -> Iterator[str]:
        """Yield the definitions of a tangent and a cotangent: those of the worst entry, if one is known."""
        worst = next(iter(self.fields.get("worst", ())), None)
        if worst is None:
            yield "torch.manual_seed(0)"
        for name, like, at in (("tangents", "inputs", "leaf"), ("cotangents", f"{function}(*inputs)", "output")):
            yield f"{name} = [torch.{'randn' if worst is None else 'zeros'}_like(y) for y in {like}]"
            if worst is not None:
                index = ", ".join(map(str, worst[f"{at}_index"])) or "()"
                yield f"{name}[{worst[at]}][{index}] = {'1j' if worst[f'{at}_part'] == 'imag' else '1'}"

    def linearity(self) -> str:
        """Compare the derivatives for a vector of another size, or in another memory, with those for a plain one."""
        factor, varied = self.named(VARIED)
        plain = "v.resolve_conj().resolve_neg().contiguous()"
        if "the tangents for" in self.said:
            what, lines = (
                "pushed(function, inputs, {})",
                ["torch.manual_seed(0)", "inputs = [x.detach() for x in inputs]"],
            )
            lines.append("vectors = [torch.randn_like(x) for x in inputs]")
        else:
            what, lines = "pulled(outputs, inputs, {})", [CALL.strip(), "vectors = cotangents"]
        lines.append(f"varied = [{varied} for v in vectors]")
        lines.append(f"actual = {what.format('varied')}")
        lines.append(f"vectors = [{plain} for v in {'varied' if factor == 1 else 'vectors'}]")
        lines.append(f"expected = {what.format('vectors')}")
        lines.append(f"expected = [{factor} * y for y in expected]" if factor != 1 else "")
        return _asserted(lines)

    def context(self) -> str:
        """Compare a call in other surroundings, or among other calls, with one before it."""
        said, call = self.said, "function(*inputs)" if "the values" in self.said else PULL
        among = next((code for key, code in AMONG.items() if key in said), "")
        lines = [CALL.strip(), *(self.others() if "others" in among else ()), f"expected = {call}"]
        if among:
            return _asserted([*lines, among.format(call=call)])
        around = self.named(AROUND)
        forward_alone = "in forward alone" in said and call == PULL
        body = ["outputs = function(*inputs)"] if forward_alone else [f"actual = {call}"]
        indent = "    " if around.startswith("with ") else ""
        lines += [around, *(indent + line for line in body)]
        lines += ["actual = pulled(outputs, inputs, cotangents)"] if forward_alone else []
        return _asserted(lines)

    def others(self) -> Iterator[str]:
        """Yield the definition of other inputs, for calls in between."""
        function = self.subject.elsewhere().function
        values = replace(self.source, function=function).leaves()
        yield "others = ["
        yield from (f"    {value}," for value in values)
        yield "]"

    def needs_input_grad(self) -> str:
        """Compare a call where only some inputs require grad with one where all do."""
        call, lines = "function(*some)", [CALL.strip(), "some = [x.detach() for x in inputs]"]
        values = "the values" in self.said
        if "no input requires grad" in self.said:
            chosen = list[int]()
        elif "all inputs but" in self.said:
            left_out = self.index("all inputs but ", " require grad")
            chosen = [index for index in range(len(self.subject.leaves)) if index != left_out]
        elif "second derivative" in self.said:
            raise Unwritable("second derivatives by one input have no such form")
        else:
            chosen = [self.index("only ", " requires grad")]
        lines += [f"some[{index}].requires_grad_()" for index in chosen]
        if values:
            return _asserted([*lines, f"actual, expected = {call}, outputs"])
        lines.append(f"actual = pulled({call}, [some[k] for k in {chosen}], cotangents)")
        lines.append(f"expected = [pulled(outputs, inputs, cotangents)[k] for k in {chosen}]")
        return _asserted(lines)

    def nondeterminism(self) -> str:
        """Compare backward passes of one graph."""
        if "of backward" in self.said:
            raise Unwritable("backward passes of backward have no such form")
        atol = self.subject.request.numbers.nondeterminism
        lines = [CALL.strip(), "expected = [pulled(outputs, inputs, cotangents)] * 8"]
        lines.append("actual = [pulled(outputs, inputs, cotangents) for _ in expected]")
        return _asserted(lines, f", rtol=0, atol={atol:g}")

    def purity(self) -> str:
        """Compare what a stage is given with what it was before."""
        found = re.search(r"purity: (.*?)(?:, which raised .*,)? changes what it is given: (\w+)", self.said)
        if found is None or found[1] not in STAGES or found[2] not in ("argument", "output", "cotangent", "tangent"):
            raise Unwritable("what the operator holds has no such form")
        before, stage = STAGES[found[1]]
        others = re.findall(r"^(\w+) = torch", "\n".join(self.source.definitions), re.MULTILINE)
        given = ["*inputs", *others]
        given += ["*outputs", "*cotangents"] if found[1] != "forward" else []
        given += ["*tangents"] if found[1] == "forward mode" else []
        lines = [] if found[1] == "forward" else [CALL.strip()]
        lines += [
            *before.splitlines(),
            f"given = [{', '.join(given)}]",
            "expected = [x.detach().clone() for x in given]",
        ]
        return _asserted([*lines, *stage.splitlines(), "actual = [x.detach() for x in given]"])

    def aliasing(self) -> str:
        """Compare the gradient of one tensor in two places with the sum of those of two."""
        pairs = {
            f"for one tensor as both {one} and {other}": (i, j)
            for i, one in enumerate(self.subject.leaf_names)
            for j, other in enumerate(self.subject.leaf_names)
        }
        i, j = self.named(pairs)
        lines = [f"inputs[{j}] = inputs[{i}].detach().clone().requires_grad_()", CALL.strip()]
        lines += ["gradients = pulled(outputs, inputs, cotangents)", f"inputs[{j}] = inputs[{i}]"]
        if "the values" in self.said:
            return _asserted([*lines, "actual, expected = function(*inputs), outputs"])
        lines.append(f"actual = pulled(function(*inputs), [inputs[{i}]], cotangents)")
        return _asserted([*lines, f"expected = [gradients[{i}] + gradients[{j}]]"])

    def vmap(self) -> str:
        """Compare a batch with the loop over it."""
        if "by vmap of vmap" in self.said:
            raise Unwritable("a batch of batches has no such form")
        found = re.search(r"batched over inputs \[([\d, ]*)\]", self.said)
        chosen = [*range(len(self.subject.leaves))] if found is None else [int(k) for k in found[1].split(",")]
        dim, rows = -1 if "along the last dimension" in self.said else 0, 1 if "in a batch of one" in self.said else 2
        in_dims = tuple(dim if index in chosen else None for index in range(len(self.subject.leaves)))
        lines = ["inputs = [x.detach() for x in inputs]"]
        lines.append(
            f"rows = [[x * (1 + n / 64) if k in {chosen} else x for k, x in enumerate(inputs)] for n in range({rows})]"
        )
        lines.append("expected = [torch.stack(ys) for ys in zip(*(function(*row) for row in rows))]")
        lines.append(f"batch = [torch.stack(xs, {dim}) if k in {chosen} else xs[0] for k, xs in enumerate(zip(*rows))]")
        lines.append(f'actual = torch.func.vmap(function, in_dims={in_dims}, randomness="same")(*batch)')
        return _asserted(lines)

    def batched_grad(self) -> str:
        """Compare a batch of backward passes with the loop over it."""
        lines = [CALL.strip(), "batch = [torch.stack([v, 2 * v]) for v in cotangents]"]
        lines.append("actual = torch.func.vmap(lambda *vs: pulled(outputs, inputs, vs))(*batch)")
        lines.append("expected = [torch.stack([g, 2 * g]) for g in pulled(outputs, inputs, cotangents)]")
        return _asserted(lines)

    def detached(self) -> str:
        """Say that an output requires grad that depends on the inputs."""
        smooth = [k for k, y in enumerate(self.subject.outputs) if y.is_floating_point() or y.is_complex()]
        index = re.search(r"output (\d+) does not require grad", self.said)
        if index is None:
            raise Unwritable("the output has a name")
        return f"assert function(*inputs)[{smooth.index(int(index[1]))}].requires_grad, 'it depends on the inputs'"


PULL = "pulled(function(*inputs), inputs, cotangents)"

BODIES: dict[str, Callable[[_Script], str]] = {
    "linearity": _Script.linearity,
    "context": _Script.context,
    "needs_input_grad": _Script.needs_input_grad,
    "nondeterminism": _Script.nondeterminism,
    "purity": _Script.purity,
    "aliasing": _Script.aliasing,
    "vmap": _Script.vmap,
    "batched_grad": _Script.batched_grad,
    "detached": _Script.detached,
}
"""What checks compare that are about no Jacobian."""


def _asserted(lines: list[str], tolerance: str = "") -> str:
    """Return lines that define what is actual and what is expected, with the assertion that both are the same."""
    return "\n".join([*filter(None, lines), f"torch.testing.assert_close(actual, expected{tolerance})"])
