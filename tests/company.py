"""The verdicts of one operator in many selections and orders of its cases, each as in a process of its own."""

from __future__ import annotations

import inspect
import random
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import torch
from operators import corpus, habits, incomplete, modules, old_style, scaled
from planted import ROOT

from opcheck.planning import Case, Selection, load, plan
from opcheck.running.outcome import Outcome
from opcheck.running.runner import run
from opcheck.running.session import RunSession
from opcheck.settings import Settings
from opcheck.spec.device_profile import profiles

COLLECTIONS = (
    "awkward", "coarse", "diagnosed", "faulty", "habits", "on_device", "orders", "partial", "registered", "results",
    "right", "side_effects", "spoiling",
)  # fmt: skip
"""The modules whose functions are operators. Those of the others have specs of their own below."""
FURTHER = ("incomplete", "isolated", "modules", "objects", "old_style", "references", "scaled")
LIBRARY = (
    "torch.add", "torch.amax", "torch.bmm", "torch.clamp", "torch.cumprod", "torch.div", "torch.exp", "torch.gather",
    "torch.index_select", "torch.linalg.cholesky", "torch.linalg.solve", "torch.logsumexp", "torch.matmul",
    "torch.mul", "torch.nn.functional.batch_norm", "torch.nn.functional.gelu", "torch.nn.functional.layer_norm",
    "torch.nn.functional.softplus", "torch.prod", "torch.sqrt",
)  # fmt: skip
NO_OPERATORS = {"function", "slope", "right_vjp", "right_jvp", "in_single", "noise"}
SPOILING = "supports = { second_order = false, forward_ad = false, vmap = false, batched_grad = false, out = false }"
REMEMBERING = (
    "operators.habits.WrongNowAndThen.apply", "operators.habits.CachesByShape.apply", "operators.diagnosed.scripted",
    "operators.diagnosed.scripted_in_part", "operators.diagnosed.scripted_and_cut",
    "operators.habits.RandomAtSecondOrder.apply", "operators.side_effects.grows_with_each_call",
)  # fmt: skip
"""What they have done before, they remember where nobody can put it back: a count of calls, at some of which the first
is wrong; a cache, which the first call fills; the code that TorchScript makes after a few calls; random numbers, some
of which evidence for other checks has drawn. Each always fails something; what else, and what is blame, depends on what
ran before."""
CLAIMS = {
    "habits": "supports = { forward_ad = FORWARD, out = false, vmap = false, batched_grad = false }",
    "spoiling": SPOILING,
}
TENSOR = "{ shape = [2, 3], low = 0.5, high = 2 }"
PAIR = f'{{ call = "operators.objects.Pair", args = [{TENSOR}, {TENSOR}] }}'
RAYS = f'{{ call = "operators.objects.Rays", args = [{TENSOR}], kwargs = {{ direction = {TENSOR}, far = 0.5 }} }}'
OBJECTS = {"product": PAIR, "wrong_product": PAIR, "ends": RAYS, "wrong_ends": RAYS, "spoiling_ends": RAYS}
SETTINGS = Settings(modules=("torch", "operators"))

COARSE = ("float32", "bfloat16")

Verdicts = dict[str, tuple[str, str]]
"""Outcome and reason by the id of a case. The reason is without numbers: those of a random operator vary."""


@dataclass(frozen=True)
class Operator:
    """The name of an operator, and its spec: TOML, or a file of the library."""

    name: str
    spec: str | Path
    dtypes: tuple[str, ...] = ("float64", "complex128")

    def cases(self, folder: Path) -> list[Case]:
        """Return the cases of the operator."""
        path = self.spec
        if isinstance(path, str):
            path = folder / "spec.toml"
            path.write_text(str(self.spec), encoding="utf-8")
        chosen = Selection(operators=(self.name,), dtypes=self.dtypes)
        return plan(load([path], SETTINGS), [profiles()["cpu"]], chosen)


