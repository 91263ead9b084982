"""Selects cases by operator, check, device, dtype and tag."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import get_args

from opcheck.planning.kinds import check_kinds
from opcheck.spec.checks import CheckKind, Derive
from opcheck.spec.dtypes import GROUPS, expand, known
from opcheck.spec.library import Library, Operator
from opcheck.spec.problems import nearest, unknown, worded

EFFORTS = get_args(Derive)


@dataclass(frozen=True)
class Selection:
    """The cases to select. An empty tuple selects everything.

    operators: ids, names, or glob patterns for them. dtypes: dtypes, or groups of them.
    """

    operators: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    derive: Derive = "standard"
    """How many samples to derive. Checks that need a higher setting are left out, unless they are named."""
    engine: str = "batched"
    """The engine that computes the evidence. It selects expectations, as `derive` does, but no cases."""

    def takes_operator(self, operator: Operator) -> bool:
        """Return whether cases of an operator are selected."""
        by_name = not self.operators or is_named(operator, self.operators)
        return by_name and (not self.tags or bool(set(self.tags) & set(operator.spec.tags)))

    def kinds(self) -> list[CheckKind]:
        """Return the selected checks, in the order of their table."""
        every = check_kinds().values()
        return [kind for kind in every if (kind.name in self.checks if self.checks else runs_at(kind, self.derive))]

    def takes_dtype(self, dtype: str) -> bool:
        """Return whether cases in a dtype are selected. If all names are negated, as in `-half`, all others are."""
        is_rest = all(name.startswith("-") for name in self.dtypes)
        return not self.dtypes or dtype in expand((dtype, *self.dtypes) if is_rest else self.dtypes)

    def mistakes(self, library: Library) -> list[str]:
        """Return a message for each name in the selection that does not exist."""
        ids = [name for operator in library for name in (operator.id, operator.spec.name)]
        claims = [one for operator in library for one in operator.spec.claims.values()]
        claimed = {name for one in claims for name in one.dtypes.forward_names()}  # some are those of profiles
        tags = sorted({tag for operator in library for tag in operator.spec.tags})
        named: list[tuple[str, tuple[str, ...], list[str]]] = [
            ("check", self.checks, list(check_kinds())),
            ("dtype", self.dtypes, [*GROUPS, *dict.fromkeys([*known(), *sorted(claimed)])]),
            ("tag", self.tags, tags),
        ]
        lines = [
            worded(*unknown(what, name, choices, 30))
            if choices
            else f'unknown {what} "{name}": the specs have no {what}'
            for what, names, choices in named
            for name in names
            if name not in choices and not (what == "dtype" and name.removeprefix("-") in choices)
        ]
        for wanted in self.operators:
            if not any(is_named(operator, [wanted]) for operator in library):
                lines.append(worded(f'no operator matches "{wanted}"', nearest=nearest(wanted, ids)))
        return lines


def runs_at(kind: CheckKind, derive: Derive) -> bool:
    """Return whether a check runs at a setting of `derive` without being named."""
    return EFFORTS.index(kind.least) <= EFFORTS.index(derive)


def is_named(operator: Operator, patterns: Iterable[str]) -> bool:
    """Return whether any glob pattern matches the id or the name of an operator.

    Brackets match themselves, since ids contain them: `torch.div`, `torch.div[floor]`, `*.div*`.
    """
    literal = [pattern.replace("[", "[[]") for pattern in patterns]
    return any(fnmatchcase(name, one) for one in literal for name in (operator.id, operator.spec.name))
