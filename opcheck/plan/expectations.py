"""Known failures: which cases they speak of, and whether each speaks of any."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

from opcheck.plan.kinds import check_kinds
from opcheck.spec.claims import Expect, When
from opcheck.spec.device import DeviceProfile
from opcheck.spec.dtypes import KNOWN
from opcheck.spec.library import Library, Operator
from opcheck.spec.problems import Problem, listing, nearest


@lru_cache(maxsize=1)
def torch_version() -> str:
    """Return the version of the installed torch, read without importing it."""
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
    """Return the mistakes in expectations and overrides: unknown names, and expectations that match no case."""
    known = list(devices)
    return [problem for operator in library for problem in _audit_operator(operator, known)]


def _audit_operator(operator: Operator, devices: list[DeviceProfile]) -> Iterable[Problem]:
    from opcheck.plan.planner import cases_of

    base = ("operator", operator.index)
    named = operator.spec.tolerance
    for key, names, choices in (
        ("check", named.check, tuple(check_kinds()) if named.check else ()),
        ("dtype", named.dtype, KNOWN),
    ):
        for name in names:
            if name not in choices:
                place = (*base, "tolerance", key, name)
                yield operator.document.problem(
                    place, f'unknown {key} "{name}"', listing(choices, 30), nearest(name, choices), key=True
                )
    if not operator.spec.expect:
        return
    cases = [case for device in devices for case in cases_of(operator, device)]
    for index, expect in enumerate(operator.spec.expect):
        place = (*base, "expect", index, "when")
        wrong = False
        for key, choices in _choices(operator, devices).items():
            wanted = getattr(expect.when, key)
            for name in (wanted,) if isinstance(wanted, str) else wanted or ():
                if name not in choices:
                    wrong = True
                    yield operator.document.problem(
                        (*place, key), f'unknown {key} "{name}"', listing(choices, 30), nearest(name, choices)
                    )
        if not wrong and not any(
            speaks_of(expect.when, case.check, case.variant.kind, case.device.name, case.dtype) for case in cases
        ):
            yield operator.document.problem(
                (*base, "expect", index),
                "this expectation matches no case of the operator",
                "a case that `opcheck show` lists",
            )


def _choices(operator: Operator, devices: list[DeviceProfile]) -> dict[str, list[str]]:
    samples = dict.fromkeys(name for sample in operator.samples for name in (sample.name, sample.name.split("[")[0]))
    return {
        "check": list(check_kinds()),
        "variant": [variant.kind for variant in operator.variants],
        "device": [device.name for device in devices],
        "dtype": list(KNOWN),
        "sample": list(samples),
    }
