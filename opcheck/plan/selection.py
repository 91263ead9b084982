"""Which cases a person wants: by operator, check, device, dtype, tag."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from opcheck.plan.kinds import check_kinds
from opcheck.spec.dtypes import GROUPS, KNOWN, expand
from opcheck.spec.library import Library, Operator
from opcheck.spec.problems import listing, nearest


@dataclass(frozen=True)
class Selection:
    """Each empty tuple selects everything. Operators are ids, names or glob patterns of them; dtypes may be groups."""

    operators: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def takes_operator(self, operator: Operator) -> bool:
        """Tell whether any case of an operator can be selected."""
        by_name = not self.operators or any(names_operator(wanted, operator) for wanted in self.operators)
        return by_name and (not self.tags or bool(set(self.tags) & set(operator.spec.tags)))

    def takes(self, check: str, dtype: str) -> bool:
        """Tell whether a check of a selected operator in some dtype is selected."""
        return (not self.checks or check in self.checks) and (not self.dtypes or dtype in expand(self.dtypes))

    def mistakes(self, library: Library) -> list[str]:
        """Return a line for each name that selects nothing because it does not exist."""
        ids = [name for operator in library for name in (operator.id, operator.spec.name)]
        tags = sorted({tag for operator in library for tag in operator.spec.tags})
        asked: list[tuple[str, tuple[str, ...], list[str]]] = [
            ("check", self.checks, list(check_kinds())),
            ("dtype", self.dtypes, [*GROUPS, *KNOWN]),
            ("tag", self.tags, tags),
        ]
        lines = [
            f'unknown {what} "{name}"; expected {listing(choices, 30)}' + _hint(name, choices)
            for what, names, choices in asked
            for name in names
            if name not in choices and not (what == "dtype" and name.removeprefix("-") in choices)
        ]
        for wanted in self.operators:
            if not any(names_operator(wanted, operator) for operator in library):
                lines.append(f'no operator matches "{wanted}"' + _hint(wanted, ids))
        return lines


def names_operator(pattern: str, operator: Operator) -> bool:
    """Tell whether a pattern matches the id or the name of an operator: `torch.div`, `torch.div[floor]`, `*.div*`.

    Brackets stand for themselves, as they occur in ids.
    """
    literal = pattern.replace("[", "[[]")
    return any(fnmatchcase(name, literal) for name in (operator.id, operator.spec.name))


def unknown_devices(wanted: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return a line for each name that no device has."""
    choices = list(known)
    return [
        f'unknown device "{name}"; expected {listing(choices)}{_hint(name, choices)}'
        for name in wanted
        if name not in choices
    ]


def _hint(name: str, choices: list[str]) -> str:
    found = nearest(name, choices)
    return f'; did you mean "{found}"?' if found else ""
