"""Finds mistakes in specs that show only when cases are planned: unknown names, expectations that match no case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import get_args

from opcheck.planning.expectations import concerns, matches
from opcheck.planning.kinds import check_kinds
from opcheck.planning.planner import combinations
from opcheck.planning.selection import names_operator
from opcheck.spec import dtypes
from opcheck.spec.claims import OperatorTolerances, Tolerances, When
from opcheck.spec.device import DeviceProfile
from opcheck.spec.dtypes import GROUPS
from opcheck.spec.entry import Entry
from opcheck.spec.library import Library, Operator, VariantKind, names_of
from opcheck.spec.positions import Path
from opcheck.spec.problems import Problem, listing, nearest

Locate = Callable[..., Problem]
"""Makes a mistake at a path of keys: `problem` of an operator or of a device profile."""


def audit(library: Library, devices: Iterable[DeviceProfile]) -> list[Problem]:
    """Return the mistakes in expectations and in tolerances by check or dtype.

    devices: all that are known, present or not.
    """
    known = list(devices)
    problems = [problem for device in known for problem in _audit_profile(device.written)]
    problems += [problem for operator in library for problem in _audit_operator(operator, known)]
    return problems + [
        problem for sharing in _by_expectations(library) for problem in _audit_expectations(sharing, known)
    ]


def _audit_profile(device: DeviceProfile) -> Iterator[Problem]:
    yield from _unknown_overrides(device.tolerance, ("tolerance",), device.problem)
    for index, expect in enumerate(device.expect):
        choices = {
            "check": list(check_kinds()),
            "variant": list(get_args(VariantKind)),
            "device": [device.name],
            "dtype": [*GROUPS, *dtypes.known()],
        }
        yield from _unknown_names(expect.when, ("expect", index, "when"), choices, device.problem)


def unmatched(device: DeviceProfile, libraries: Iterable[Library]) -> list[Problem]:
    """Return a mistake for each expectation, and each pattern of `deny`, that matches no case of some libraries.

    What is inherited is not among them: it is about another device as well.
    libraries: the later ones are asked only if the earlier ones have no such case.
    """
    left = dict(enumerate(device.written.expect))
    idle = dict(enumerate(device.written.deny))
    ids: list[str] = []
    for library in libraries:
        ids += [operator.id for operator in library]
        idle = {i: name for i, name in idle.items() if not any(names_operator(name, one) for one in library)}
        for operator in library if left else ():
            about = {index: expect.when for index, expect in left.items() if concerns(expect.when, operator)}
            for variant, dtype, kind in combinations(operator, device) if about else ():
                for index, when in list(about.items()):
                    if matches(when, kind.name, variant.kind, device.name, dtype) and _has_sample(operator, when):
                        del about[index], left[index]
    what, expected = "this expectation matches no case on the device", f"one of `opcheck list --device {device.name}`"
    problems = [
        expect.problem(("when",), what, expected, _meant(expect.when.operators, ids)) for expect in left.values()
    ]
    for index, pattern in idle.items():
        what = f'"{pattern}" matches no operator: nothing is denied by it'
        expected = "an id, a name or a glob pattern of operators"
        problems.append(device.problem(("deny", index), what, expected, _meant([pattern], ids)))
    return problems


def _meant(names: Iterable[str], ids: list[str]) -> str:
    """Return the operator that names of no operator probably mean; an empty string if there is none."""
    missing = [name for name in names if name not in ids]
    return next(filter(None, (nearest(name, ids) for name in missing)), "")


def _has_sample(operator: Operator, when: When) -> bool:
    return when.sample is None or any(
        when.matches("sample", name) for sample in operator.samples for name in names_of(sample.name)
    )


def _audit_operator(operator: Operator, devices: list[DeviceProfile]) -> Iterator[Problem]:
    tolerances: dict[Path, OperatorTolerances] = {("tolerance",): operator.spec.tolerance}
    tolerances |= {("per_device", name, "tolerance"): one.tolerance for name, one in operator.spec.per_device.items()}
    problems: list[Problem] = []
    for path, tolerance in tolerances.items():
        problems += _unknown_overrides(tolerance, path, operator.problem)
        problems += _idle_disclaimers(operator, tolerance, path, devices)
    yield from dict.fromkeys(problems)  # what devices have from the operator is a mistake several times


def _by_expectations(library: Library) -> list[list[Operator]]:
    """Return the operators with expectations, those together that have them from the defaults of one file."""
    sharing: dict[tuple[object, ...], list[Operator]] = {}
    for operator in library:
        if operator.spec.expect:
            place = Entry(operator.document, operator.index).place(("expect",))
            sharing.setdefault((id(operator.document), *place), []).append(operator)
    return list(sharing.values())


def _audit_expectations(operators: list[Operator], devices: list[DeviceProfile]) -> Iterator[Problem]:
    """Yield what is wrong with the expectations that operators share: each must be about a case of one of them.

    A case that exists only with other versions of torch is one, too.
    """
    first, *others = operators
    choices = _choices(first, devices)
    known = [one for operator in operators for one in (operator, *operator.elsewhere)]
    for other in known[1:]:
        choices = {key: [*dict.fromkeys(names + _choices(other, devices)[key])] for key, names in choices.items()}
    for index, expect in enumerate(first.spec.expect):
        path: Path = ("expect", index, "when")
        unknown = list(_unknown_names(expect.when, path, choices, first.problem))
        yield from unknown
        if not unknown and not any(
            matches(expect.when, kind.name, variant.kind, device.name, dtype)
            for operator in known
            for device in devices
            for variant, dtype, kind in combinations(operator, device)
        ):
            what = f"this expectation matches no case of {'an operator of the file' if others else 'the operator'}"
            yield first.problem(path, what, "a case that `opcheck show` lists")


def _idle_disclaimers(
    operator: Operator, tolerance: OperatorTolerances, path: Path, devices: list[DeviceProfile]
) -> Iterator[Problem]:
    """Yield a disclaimer of accuracy that no case of the check would look at."""
    accuracy = tolerance.accuracy
    if accuracy is not None and not any(
        kind.name == "accuracy" and operator.on(device).accuracy(dtype) == accuracy
        for device in devices
        for _, dtype, kind in combinations(operator, device)
    ):
        what = "this disclaimer is about no case of the check `accuracy`"
        yield operator.problem((*path, "accuracy"), what, "a case that `opcheck show` lists", key=True)


def _unknown_overrides(tolerance: Tolerances, path: Path, locate: Locate) -> Iterator[Problem]:
    for key, names, choices in (
        ("check", list(tolerance.check), list(check_kinds()) if tolerance.check else []),
        ("dtype", list(tolerance.dtype), list(dtypes.known())),
    ):
        for name in names:
            if name not in choices:
                words = (f'unknown {key} "{name}"', listing(choices, 30), nearest(name, choices))
                yield locate((*path, key, name), *words, key=True)


def _unknown_names(when: When, path: Path, choices: dict[str, list[str]], locate: Locate) -> Iterator[Problem]:
    for key, known in choices.items():
        wanted = getattr(when, key)
        listed = isinstance(wanted, tuple)
        for index, name in enumerate(wanted if isinstance(wanted, tuple) else (wanted,)):
            if name is not None and name not in known:
                words = (f'unknown {key} "{name}"', listing(known, 30), nearest(name, known))
                yield locate((*path, key, index) if listed else (*path, key), *words)


def _choices(operator: Operator, devices: list[DeviceProfile]) -> dict[str, list[str]]:
    samples = dict.fromkeys(name for sample in operator.samples for name in names_of(sample.name))
    return {
        "check": list(check_kinds()),
        "variant": [variant.kind for variant in operator.variants],
        "device": [device.name for device in devices],
        "dtype": [*GROUPS, *dtypes.known()],
        "sample": list(samples),
    }
