"""Calls an operator with one sample after another, in a process of its own: `python -m opcheck.draft.probe`.

It reads a request (JSON) from the file that it is given and prints one line of JSON for each thing that happens: the
number of the sample it is about to try, and what it found. So the process that started it knows which call crashed.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any

import torch

from opcheck.checks.arguments import takes_out
from opcheck.checks.verdict import one_line
from opcheck.draft.constructions import constructions
from opcheck.draft.guess import SampleData, first_samples, further_samples
from opcheck.draft.parameter import INDEX, TENSOR, Parameter
from opcheck.draft.signature import parameters_of
from opcheck.draft.tried import Operator, Tried, differentiable, differs_in_evaluation, tried
from opcheck.samples.modules import ModuleRecipe
from opcheck.samples.resolve import Unresolved, as_operator, is_dispatched, resolve, resolve_module, resolve_operator
from opcheck.spec.operator import Construction

MOST_WITHOUT_GRADIENT = 200
"""How many more samples to try after one whose gradient is zero, or that has none."""


GIVE_ARGUMENTS = "give arguments by --args"
CONSTRUCT = "say how to construct it by --module, and give arguments of forward by --args"


def main(request: dict[str, Any]) -> None:
    """Answer a request: about what a target names, or about operators one after another."""
    for folder in request["path"]:
        if folder not in sys.path:
            sys.path.append(folder)
    modules = request["modules"]
    if request["what"] == "names":
        try:
            say(names=names(request["target"], modules))
        except Unresolved as error:
            say(error=str(error), hint=error.hint)
        return
    for path, groups in request["operators"].items():
        say(trying=path, number=-1, sample={})
        try:
            probe = Probe(path, modules, groups, request["skip"].get(path, []), request["module"])
            say(operator=path, **probe.answer())
        except Unresolved as error:
            say(operator=path, refusal=str(error))
        except Exception as error:  # what an operator raises where it is called is among the answers
            say(operator=path, refusal=f"looking for its arguments failed, at {place_of(error)}: {one_line(error)}")


def place_of(error: Exception) -> str:
    """Return where an exception was raised."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return f"{frame.f_code.co_filename}:{line}"


def say(**answer: Any) -> None:
    """Print one line for the process that asks."""
    print("\n" + json.dumps(answer), file=sys.__stdout__, flush=True)


def names(target: str, modules: Sequence[str]) -> dict[str, str]:
    """Return what a target names: a path for each operator, with what keeps it from being one, if anything does.

    Raises Unresolved.
    """
    module = _module(target)
    if module is None:
        resolve_either(target, modules)
        return {target: ""}
    reasons = {}
    exported = getattr(module, "__all__", ())
    for name in exported or [name for name in vars(module) if not name.startswith("_")]:
        item = getattr(module, name, None)
        if isinstance(item, ModuleType) or not callable(item):
            continue
        if not _own(item, module) and not (exported and is_dispatched(item)):  # operators of torch.ops are torch's
            continue
        if inspect.isclass(item) and not issubclass(item, torch.nn.Module):
            continue
        reasons[f"{target}.{name}"] = _wrong(f"{target}.{name}", modules)
    # The in-place variant of another operator is tested with that operator.
    return {path: why for path, why in reasons.items() if not (path.endswith("_") and path[:-1] in reasons)}


def _wrong(path: str, modules: Sequence[str]) -> str:
    """Return why a path is no operator; an empty string if it is one."""
    try:
        resolve_either(path, modules)
    except Unresolved as error:
        return str(error)
    return ""


def resolve_either(path: str, modules: Sequence[str]) -> Callable[..., Any] | type[torch.nn.Module]:
    """Return the function, or the class of modules, that a path names. Raises Unresolved."""
    resolved = resolve(path, modules)
    if not isinstance(resolved, type) or not issubclass(resolved, torch.nn.Module):
        return as_operator(resolved, path)
    if resolved.forward is torch.nn.Module.forward:
        raise Unresolved(f'"{path}" has no forward')
    return resolve_module(path, modules)


