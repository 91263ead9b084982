"""Known failures: which cases they speak of, and whether each speaks of any."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from opcheck.plan.kinds import check_kinds
from opcheck.spec.claims import Expect, Tolerances, When
from opcheck.spec.device import DeviceProfile
from opcheck.spec.dtypes import GROUPS, KNOWN
from opcheck.spec.library import Library, Operator, names_of
from opcheck.spec.positions import Path
from opcheck.spec.problems import Problem, listing, nearest


@lru_cache(maxsize=1)
def torch_version() -> str:
    """Return the version of the installed torch, read without importing it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


@lru_cache(maxsize=256)
def holds_for_torch(condition: str | None) -> bool:
    """Tell whether a version condition holds for the installed torch (true where none is installed)."""
    if condition is None or not torch_version():
        return True
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(condition).contains(torch_version().split("+")[0], prereleases=True)


def speaks_of(when: When, check: str, variant: str, device: str, dtype: str) -> bool:
    """Tell whether a condition holds for a case, whatever the version of torch."""
    asked = {"check": check, "variant": variant, "device": device, "dtype": dtype}
    return all(when.matches(key, value) for key, value in asked.items())


def applying(expects: Iterable[Expect], check: str, variant: str, device: str, dtype: str) -> tuple[Expect, ...]:
    """Return the expectations that speak of a case under the installed torch."""
    return tuple(
        expect
        for expect in expects
        if speaks_of(expect.when, check, variant, device, dtype) and holds_for_torch(expect.when.torch)
    )


def audit(library: Library, devices: Iterable[DeviceProfile]) -> list[Problem]:
    """Return the mistakes in expectations and overrides: unknown names, and expectations that match no case.

    devices: all that there are, whether present or not.
    """
    known = list(devices)
    found = [problem for device in known for problem in _audit_profile(device)]
    return found + [problem for operator in library for problem in _audit_operator(operator, known)]


Locate = Callable[..., Problem]


def _audit_profile(device: DeviceProfile) -> Iterator[Problem]:
    yield from _unknown_overrides(device.tolerance, ("tolerance",), device.problem)
    for index, expect in enumerate(device.expect):
        choices = {
            "check": list(check_kinds()),
            "variant": ["function", "method", "inplace"],
            "device": [device.name],
            "dtype": [*GROUPS, *KNOWN],
        }
        yield from _unknown_names(expect.when, ("expect", index, "when"), choices, device.problem)


def _audit_operator(operator: Operator, devices: list[DeviceProfile]) -> Iterator[Problem]:
    yield from _unknown_overrides(operator.spec.tolerance, ("tolerance",), operator.problem)
    for name, special in operator.spec.per_device.items():
        if special.tolerance is not None:
            yield from _unknown_overrides(special.tolerance, ("per_device", name, "tolerance"), operator.problem)
    if not operator.spec.expect:
        return
    from opcheck.plan.planner import places_of

    for index, expect in enumerate(operator.spec.expect):
        path: Path = ("expect", index)
        unknown = list(_unknown_names(expect.when, (*path, "when"), _choices(operator, devices), operator.problem))
        yield from unknown
        if not unknown and not any(
            speaks_of(expect.when, kind.name, variant.kind, device.name, dtype)
            for device in devices
            for variant, dtype, kinds in places_of(operator, device)
            for kind in kinds
        ):
            what = "this expectation matches no case of the operator"
            yield operator.problem((*path, "when"), what, "a case that `opcheck show` lists")


def _unknown_overrides(tolerance: Tolerances, path: Path, locate: Locate) -> Iterator[Problem]:
    for key, names, choices in (
        ("check", list(tolerance.check), list(check_kinds()) if tolerance.check else []),
        ("dtype", list(tolerance.dtype), list(KNOWN)),
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
                place = (*path, key, index) if listed else (*path, key)
                yield locate(place, f'unknown {key} "{name}"', listing(known, 30), nearest(name, known))


def _choices(operator: Operator, devices: list[DeviceProfile]) -> dict[str, list[str]]:
    samples = dict.fromkeys(name for sample in operator.samples for name in names_of(sample.name))
    return {
        "check": list(check_kinds()),
        "variant": [variant.kind for variant in operator.variants],
        "device": [device.name for device in devices],
        "dtype": [*GROUPS, *KNOWN],
        "sample": list(samples),
    }
