"""Generates the reference of opcheck's public names from their signatures and docstrings."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from types import FunctionType
from typing import Any

import opcheck

ORDER = (
    "check", "CheckReport", "CheckError", "register_check", "Subject", "Verdict", "gradcheck", "gradgradcheck",
    "GradcheckError", "cases", "load", "plan", "run", "Case", "Outcome", "SpecError", "register_condition",
)  # fmt: skip
"""The public names, in the order of the reference."""

SHOWN = {
    "Subject": ("context", "sample", "inputs", "function", "leaves", "result", "outputs"),
    "Case": (
        "id", "subject", "check", "operator", "variant", "kind", "device", "dtype", "claims", "samples", "expectations",
        "base_seed",
    ),
}  # fmt: skip
"""The attributes to document of classes that also have internal ones."""

LABEL = re.compile(r"^(\w+|\*+\w+): ")


def reference() -> str:
    """Return the reference as Markdown: for each public name, its signature and the parts of its docstring."""
    return "\n\n".join(part for name in ORDER for part in parts(name, resolve(name)) if part)


def resolve(name: str) -> Any:
    """Return the object with a public name."""
    return getattr(import_module(opcheck.HOMES[name]), name)


def parts(name: str, thing: Any) -> Iterator[str]:
    """Yield the parts of the section about a name, as Markdown."""
    texts = sections(inspect.getdoc(thing) or "")
    yield f"### `opcheck.{name}`"
    if not isinstance(thing, type):
        yield f"```python\n{signature(name, thing)}\n```"
    yield flowing(texts.pop(""))
    if isinstance(thing, type):
        yield attributes(name, thing)
    example = texts.pop("Example")
    for title, text in texts.items():
        yield entries(title, text)
    yield from blocks(example)


def sections(doc: str) -> dict[str, str]:
    """Return the sections of a docstring by title. The text before the first title is under the empty title."""
    texts, title = {"": ""}, ""
    for line in doc.splitlines():
        if re.fullmatch(r"(Args|Returns|Raises|Example):", line):
            title = line.removesuffix(":")
            texts[title] = ""
        else:
            texts[title] += f"{line}\n"
    return {title: textwrap.dedent(text).strip() for title, text in texts.items()}


def flowing(text: str) -> str:
    """Return text with each paragraph on one line."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def entries(title: str, text: str) -> str:
    """Return a section about arguments or errors as a list, one about results as paragraphs."""
    if title == "Returns":
        return f"**{title}**\n\n{flowing(text)}"
    items: list[str] = []
    for line in text.splitlines():
        if line.startswith(" ") and items:
            items[-1] += f" {line.strip()}"
        else:
            items.append(LABEL.sub(r"`\1`: ", line))
    heading = {"Args": "Arguments"}.get(title, title)
    return f"**{heading}**\n\n" + "\n".join(f"- {item}" for item in items)


def blocks(text: str) -> Iterator[str]:
    """Yield the examples of a docstring as code blocks, and the paragraphs between them."""
    for block in re.split(r"\n\n(?=[A-Z])|(?<=:)\n\n", text):
        yield f"```pycon\n{block}\n```" if block.startswith(">>>") else flowing(block)


def signature(name: str, function: Any) -> str:
    """Return a signature as Python code, on one line if it is short, else with a line for each parameter."""
    plain = inspect.signature(function)
    # Annotations are strings. Bare shows them without quotes.
    bare = [each.replace(annotation=Bare(each.annotation)) for each in plain.parameters.values()]
    text = str(plain.replace(parameters=bare, return_annotation=Bare(plain.return_annotation)))
    if len(text) <= 80:
        return f"opcheck.{name}{text}"
    marks = {"/": lambda each: each.kind is each.POSITIONAL_ONLY, "*": lambda each: each.kind is each.KEYWORD_ONLY}
    lines = [str(each) for each in bare]
    last = max((index for index, each in enumerate(bare) if marks["/"](each)), default=None)
    first = next((index for index, each in enumerate(bare) if marks["*"](each)), None)
    if first is not None and not any(each.kind is each.VAR_POSITIONAL for each in bare):
        lines.insert(first, "*")
    if last is not None:
        lines.insert(last + 1, "/")
    listed = "".join(f"    {line},\n" for line in lines)
    return f"opcheck.{name}(\n{listed}) -> {plain.return_annotation}"


class Bare:
    """An annotation whose `repr` is its source, without quotes."""

    def __init__(self, text: Any) -> None:
        self.text = str(text)

    def __repr__(self) -> str:
        return self.text


def attributes(name: str, kind: type) -> str:
    """Return a table of the public fields, properties and methods of a class, from their docstrings."""
    meanings = {} if issubclass(kind, BaseException) else {**fields(kind), **members(kind)}
    chosen = SHOWN.get(name, tuple(meanings))
    rows = [f"| `{each}` | {' '.join(meanings[each].split())} |" for each in chosen]
    return "\n".join(["| attribute | meaning |", "|---|---|", *rows]) if rows else ""


def fields(kind: type) -> dict[str, str]:
    """Return the docstrings of the public fields of a class, by name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)
    texts = {}
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = after.value if isinstance(after, ast.Expr) else None
            texts[node.target.id] = str(text.value) if isinstance(text, ast.Constant) else ""
    return {field: text for field, text in texts.items() if not field.startswith("_")}


def members(kind: type) -> dict[str, str]:
    """Return the first paragraphs of the docstrings of the public properties and methods of a class, by name."""
    texts = {}
    for name, member in vars(kind).items():
        method = isinstance(member, (FunctionType, classmethod, staticmethod))
        if not name.startswith("_") and (method or isinstance(member, (property, cached_property))):
            texts[f"{name}()" if method else name] = (inspect.getdoc(member) or "").split("\n\n")[0]
    return texts