def _module(path: str) -> ModuleType | None:
    """Return the module with a path; None if there is none. Raises Unresolved if it cannot be imported."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is not None and (path == error.name or path.startswith(f"{error.name}.")):
            return None
        raise Unresolved(f'importing "{path}" failed: {error}') from error
    except (Exception, SystemExit) as error:
        raise Unresolved(f'importing "{path}" failed: {one_line(error)}') from error


def _own(item: Any, module: ModuleType) -> bool:
    """Return whether something belongs to the package of a module, and is not just imported there."""
    owner = getattr(item, "__self__", None)
    home = getattr(owner if isinstance(owner, type) else item, "__module__", "") or type(item).__module__
    return str(home).partition(".")[0] == module.__name__.partition(".")[0]


class Probe:
    """Looks for samples that an operator takes, and for what they show."""

    def __init__(
        self,
        path: str,
        modules: Sequence[str],
        groups: Sequence[Sequence[SampleData]],
        skip: Sequence[int],
        module: SampleData | None = None,
    ) -> None:
        self.path, self.modules, self.groups, self.module = path, modules, groups, module
        self.skip = set(skip)
        """The numbers of samples that have ended an earlier process."""
        self.operator: Operator = resolve_either(path, modules)
        self.make: type[torch.nn.Module] | None = self.operator if isinstance(self.operator, type) else None
        self.number = -1
        self.refusal = ""
        """Why the first sample is of no use."""

    def answer(self) -> dict[str, Any]:
        """Return samples that work, and what they show; or why there is none."""
        for construction in self.constructions():
            self.module = construction
            if self.make is not None:
                self.operator = ModuleRecipe(self.make, Construction.model_validate(construction))
            samples = list(self.recorded()) if self.groups else list(self.guessed())
            if samples:
                return {**shown(samples), **self.ways(samples)}
        if self.make is None:
            return {"refusal": self.refusal or "its signature shows nothing to try", "remedy": GIVE_ARGUMENTS}
        return {"refusal": self.refusal or "its constructor shows nothing to try", "remedy": CONSTRUCT}

    def constructions(self) -> Iterable[SampleData | None]:
        """Return how to construct a class of modules: as it is given, or guesses; for a function, None."""
        if self.make is None:
            return [None]
        return constructions(self.make) if self.module is None else [self.module]

    def ways(self, samples: Sequence[Tried]) -> dict[str, Any]:
        """Return the ways to call the operator: for a function `out` and variants, for a module both modes."""
        if not isinstance(self.operator, ModuleRecipe):
            return {"out": takes_out(self.operator), "variants": self.variants()}
        ways: dict[str, Any] = {"out": True, "variants": [], "module": self.module}
        if self.operator.spec.train and differs_in_evaluation(self.operator, samples[0].sample, self.modules):
            spec = self.operator.spec.model_copy(update={"train": False})
            self.operator = ModuleRecipe(self.operator.make, spec)
            evaluated = [one for one in self.attempts(one.sample for one in samples) if one is not None]
            if evaluated:
                ways["evaluation"] = {**shown(evaluated), **ways, "module": {**(self.module or {}), "train": False}}
        return ways

    def parameters(self) -> list[list[Parameter]]:
        """Return the parameters to guess arguments for; several lists if they are not known."""
        if not isinstance(self.operator, ModuleRecipe):
            return parameters_of(self.operator, self.path)
        assert self.make is not None
        parameters = parameters_of(MethodType(self.make.forward, self.make), self.path)
        only_a_tensor = [one for one in parameters if [parameter.options for parameter in one] == [(TENSOR,)]]
        return [*parameters, *([replace(parameter, options=(INDEX,))] for (parameter,) in only_a_tensor)]

    def recorded(self) -> Iterator[Tried]:
        """Yield one sample of each group that was given."""
        for group in self.groups:
            yield from islice(filter(None, self.attempts(group)), 1)

    def guessed(self) -> Iterator[Tried]:
        """Yield a sample, and others that differ from it in one respect."""
        for parameters in self.parameters():
            main = self.likeliest(first_samples(parameters))
            if main is None:
                continue
            yield main
            seen = [main.sample]
            for group in further_samples(main.sample, parameters):
                attempt = next(filter(None, self.attempts(group)), None)
                if attempt is not None and attempt.sample not in seen:
                    seen.append(attempt.sample)
                    yield attempt
            return

    def likeliest(self, samples: Iterator[SampleData]) -> Tried | None:
        """Return the first sample whose derivatives are neither zero nor infinite; else the first that works at all."""
        fallback: Tried | None = None
        left = MOST_WITHOUT_GRADIENT
        for attempt in self.attempts(samples):
            if attempt is not None and attempt.requires_grad and attempt.is_telling:
                return attempt
            fallback = fallback or attempt
            left -= fallback is not None
            if not left:
                break
        return fallback

    def attempts(self, samples: Iterable[SampleData]) -> Iterator[Tried | None]:
        """Yield for each sample what it shows, or None if the operator does not take it."""
        for sample in samples:
            self.number += 1
            if self.number in self.skip:
                continue
            module = {} if self.module is None else {"module": self.module}
            say(trying=self.path, number=self.number, sample={**module, **sample})
            attempt = tried(self.operator, sample, self.modules)
            if isinstance(attempt, str):
                self.refusal = self.refusal or attempt
            yield None if isinstance(attempt, str) else attempt

    def variants(self) -> list[Any]:
        """Return the other ways to call the operator that there are."""
        home, _, name = self.path.replace(":", ".").rpartition(".")
        if self.path.startswith("torch."):
            return [kind for kind, end in (("method", ""), ("inplace", "_")) if hasattr(torch.Tensor, name + end)]
        try:
            resolve_operator(f"{home}.{name}_", self.modules)
        except Unresolved:
            return []
        return [{"kind": "inplace", "target": f"{home}.{name}_"}]


def shown(samples: Sequence[Tried]) -> dict[str, Any]:
    """Return what samples show about an operator."""
    return {
        "samples": [one.sample for one in samples],
        "random": any(one.random for one in samples),
        "backward": any(one.requires_grad for one in samples),
        "forward_ad": any(one.has_tangent for one in samples),
        "arguments": differentiable(samples),
    }


if __name__ == "__main__":
    try:
        main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    except BaseException:  # SystemExit, too, tells what it is
        traceback.print_exc()
        sys.exit(1)
