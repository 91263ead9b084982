"""Computes which differentiable functions of a module have a spec, and to which file a missing spec would be added."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from opcheck.devices.device import CPU
from opcheck.draft.search import CONSTANT
from opcheck.draft.target import names, resolve_either
from opcheck.draft.trial import trial
from opcheck.draft.workplace import Trial, Workplace
from opcheck.running.own_process import Ended, apart
from opcheck.spec.allow_list import PARTS
from opcheck.spec.library import Library, Operator
from opcheck.spec.problems import nearest
from opcheck.spec.values import CallValue, parts


@dataclass(frozen=True)
class Covered:
    """What specs cover of one module."""

    module: str
    specified: tuple[str, ...]
    """The differentiable functions, and classes of modules, that have a spec."""
    without: tuple[str, ...]
    """The differentiable functions, and classes of modules, that have no spec."""
    unknown: dict[str, str]
    """The functions without a spec that accept none of the guesses, with the reasons. They may be differentiable."""
    nearest: dict[str, str]
    """The nearest spec file for each function in `without` or `unknown`; an empty string if there is none."""
    constant: dict[str, str]
    """The functions without a spec that have no gradient, or nothing to differentiate, and why. Not counted."""

    @property
    def total(self) -> int:
        """The number of functions that are differentiable, or may be."""
        return len(self.specified) + len(self.without) + len(self.unknown)


def share(several: Iterable[Covered]) -> float:
    """Return the share of the differentiable functions that have a spec; 1 if there are none.

    Functions that may be differentiable count as differentiable.
    """
    rows = list(several)
    total = sum(row.total for row in rows)
    return sum(len(row.specified) for row in rows) / total if total else 1.0


def modules_of(target: str) -> list[str]:
    """Return a module, and its submodules in which specs may name functions, such as `torch.linalg` for torch."""
    kinds = {"operator", "class of modules"}
    return [target, *(part for part in PARTS if part.startswith(f"{target}.") and kinds & {*PARTS[part].kinds})]


def cover(module: str, library: Library, workplace: Workplace, processes: int) -> Covered:
    """Return what the specs of a library cover of a module. Raises Unresolved if there is no such module.

    Functions without a spec are called with guesses, as by `opcheck new`. Those without a gradient are not counted. A
    function that accepts no guess is unknown, unless it certainly has nothing to differentiate.

    processes: the number of functions to try at the same time.
    """
    workplace.enter()
    known = [name for name, why in names(module, workplace.settings.modules).items() if not why]
    specs = by_path(library)
    for path, makers in _making(library).items():
        if path in known and not isinstance(resolve_either(path, workplace.settings.modules), type):
            specs.setdefault(path, makers)
    missing = [name for name in known if name not in specs]
    without, unknown, constant = list[str](), dict[str, str](), dict[str, str]()
    work = partial(trial, workplace=replace(workplace, runs_cases=False))
    answers = apart(work, list(map(Trial, missing)), processes, 2 * workplace.budget, fresh=True)
    for name, own in zip(missing, answers, strict=True):
        if isinstance(own, Ended):
            unknown[name] = own.why
        elif own.refusal in CONSTANT:
            constant[name] = own.refusal
        elif own.draft is None:
            unknown[name] = own.refusal
        elif own.draft.backward is False:
            _, constant[name] = own.draft.supports["backward"]
        else:
            without.append(name)
    return Covered(
        module,
        specified=tuple(name for name in known if name in specs and _differentiates(specs[name])),
        without=tuple(without),
        unknown=unknown,
        nearest={name: _file_for(name, specs) for name in (*without, *unknown)},
        constant=constant,
    )


def _making(operators: Iterable[Operator]) -> dict[str, list[Operator]]:
    """Return the specs of modules by the callables that make constructor arguments, such as a parametrization."""
    made = defaultdict(list)
    for operator in operators:
        module = operator.spec.module
        for _, part in parts([module.args, module.kwargs]) if module else ():
            if isinstance(part, CallValue):
                made[part.call.replace(":", ".")].append(operator)
    return made


def by_path(operators: Iterable[Operator]) -> dict[str, list[Operator]]:
    """Return the specs by each path that they give for their operator: name, aliases and variants."""
    named = defaultdict(list)
    for operator in operators:
        ways = (variant.path for variant in operator.variants)
        for path in dict.fromkeys([operator.spec.name, *operator.spec.aliases, *ways]):
            named[path.replace(":", ".")].append(operator)
    return named


def _differentiates(operators: Sequence[Operator]) -> bool:
    cpu = CPU.profile
    return any(operator.on(cpu).supports.backward is not False for operator in operators)


def _file_for(name: str, specs: dict[str, list[Operator]]) -> str:
    """Return the spec file to add a function to; empty if no function of its module has a spec.

    It has the spec of the most similar name in the module, else the most specs of the module.
    """
    home = name.rpartition(".")[0]
    alike = [path for path in specs if path.rpartition(".")[0] == home]
    near = nearest(name, alike)
    files = Counter(specs[path][0].document.file for path in ([near] if near else alike))
    return files.most_common(1)[0][0] if files else ""
