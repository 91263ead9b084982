"""Adds samples to a spec file. Its comments and layout are preserved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tomli

from opcheck.spec.library import Operator
from opcheck.spec.positions import Positions, Span
from opcheck.spec.render import render


def with_samples(text: str, operator: Operator, samples: Sequence[str]) -> str:
    """Return the text of a spec file with samples added to an operator.

    If the operator inherits its samples from the defaults, these are copied first, since its own samples replace them.

    samples: inline tables.
    """
    positions = Positions(text)
    place = operator.entry.place(("samples",))
    if place[:1] == ("defaults",):
        return _with_copies(text, operator, samples, positions)
    span = positions.value((*place, len(operator.entry.raw["samples"]) - 1))
    assert span is not None, "an operator has samples"
    if text.startswith("[", span.start):
        return _with_tables(text, span, samples)
    return _with_elements(text, span, samples)


def _with_copies(text: str, operator: Operator, samples: Sequence[str], positions: Positions) -> str:
    span = positions.value(("operator", operator.index, "name"))
    assert span is not None, "an operator has a name"
    own = [render(sample) for sample in operator.entry.raw["samples"]]
    lines = ["samples = [", *(f"  {sample}," for sample in (*own, *samples)), "]"]
    at, indent = _line_end(text, span.end), _indent(text, span.start)
    return f"{text[:at]}\n{indent}" + f"\n{indent}".join(lines) + text[at:]


def _with_tables(text: str, span: Span, samples: Sequence[str]) -> str:
    """Add `[[operator.samples]]` tables after the last one, with the same header."""
    indent, header = _indent(text, span.start), text[span.start : text.index("\n", span.start)].split("#")[0].rstrip()
    at = _line_end(text, span.end)
    tables = [f"\n\n{indent}{header}" + "".join(f"\n{indent}{line}" for line in _lines(sample)) for sample in samples]
    return text[:at] + "".join(tables) + text[at:]


def _lines(sample: str) -> list[str]:
    """Return the keys and values of an inline table, one pair per line."""
    return [f"{key} = {render(value)}" for key, value in tomli.loads(f"value = {sample}")["value"].items()]


def _with_elements(text: str, span: Span, samples: Sequence[str]) -> str:
    """Add elements at the end of an array: on separate lines, after any comment, unless the array ends on this line."""
    after = text[span.end :]
    comma = "" if after.lstrip().startswith(",") else ","
    end = _line_end(text, span.end)
    rest = text[span.end : end].lstrip().removeprefix(",").lstrip()
    if rest and not rest.startswith("#"):  # the array ends on the same line
        return text[: span.end] + "".join(f", {sample}" for sample in samples) + after
    indent = _indent(text, span.start)
    lines = "".join(f"\n{indent}{sample}," for sample in samples)
    return text[: span.end] + comma + text[span.end : end] + lines + text[end:]


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def write(operators: Sequence[tuple[Operator, Sequence[str]]]) -> list[Path]:
    """Add samples to the spec files of their operators. Return the paths of the files."""
    by_file: dict[Path, list[tuple[Operator, Sequence[str]]]] = {}
    for operator, samples in operators:
        by_file.setdefault(Path(operator.document.file), []).append((operator, samples))
    for path, several in by_file.items():
        text = path.read_bytes().decode("utf-8")
        ends = "\r\n" if text.count("\r\n") == text.count("\n") else "\n"
        text = text.replace(ends, "\n")
        for operator, samples in sorted(several, key=lambda one: one[0].index, reverse=True):
            text = with_samples(text, operator, samples)  # from the end, so that earlier positions stay valid
        path.write_bytes(text.replace("\n", ends).encode("utf-8"))
    return list(by_file)