def operators() -> list[Operator]:
    """Return each operator of the collections, right or wrong, and some of the library."""
    found = [Operator(name, _spec(name)) for kind in COLLECTIONS for name in _of(kind)]
    found += _further()
    found += [of_corpus(entry) for entry in (*corpus.FAULTS, *corpus.LOW_ACCURACY)]
    files = sorted((ROOT / "specs").rglob("*.toml"))
    homes = {name: file for file in files for name in re.findall(r'(?m)^name\s*=\s*"([^"]+)"', file.read_text("utf-8"))}
    return [one for one in found if one.name not in REMEMBERING] + [Operator(name, homes[name]) for name in LIBRARY]


def remembering(name: str) -> Operator:
    """Return one of the operators that remember what they have done before."""
    return Operator(name, _spec(name))


def _of(kind: str) -> Iterator[str]:
    """Yield the operators of a module: what its functions are, and the autograd functions of the habits."""
    for name, value in vars(import_module(f"operators.{kind}")).items():
        if inspect.isfunction(value) and not name.startswith("_") and name not in NO_OPERATORS:
            yield f"operators.{kind}.{name}"
    if kind == "habits":
        yield from (f"operators.habits.{n}.apply" for names in habits.FAULTS.values() for n in names if n[0].isupper())


def _spec(path: str) -> str:
    _, kind, name, *_ = path.split(".")
    found = getattr(import_module(f"operators.{kind}"), name)
    if inspect.isclass(found):
        count = 2 if issubclass(found, habits.Product) else 1
    else:
        count = sum(p.default is p.empty for p in inspect.signature(found).parameters.values())
    args = [TENSOR] * count
    if name == "writes_to_an_argument":
        args[1] = "{ shape = [3], grad = false }"
    claims = CLAIMS.get(kind, "").replace("FORWARD", str("Tangent" in name).lower())
    return _written(path, ", ".join(args), claims)


def _further() -> list[Operator]:
    """Return the operators that need a spec of their own: claims, arguments, modules, references, dtypes."""
    texts = {f"operators.incomplete.functions.{name}": _written(
        f"operators.incomplete.functions.{name}", ", ".join([TENSOR] * (1 if name.startswith("square") else 2)), ""
    ) for name in incomplete.NAMES}  # fmt: skip
    for name, (args, lacks) in {**old_style.RIGHT, **dict.fromkeys(old_style.WRONG, (TENSOR, ""))}.items():
        path = f"operators.old_style.{name}.apply"
        texts[path] = _written(path, args, f"supports = {{ {lacks} }}")
    faulty = (module for faults in modules.FAULTS.values() for module in faults)
    for module in dict.fromkeys((*modules.TWINS, *faulty)):  # in one order: workers of pytest compare theirs
        path = f"operators.modules.{module.__name__}"
        texts[path] = _written(path, TENSOR, "module = {}")
    for name, args in {**dict.fromkeys(("cumsum", "right_cumsum"), f"{TENSOR}, 0")}.items():
        texts[f"operators.isolated.{name}"] = _written(f"operators.isolated.{name}", args, "")
    for name, args in OBJECTS.items():
        texts[f"operators.objects.{name}"] = _written(f"operators.objects.{name}", args, "")
    found = [Operator(name, text) for name, text in texts.items()]
    for name in ("raises", "returns_none", "returns_text", "returns_nothing"):
        found.append(Operator("torch.sin", _written("torch.sin", TENSOR, f'reference = "operators.references.{name}"')))
    kinds = [f"operators.scaled.{kind}_{name}" for kind in ("right", "off") for name in scaled.ARGS]
    return found + [Operator(name, scaled.spec_of(name.split(".")[2].split("_")[0]), COARSE) for name in kinds]


