"""The names that a schema offers: checks, devices, templates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

from opcheck.spec.dtypes import FOLLOWING, GROUPS, KNOWN
from opcheck.spec.library import VariantKind
from opcheck.spec.templates import Template


@dataclass(frozen=True)
class Vocabulary:
    """The names that specs may use, besides those that the format itself defines."""

    checks: Mapping[str, str]
    """What a pass of each check means, by name."""
    devices: Mapping[str, str]
    """What each device is, by name."""
    templates: tuple[Template, ...]
    """Templates of different folders may have the same name."""
    complete: bool
    """Whether there are no other names. Only then is another name a mistake."""
    dtypes: tuple[str, ...] = ()
    """The dtypes that device profiles declare."""

    def names(self, kind: str) -> dict[str, str]:
        """Return the names of one kind, such as "check", each with its meaning or an empty string."""
        described = {"check": self.checks, "device": self.devices, "template": self._abouts()}
        if kind in described:
            return dict(described[kind])
        declared = _signed(self.dtypes) if kind == "dtype entry" else self.dtypes if kind.startswith("dtype") else ()
        return dict.fromkeys((*FIXED[kind], *declared), "")

    def open(self, kind: str) -> bool:
        """Tell whether there may be other names of a kind."""
        return kind not in FIXED and not self.complete

    def parameters(self) -> dict[str, tuple[str, ...]]:
        """Return the parameters of each template, by the template's name."""
        parameters: dict[str, dict[str, None]] = {}
        for template in self.templates:
            parameters.setdefault(template.name, {}).update(dict.fromkeys(template.parameters))
        return {name: tuple(parameters) for name, parameters in sorted(parameters.items())}

    def _abouts(self) -> dict[str, str]:
        abouts = {template.name: template.file.template.about for template in self.templates}
        return {name: abouts[name] for name in sorted(abouts)}


def _signed(names: Iterable[str]) -> tuple[str, ...]:
    known = tuple(dict.fromkeys(names))
    return (*known, *(f"-{name}" for name in known))


FIXED: dict[str, tuple[str, ...]] = {
    "variant": get_args(VariantKind),
    "dtype": KNOWN,
    "dtype or group": (*GROUPS, *(name for name in KNOWN if name not in GROUPS)),
    "dtype or precision": (*KNOWN, *FOLLOWING),
    "dtype entry": _signed((*GROUPS, *KNOWN)),
}
"""The names that the format itself defines, by kind."""
