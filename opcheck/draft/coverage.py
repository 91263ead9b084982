"""What specs cover of a module: which of its differentiable functions have one, and where one would go."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from opcheck.draft.target import names
from opcheck.draft.trial import looked_at
from opcheck.draft.workplace import Trial, Workplace
from opcheck.running.apart import apart, parted
from opcheck.spec.device import DeviceProfile
from opcheck.spec.library import Library, Operator
from opcheck.spec.names import PARTS
from opcheck.spec.problems import nearest


@dataclass(frozen=True)
class Covered:
    """What specs cover of one module."""

    module: str
    specified: tuple[str, ...]
    """The differentiable functions, and classes of modules, that have a spec."""
    without: dict[str, str]
    """Those that have none, each with the spec file nearest to it; an empty text if there is none."""
    untried: dict[str, str]
    """Those of `without` that take no guess, and why: whether they are differentiable is not known."""

    @property
    def total(self) -> int:
        """The number of differentiable functions."""
        return len(self.specified) + len(self.without)


def share(several: Iterable[Covered]) -> float:
    """Return the share of the differentiable functions that have a spec; 1 if there are none."""
    rows = list(several)
    total = sum(row.total for row in rows)
    return sum(len(row.specified) for row in rows) / total if total else 1.0


def modules_of(target: str) -> list[str]:
    """Return a module, and the parts of it that specs may name functions in: of torch, `torch.linalg` and others."""
    kinds = {"operator", "class of modules"}
    return [target, *(part for part in PARTS if part.startswith(f"{target}.") and kinds & {*PARTS[part].kinds})]


def cover(module: str, library: Library, workplace: Workplace, processes: int) -> Covered:
    """Return what the specs of a library cover of a module. Raises Unresolved if there is no such module.

    Functions without a spec are tried with guesses, as `opcheck new` does, and those that have no gradient left out.
    What takes no guess counts: it may be differentiable.

    processes: how many functions are tried at the same time.
    """
    workplace.enter()
    known = [name for name, why in names(module, workplace.settings.modules).items() if not why]
    specs = by_path(library)
    missing = [name for name in known if name not in specs]
    work = partial(looked_at, workplace=workplace)
    tries, lost = parted(missing, apart(work, list(map(Trial, missing)), processes, 2 * workplace.budget, fresh=True))
    untried = {name: own.refusal for name, own in tries.items() if not own.drafts} | lost
    differentiable = {name for name in missing if name in untried or tries[name].drafts[0].has_backward}
    return Covered(
        module,
        tuple(name for name in known if name in specs and _differentiates(specs[name])),
        {name: _file_for(name, specs) for name in missing if name in differentiable},
        untried,
    )


def by_path(operators: Iterable[Operator]) -> dict[str, list[Operator]]:
    """Return the specs under all the names that they call their operator by."""
    named = defaultdict(list)
    for operator in operators:
        ways = (variant.path for variant in operator.variants)
        for path in dict.fromkeys([operator.spec.name, *operator.spec.aliases, *ways]):
            named[path.replace(":", ".")].append(operator)
    return named


def _differentiates(operators: Sequence[Operator]) -> bool:
    cpu = DeviceProfile(name="cpu")
    return any(operator.on(cpu).supports.backward is not False for operator in operators)


def _file_for(name: str, specs: dict[str, list[Operator]]) -> str:
    """Return the file with the spec of the most similar name, else the one with the most specs of the same module."""
    home = name.rpartition(".")[0]
    alike = [path for path in specs if path.rpartition(".")[0] == home]
    near = nearest(name, alike)
    files = Counter(specs[path][0].document.file for path in ([near] if near else alike))
    return files.most_common(1)[0][0] if files else ""