def of_corpus(entry: corpus.Entry) -> Operator:
    """Return an entry of the corpus with the shortest spec."""
    layouts = [str(leaf.layout).removeprefix("torch.") for leaf in entry.leaves(entry.dtypes[0])]
    special = ["" if layout == "strided" else f', layout = "{layout}"' for layout in layouts]
    shapes = [list(leaf.shape) for leaf in entry.leaves(entry.dtypes[0])]
    args = [f"{{ shape = {shape}, low = 0.5{more} }}" for shape, more in zip(shapes, special, strict=True)]
    path = f"operators.corpus.functions.{entry.name}"
    return Operator(path, _written(path, ", ".join(args), ""))


def _written(path: str, args: str, claims: str) -> str:
    sample = f"{{ args = [{args}] }}"
    return f'[[operator]]\nname = "{path}"\n{claims}\nsamples = [{sample}, {sample.replace("0.5", "0.6")}]\n'


def verdicts(cases: Sequence[Case]) -> Verdicts:
    """Return the verdicts of cases that run in this order, with operators that nobody has called before."""
    return {one.id: (one.outcome, re.sub(r"[-\d.e]+", "#", one.reason)) for one in _run(cases)}


def blocked_by_what_passes(cases: Sequence[Case]) -> list[str]:
    """Return the cases that are blocked by a check that passes at the same operator, in the same dtype."""
    pairs = list(zip(cases, _run(cases), strict=True))
    passed = {
        (case.operator.id, case.variant, case.check, case.dtype) for case, one in pairs if one.outcome == "passed"
    }

    def root(case: Case, one: Outcome) -> tuple[object, ...]:
        return case.operator.id, case.variant, one.fields.get("blocked_by"), case.dtype

    return [one.id for case, one in pairs if root(case, one) in passed]


def _run(cases: Sequence[Case]) -> list[Outcome]:
    session = RunSession(SETTINGS)
    with _modules_anew(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = [run(case, session) for case in cases]
    torch.set_num_threads(1)
    return outcomes


@contextmanager
def _modules_anew() -> Iterator[None]:
    """Import the modules of operators anew inside the context. Other tests have those that were there before."""
    known = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("operators.")}
    try:
        yield
    finally:
        for name, module in known.items():
            sys.modules[name] = module
            parent, _, own = name.rpartition(".")
            setattr(sys.modules[parent], own, module)


def outcomes(found: Verdicts) -> dict[str, str]:
    """Return what became of each case."""
    return {name: outcome for name, (outcome, _) in found.items()}


def differences(cases: Sequence[Case], orders: int, pairs: int, draw: random.Random) -> list[str]:
    """Return where a case has another verdict alone, in another order or in a pair than in a full run.

    orders: how many orders of cases and samples to draw. With several of them, each case also runs alone, else a few.
    """
    whole = verdicts(cases)
    told: list[str] = []

    def compare(what: str, found: Verdicts) -> None:
        told.extend(f"{what}: {id_}: {one}, but {whole[id_]}" for id_, one in found.items() if one != whole[id_])

    alone = cases if orders > 1 else draw.sample(cases, min(len(cases), pairs))
    for case in alone:
        compare("alone", verdicts([case]))
    for _ in range(orders):
        compare("in another order", verdicts(draw.sample(cases, len(cases))))
        moved = _with_samples_in_another_order(cases, draw)
        found = outcomes(verdicts(moved))
        told += [f"samples moved: {id_}: {one}, but {whole[id_]}" for id_, one in found.items() if one != whole[id_][0]]
    for _ in range(pairs if len(cases) > 1 else 0):
        one, other = draw.sample(cases, 2)
        compare(f"after {one.id}", {other.id: verdicts([one, other])[other.id]})
    return told


def _with_samples_in_another_order(cases: Sequence[Case], draw: random.Random) -> list[Case]:
    operators = {case.operator.id: case.operator for case in cases}  # one name may have several
    moved = {
        name: replace(operator, samples=tuple(draw.sample(operator.samples, len(operator.samples))))
        for name, operator in operators.items()
    }
    return [replace(case, operator=moved[case.operator.id]) for case in draw.sample(cases, len(cases))]
