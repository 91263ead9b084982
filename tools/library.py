"""Generates the tables of docs/library.md: the families of the shipped specs, and the claims of their operators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opcheck.spec import Operator

SPECS = Path(__file__).resolve().parent.parent / "specs"


@cache
def families() -> dict[str, list[Operator]]:
    """Return the operators of each spec file, by its path in specs/ without the suffix."""
    from opcheck.planning import loading
    from opcheck.settings import Settings

    operators: dict[str, list[Operator]] = {}
    for operator in loading.load([SPECS], Settings()):
        path = (Path.cwd() / operator.document.file).resolve().relative_to(SPECS)
        operators.setdefault(path.with_suffix("").as_posix(), []).append(operator)
    return operators


def overview() -> str:
    """Return a table of the families: what they are about, and the numbers of operators and samples."""
    rows = [
        (f"[{family}](../specs/{family}.toml)", about(own[0].document.text), len(own), _samples(own))
        for family, own in families().items()
    ]
    every = [operator for own in families().values() for operator in own]
    return _table(("family", "about", "operators", "samples"), [*rows, ("all", "", len(every), _samples(every))])


def operators() -> str:
    """Return a table of the operators and their claims."""
    titles = ("operator", "family", "dtypes", "other ways to call it", "disclaimed", "samples", "known failures")
    return _table(titles, [_row(family, operator) for family, own in families().items() for operator in own])


def about(text: str) -> str:
    """Return the first sentence of the comment at the beginning of a spec file."""
    lines = []
    for line in text.splitlines():
        if not line.removeprefix("#").strip() or not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    sentence, _, _ = f"{' '.join(lines)} ".partition(". ")
    return sentence.strip().removesuffix(".")


def _row(family: str, operator: Operator) -> tuple[object, ...]:
    spec = operator.spec
    dtypes = _dtypes(spec.dtypes.forward)
    if spec.dtypes.backward is not None:
        dtypes += f"; backward {_dtypes(spec.dtypes.backward)}"
    variants = [_way(variant.kind) for variant in operator.variants if variant.path != spec.callable_path]
    ways = dict.fromkeys([*variants, *(f"`{alias}`" for alias in spec.aliases)])
    disclaimed = [
        f"`{name}`" + (" in part" if claim else "")
        for name, claim in spec.supports
        if claim is not True and name != "out"  # its default depends on the signature of the operator
    ]
    failures = len(spec.expect) or ""
    return f"`{operator.id}`", family, dtypes, ", ".join(ways), ", ".join(disclaimed), len(operator.samples), failures


def _way(kind: str) -> str:
    return {"inplace": "in place"}.get(kind, kind)


def _dtypes(groups: Iterable[str]) -> str:
    """Return groups of dtypes in words: "all but bool, half" for `["all", "-bool", "-half"]`."""
    has = [name for name in groups if not name.startswith("-")]
    lacks = [name.removeprefix("-") for name in groups if name.startswith("-")]
    return ", ".join(has) + (f" but {', '.join(lacks)}" if lacks else "")


def _samples(several: Sequence[Operator]) -> int:
    return sum(len(operator.samples) for operator in several)


def _table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)
