"""Writes the reference tables of docs/ from the models and registries. `--check` only checks if they are stale."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, get_args, get_origin

import library
from api_reference import reference
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from findings import page
from opcheck.matrix import Matrix
from opcheck.samples.structures import STRUCTURES
from opcheck.samples.through import THROUGH
from opcheck.settings import Settings
from opcheck.spec import dtypes, templates, values
from opcheck.spec.checks import BUILTIN as CHECKS
from opcheck.spec.claims import (
    Accuracy,
    Dtypes,
    ErrorClaim,
    Expect,
    Gradcheck,
    Outputs,
    Reference,
    Supports,
    Tolerance,
    When,
)
from opcheck.spec.device_profile import DeviceProfile, Hint
from opcheck.spec.load import Catalogue
from opcheck.spec.operator import Construction, Init, OperatorSpec, PerTorch, SampleSpec, TemplateUse
from opcheck.spec.recipe import Tensor
from opcheck.spec.render import render

DOCS = Path(__file__).resolve().parent.parent / "docs"


def fields(model: type[BaseModel]) -> str:
    """Return a table of the keys of a model: name, type, default, meaning."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        cells = (f"`{name}`", _type(field.annotation), _default(field), _cell(field.description or ""))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel) or value in ({}, [], (), "", None):
        return ""
    return f"`{render(value)}`"


NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "table", list: "array", tuple: "array"}


def _type(annotation: Any) -> str:
    if annotation in NAMES:
        return NAMES[annotation]
    if annotation is Any:
        return "number or array"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    if str(get_origin(annotation)) == "typing.Literal":
        return _cell(" | ".join(f"`{choice}`" for choice in get_args(annotation)))
    if get_origin(annotation) in (list, tuple, dict):
        inner = [_type(part) for part in get_args(annotation) if part is not ...]
        kind = NAMES[get_origin(annotation)]
        return f"{kind} of {inner[-1]}s" if inner and kind == "array" and " " not in inner[-1] else kind
    if hasattr(annotation, "__value__"):
        return "value"
    parts = [_type(part) for part in get_args(annotation) if part is not type(None) and not _is_metadata(part)]
    return " or ".join(dict.fromkeys(parts)) or "string"


def _is_metadata(part: Any) -> bool:
    return not (isinstance(part, type) or get_origin(part) or hasattr(part, "__value__") or part is Any)


TORCH_PARAMETERS = {
    "backward": "check_backward_ad",
    "forward_ad": "check_forward_ad",
    "batched_grad": "check_batched_grad",
    "batched_forward_grad": "check_batched_forward_grad",
    "undefined_grad": "check_undefined_grad",
    "grad_dtypes": "check_grad_dtypes",
    "nondeterminism": "nondet_tol",
    "rev_over_rev": "check_rev_over_rev",
    "fwd_over_rev": "check_fwd_over_rev",
    "masked": "masked",
}
"""The parameters of torch's gradcheck and gradgradcheck that correspond to checks."""


def checks() -> str:
    """Return a table of the checks: name, claim, `supports` it needs, blocking checks, torch's parameter, dtypes."""
    titles = ("check", "what a pass says", "`supports` it needs", "blocked by", "torch's parameter", "dtypes")
    rows = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for kind in CHECKS:
        needs = ", ".join(f"`{name}`" for name in kind.needs)
        parameter = f"`{TORCH_PARAMETERS[kind.name]}`" if kind.name in TORCH_PARAMETERS else ""
        roots = ", ".join(f"`{name}`" for name in kind.rests_on)
        rows.append(f"| `{kind.name}` | {kind.claim} | {needs} | {roots} | {parameter} | {kind.dtypes} |")
    return "\n".join(rows)


def groups() -> str:
    """Return a table of the groups of dtypes."""
    rows = ["| group | dtypes |", "|---|---|"]
    return "\n".join(rows + [f"| `{name}` | {', '.join(members)} |" for name, members in dtypes.GROUPS.items()])


def template_table() -> str:
    """Return a table of the shipped templates and their parameters."""
    rows = ["| template | what for | parameters |", "|---|---|---|"]
    for file in chain(*templates.builtin().values()):
        template = Catalogue().template(file)
        parameters = ", ".join(f"`{parameter}`" for parameter in template.parameters)
        rows.append(f"| `{template.name}` | {_cell(template.file.template.about)} | {parameters} |")
    return "\n".join(rows)


def described(functions: Mapping[str, Callable[..., object]]) -> str:
    """Return a table of functions, with the first paragraphs of their docstrings."""
    rows = ["| name | meaning |", "|---|---|"]
    for name, function in functions.items():
        summary = (function.__doc__ or "").split("\n\n")[0]
        rows.append(f"| `{name}` | {_cell(summary)} |")
    return "\n".join(rows)


def literals() -> str:
    """Return a table of the literals that TOML lacks, from docstrings of the form "meaning: TOML"."""
    rows = ["| table | meaning |", "|---|---|"]
    models = (
        values.NoneValue, values.ComplexValue, values.DtypeValue, values.SliceValue, values.EllipsisValue,
        values.TupleValue, values.MappingValue, values.ObjectValue, values.CallValue, values.SameValue,
    )  # fmt: skip
    for model in models:
        meaning, _, written = (model.__doc__ or "").strip().rstrip(".").partition(": ")
        rows.append(f"| {_cell(written)} | {_cell(meaning)} |")
    return "\n".join(rows)


SECTIONS: dict[str, Callable[[], str]] = {
    "operator": lambda: fields(OperatorSpec),
    "module": lambda: fields(Construction),
    "init": lambda: fields(Init),
    "sample": lambda: fields(SampleSpec),
    "use": lambda: fields(TemplateUse),
    "tensor": lambda: fields(Tensor),
    "literals": literals,
    "structures": lambda: described(STRUCTURES),
    "through": lambda: described(THROUGH),
    "dtypes": lambda: fields(Dtypes),
    "groups": groups,
    "supports": lambda: fields(Supports),
    "tolerance": lambda: fields(Tolerance),
    "accuracy": lambda: fields(Accuracy),
    "outputs": lambda: fields(Outputs),
    "gradcheck": lambda: fields(Gradcheck),
    "reference": lambda: fields(Reference),
    "errors": lambda: fields(ErrorClaim),
    "expect": lambda: fields(Expect),
    "when": lambda: fields(When),
    "templates": template_table,
    "per_torch": lambda: fields(PerTorch),
    "device": lambda: fields(DeviceProfile),
    "hint": lambda: fields(Hint),
    "settings": lambda: fields(Settings),
    "matrix": lambda: fields(Matrix),
    "checks": checks,
    "api": lambda: f"\n{reference()}\n",
    "findings": lambda: f"\n{page()}\n",
    "families": library.overview,
    "operators": library.operators,
}

MARK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def regenerated(text: str) -> str:
    """Return a document with its tables generated again."""
    return MARK.sub(lambda found: f"{found[1]}{SECTIONS[found[2]]()}\n{found[3]}", text)


def main() -> int:
    stale = []
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        new = regenerated(text)
        if new != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(new, encoding="utf-8")
    if "--check" in sys.argv and stale:
        print(f"stale: {', '.join(stale)}; run make docs", file=sys.stderr)
        return 1
    print("docs: " + (f"wrote {', '.join(stale)}" if stale else "up to date"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
