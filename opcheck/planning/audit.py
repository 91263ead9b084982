"""Finds mistakes in specs that only planning reveals: unknown names, operators and expectations without a case."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import get_args

from opcheck.planning.case import Case
from opcheck.planning.expectations import is_about, is_for_operator
from opcheck.planning.kinds import check_kinds
from opcheck.planning.planner import cases_on, rule_against
from opcheck.planning.selection import Selection, is_named
from opcheck.spec import dtypes
from opcheck.spec.checks import VariantKind
from opcheck.spec.claims import Expect, Tolerances
from opcheck.spec.device_profile import DeviceProfile
from opcheck.spec.library import Library, Operator, Sample, names_of
from opcheck.spec.positions import KeyPath
from opcheck.spec.problems import Mistake, Problem, listing, nearest, unknown


def audit(library: Library, devices: Iterable[DeviceProfile]) -> list[Problem]:
    """Return the mistakes in expectations, in tolerances and in positions of arguments, and operators without a case.

    devices: all known devices, present or not.
    """
    known = list(devices)
    problems = [problem for device in known for problem in _of_profile(device.written)]
    for operator in library:
        problems += [operator.problem(*mistake) for mistake in operator.unknown_arguments()]
        problems += [*_of_cases(operator, known), *_of_tags(operator, known), *_of_tolerances(operator, known)]
        problems += [operator.problem(*mistake) for mistake in _of_backward(operator)]
    problems += _of_samples(library, known)
    # An expectation belongs to several operators if it is in the defaults.
    shared: dict[tuple[str, KeyPath], tuple[Expect, list[Operator]]] = {}
    for operator in library:
        for expect in operator.spec.expect:
            shared.setdefault(expect.origin, (expect, []))[1].append(operator)
    return problems + [problem for each in shared.values() for problem in _of_expectation(*each, known)]


def unmatched(device: DeviceProfile, library: Library) -> Iterator[Problem]:
    """Yield a mistake for each expectation, and each pattern of `deny`, of a profile that matches no case of a library.

    Inherited expectations and patterns are left out, since they may match cases on the device of the parent.
    """
    ids = [operator.id for operator in library]
    for expect in device.written.expect:
        concerned = (operator for operator in library if is_for_operator(expect.when, operator))
        if not _matches_a_case(expect, concerned, [device]):
            what, meant = "this expectation matches no case on the device", _meant(expect.when.listed("operator"), ids)
            yield expect.problem(("when",), what, f"one of `opcheck list --device {device.name}`", meant)
    for index, pattern in enumerate(device.written.deny):
        if not any(is_named(operator, [pattern]) for operator in library):
            what = f'"{pattern}" matches no operator: nothing is denied by it'
            expected = "an id, a name or a glob pattern of operators"
            yield device.problem(("deny", index), what, expected, _meant([pattern], ids))


def _meant(names: Iterable[str], ids: list[str]) -> str:
    """Return the id of the operator that was probably meant by unknown names, or an empty string."""
    missing = [name for name in names if name not in ids]
    return next(filter(None, (nearest(name, ids) for name in missing)), "")


def _of_profile(device: DeviceProfile) -> Iterator[Problem]:
    yield from (device.problem(*mistake) for mistake in _unknown_overrides(device.tolerance, ("tolerance",)))
    choices = _choices([device], get_args(VariantKind))
    for expect in device.expect:
        yield from _unknown_names(expect, choices)


def _of_cases(operator: Operator, devices: list[DeviceProfile]) -> Iterator[Problem]:
    if not any(_planned([operator, *operator.elsewhere], devices)):
        what = f"{operator.id} has no case on any device: nothing would be tested"
        yield operator.problem(("name",), what, "claims that leave a device, and a dtype that it has")


def _of_samples(library: Library, devices: list[DeviceProfile]) -> Iterator[Problem]:
    """Yield a mistake for each sample, or use of a template, that would run in no dtype of any operator with it."""
    runs: dict[tuple[str, KeyPath], tuple[Sample, bool]] = {}
    for operator in library:
        for one in (operator, *operator.elsewhere):
            claimed = {name for device in devices for name in one.claims_on(device).dtypes.forward_names()}
            for sample in one.samples:
                place = sample.document.file, sample.path  # several operators share a sample in the defaults
                has_run = place in runs and runs[place][1]
                runs[place] = sample, has_run or sample.dtypes is None or not claimed.isdisjoint(sample.dtypes)
    for sample, is_run in runs.values():
        if not is_run:
            what = "the sample would not be tested: the operator claims none of its dtypes"
            yield sample.document.problem((*sample.path, "dtypes"), what, "a dtype of the operator")


def _of_backward(operator: Operator) -> Iterator[Mistake]:
    """Yield a mistake for each entry of an operator's own `dtypes.backward` without a dtype of the forward pass.

    On a device that has its own dtypes of the forward pass, some of the others may be left out, but not all.
    """
    for place, claims in operator.spec.claims.items():
        path, listed, forward = (*place, "dtypes", "backward"), claims.dtypes.backward, claims.dtypes.forward_names()
        written = operator.entry.place(path)
        able = [*filter(dtypes.is_differentiable, forward)]
        if not listed or written[0] == "defaults":
            continue
        if place and "per_device" not in written:  # taken from the operator
            if set(claims.dtypes.backward_names()).isdisjoint(forward):
                what = "the operator claims the backward pass in none of these dtypes: it would not be tested"
                yield Mistake((*place, "dtypes", "forward"), what, "dtypes.backward for the device, too")
            continue
        for index, entry in enumerate(listed):
            if not entry.startswith("-") and set(dtypes.expand((entry,))).isdisjoint(forward):
                what = f"the backward pass in {entry} would not be tested: the forward pass is not claimed in it"
                yield Mistake((*path, index), what, listing(able) if able else "a forward pass in it")


def _of_tags(operator: Operator, devices: list[DeviceProfile]) -> Iterator[Problem]:
    kinds: dict[str, Collection[str]] = {"check": check_kinds(), "dtype": dtypes.known()}
    kinds["device"] = [device.name for device in devices]
    for index, tag in enumerate(operator.spec.tags):
        for kind, names in kinds.items():
            if tag in names:
                what = f'"{tag}" cannot be a tag: it is a {kind}, whose cases pytest selects by the same name'
                yield operator.problem(("tags", index), what, "another name")


def _of_tolerances(operator: Operator, devices: list[DeviceProfile]) -> Iterator[Problem]:
    problems: list[Problem] = []
    for place, claims in operator.spec.claims.items():
        path, tolerance = (*place, "tolerance"), claims.tolerance
        problems += [operator.problem(*mistake) for mistake in _unknown_overrides(tolerance, path)]
        if tolerance.accuracy is not None and not any(
            case.claims.accuracy(case.dtype) == tolerance.accuracy
            for case in _planned([operator], devices, ("accuracy",))
        ):
            what = "this tolerance matches no case of the check accuracy"
            advice = f"see the cases with `opcheck show {operator.id}`, or remove it"
            problems.append(operator.problem((*path, "accuracy"), f"{what}; {advice}", key=True))
    yield from dict.fromkeys(problems)  # a table of a device repeats the mistakes that it takes from the operator


def _of_expectation(expect: Expect, operators: list[Operator], devices: list[DeviceProfile]) -> list[Problem]:
    """Return the mistakes in an expectation that operators share: unknown names, or no matching case of any operator.

    Cases that exist only with other versions of torch count, too.
    """
    known = [one for operator in operators for one in (operator, *operator.elsewhere)]
    variants = dict.fromkeys(variant.kind for operator in known for variant in operator.variants)
    samples = dict.fromkeys(name for one in known for sample in one.samples for name in names_of(sample.name))
    mistakes = list(_unknown_names(expect, {**_choices(devices, variants), "sample": samples}))
    if mistakes or _matches_a_case(expect, known, devices):
        return mistakes
    if operators[1:]:
        what = "any operator of the file; `opcheck show OPERATOR` lists the cases of an operator"
    else:
        what = f"the operator; `opcheck show {operators[0].id}` lists its cases"
    return [expect.problem(("when",), f"this expectation matches no case of {what}")]


def _matches_a_case(expect: Expect, operators: Iterable[Operator], devices: list[DeviceProfile]) -> bool:
    """Return whether an expectation is about a case of some operators: as a whole, or at a sample for its dtype."""

    def has_sample(case: Case) -> bool:
        meant = (sample.name for sample in case.operator.samples if sample.goes_with(case.dtype))
        return is_about(expect, None) or any(is_about(expect, name) for name in meant)

    cases = _planned(operators, devices, expect.when.listed("check"))
    return any(case.meets(expect.when) and has_sample(case) for case in cases)


def _planned(
    operators: Iterable[Operator], devices: list[DeviceProfile], checks: tuple[str, ...] = ()
) -> Iterator[Case]:
    """Yield all cases of some operators, with any version of torch. checks: default: all."""
    wanted = Selection(checks=checks, derive="thorough")
    for operator in operators:
        for device in devices:
            if rule_against(operator, device) in ("", "torch"):
                yield from cases_on(operator, device, wanted)


def _choices(devices: Iterable[DeviceProfile], variants: Iterable[str]) -> dict[str, list[str]]:
    """Return the valid names in a condition, by key."""
    return {
        "check": list(check_kinds()),
        "variant": list(variants),
        "device": [device.name for device in devices],
        "dtype": [*dtypes.GROUPS, *dtypes.known()],
    }


def _unknown_names(expect: Expect, choices: Mapping[str, Collection[str]]) -> Iterator[Problem]:
    for key, known in choices.items():
        for index, name in enumerate(expect.when.listed(key)):
            if name.removeprefix("-" if key == "device" else "") not in known:
                yield expect.problem(("when", key, index), *unknown(key, name, known, 30))


def _unknown_overrides(tolerance: Tolerances, path: KeyPath) -> Iterator[Mistake]:
    known: dict[str, Collection[str]] = {"check": check_kinds(), "dtype": dtypes.known()}
    for key, choices in known.items():
        for name in getattr(tolerance, key):
            if name not in choices:
                yield Mistake((*path, key, name), *unknown(key, name, choices, 30), key=True)
