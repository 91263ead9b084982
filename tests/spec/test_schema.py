"""The JSON Schema that editors complete and check specs with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import planted
import pytest
import tomli
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema

from opcheck.planning import load
from opcheck.planning.vocabulary import vocabulary
from opcheck.settings import Settings
from opcheck.spec import SpecError
from opcheck.spec import schema as written
from opcheck.spec.checks import BUILTIN
from opcheck.spec.document import Document
from opcheck.spec.dtypes import FOLLOWING, GROUPS, KNOWN
from opcheck.spec.load import builtin_folder
from opcheck.spec.model import Model
from opcheck.spec.schema import Vocabulary
from opcheck.spec.templates import Template, builtin

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema, of the extra `test`, is not installed")

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = Path(written.__file__).parent / "builtin"
TOML = re.compile(r"^```toml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OWN = Template.of("own", Document.parse("own.toml", '[template]\nabout = "o"\noptional = ["low"]\n[[samples]]\n'))
UNARY = Template.of("unary", Document.read(*builtin()["unary"]))
PROJECT = Vocabulary({"backward": "", "mine": ""}, {"cpu": "", "npu": ""}, (OWN, UNARY), complete=True)


def spec(*lines: str, samples: str = '[{ use = "unary" }]') -> str:
    return "\n".join(["[[operator]]", 'name = "torch.sin"', f"samples = {samples}", *lines, ""])


def mistakes(schema: Any, text: str) -> list[str]:
    found = jsonschema.Draft7Validator(schema).iter_errors(tomli.loads(text))
    return [f"{error.json_path}: {error.message}" for error in found]


@pytest.fixture(scope="module")
def schema() -> Any:
    return json.loads(json.dumps(written.json_schema(vocabulary())))


@pytest.fixture(scope="module")
def own() -> Any:
    return json.loads(json.dumps(written.json_schema(PROJECT)))


@pytest.fixture(scope="module")
def closed() -> Any:
    """The schema of a project that has no names of its own."""
    return written.json_schema(vocabulary(Settings()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("schema")


def at(schema: Any, *keys: str) -> Any:
    """Return what a schema says about the value at some keys; "*" is an element of an array."""
    node = schema
    for key in keys:
        found = [one["items"] if key == "*" else one["properties"][key] for one in members(schema, node, key)]
        (node,) = found
    return node


def members(schema: Any, node: Any, key: str) -> Iterator[Any]:
    """Yield the schemas that a schema consists of, and that have a key."""
    if "$ref" in node:
        yield from members(schema, schema["$defs"][node["$ref"].removeprefix("#/$defs/")], key)
    elif "items" in node if key == "*" else key in node.get("properties", {}):
        yield node
    for part in (*node.get("anyOf", ()), *node.get("allOf", ())):
        yield from members(schema, part, key)


def models() -> list[type[BaseModel]]:
    """Return the models of all tables of all files."""
    written._build(Model)
    _, definitions = models_json_schema([(model, "validation") for model in written.FILES.values()])
    known: dict[str, type[BaseModel]] = {}
    waiting: list[type[BaseModel]] = [Model]
    while waiting:
        derived = waiting.pop().__subclasses__()
        known |= {model.__name__: model for model in derived}
        waiting += derived
    return [known[name] for name in definitions["$defs"] if name in known]


def keys() -> list[Any]:
    return [pytest.param(model, key, id=f"{model.__name__}.{key}") for model in models() for key in model.model_fields]


def test_it_is_a_valid_schema_of_draft_7(schema: Any, own: Any) -> None:
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.Draft7Validator.check_schema(own)
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert schema["title"] == "opcheck spec"
    assert list(schema["properties"]) == ["defaults", "operator", "template", "samples", "device"]


def test_it_has_only_what_draft_7_knows(schema: Any, own: Any) -> None:
    for text in (json.dumps(schema), json.dumps(own)):
        assert not {'"prefixItems"', '"discriminator"', '"names"'} & set(re.findall(r'"\w+"(?=:)', text))


def test_nothing_stands_beside_a_reference(schema: Any) -> None:
    def beside(node: Any) -> Iterator[Any]:
        if isinstance(node, dict) and "$ref" in node and len(node) > 1:
            yield node
        for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from beside(value)

    assert list(beside(schema)) == []


@pytest.mark.parametrize(("model", "key"), keys())
def test_a_key_is_described_and_has_valid_examples(model: type[BaseModel], key: str) -> None:
    field = model.model_fields[key]
    assert field.description or len(model.model_fields) == 1
    given = written.examples(model, key)
    assert given, "builtin/examples.toml has none"
    adapter: TypeAdapter[Any] = TypeAdapter(field.rebuild_annotation())
    for example in given:
        adapter.validate_python(example)


def fields(model: type) -> dict[str, Any]:
    return getattr(model, "model_fields", {})


def test_examples_are_about_keys_that_exist() -> None:
    declared = {base.__name__: base for model in models() for base in model.__mro__}
    unknown = [
        f"{name}.{key}"
        for name, table in written._examples().items()
        for key in table
        if name not in declared
        or key not in {**vars(declared[name]).get("__annotations__", {}), **fields(declared[name])}
    ]
    assert unknown == []


def test_keys_have_their_description_and_an_example(schema: Any) -> None:
    key = at(schema, "operator", "*", "per_device")
    assert key["description"].startswith("what differs on a device\n\nExample: `per_device = { cuda = ")
    assert key["examples"] == [{"cuda": {"dtypes": {"forward": ["floating", "-half"]}}}]
    assert at(schema, "operator", "*", "reseed")["default"] is False
    assert at(schema, "defaults", "samples", "*", "args", "*", "none")["description"].startswith("`None`: ")


def test_names_are_enumerated(schema: Any) -> None:
    checks = [kind.name for kind in BUILTIN]
    when = at(schema, "operator", "*", "expect", "*", "when")
    one, several = at(schema, "operator", "*", "expect", "*", "when", "check")["anyOf"]
    assert one["anyOf"][0]["enum"] == several["items"]["anyOf"][0]["enum"] == checks
    (table,) = members(schema, when, "dtype")
    assert set(table["properties"]["dtype"]["anyOf"][0]["enum"]) == {*GROUPS, *KNOWN}
    assert list(at(schema, "operator", "*", "tolerance", "check")["properties"]) == checks
    assert list(at(schema, "operator", "*", "per_device")["properties"]) == ["cpu", "cuda", "mps", "xpu"]
    assert at(schema, "operator", "*", "samples", "*", "use")["anyOf"][0]["enum"] == list(builtin())
    tensor = schema["$defs"]["Tensor"]
    assert "hermitian" in at(tensor, "structure")["enum"]
    assert "sparse_coo" in at(tensor, "layout")["enum"]
    assert {"real", "bfloat16"} <= set(at(tensor, "dtype")["enum"])
    assert {"floating", "-half"} <= set(schema["$defs"]["Dtypes"]["properties"]["forward"]["items"]["enum"])


def test_what_names_mean_is_shown(schema: Any) -> None:
    one, _ = at(schema, "operator", "*", "expect", "*", "when", "check")["anyOf"]
    assert one["anyOf"][0]["x-taplo"]["docs"]["enumValues"] == [kind.claim for kind in BUILTIN]


OTHER_NAMES = {
    "check": spec("[[operator.expect]]", 'when = { check = "mine" }', 'outcome = "fail"', 'reason = "r"'),
    "check with tolerances": spec("tolerance = { check = { mine = { atol = 1 } } }"),
    "device": spec('devices = ["npu"]', "per_device = { npu = {} }"),
    "template": spec(samples='[{ use = "own", low = 1 }]'),
}


@pytest.mark.parametrize("text", OTHER_NAMES.values(), ids=OTHER_NAMES)
def test_names_of_a_project_are_accepted(schema: Any, own: Any, text: str) -> None:
    assert mistakes(schema, text) == []
    assert mistakes(own, text) == []


@pytest.mark.parametrize("text", OTHER_NAMES.values(), ids=OTHER_NAMES)
def test_names_that_a_project_does_not_have_are_refused_if_all_are_known(own: Any, text: str) -> None:
    for name in ("mine", "npu", "own"):
        text = re.sub(rf"\b{name}\b", "unknown", text)
    assert mistakes(own, text)


def test_parameters_belong_to_their_template(own: Any) -> None:
    assert mistakes(own, spec(samples='[{ use = "own", low = 1 }]')) == []
    assert mistakes(own, spec(samples='[{ use = "own", high = 1 }]'))


def spec_files() -> list[Path]:
    """Return all shipped specs, templates, device profiles and examples."""
    examples = [path for path in (ROOT / "examples").rglob("*.toml") if path.name != "pyproject.toml"]
    shipped = [*builtin_folder().rglob("*.toml"), *(PACKAGE / "templates").iterdir(), *(PACKAGE / "devices").iterdir()]
    return sorted([*shipped, *examples])


def test_shipped_specs_templates_and_profiles_pass(schema: Any) -> None:
    files = spec_files()
    assert len(files) > 50
    wrong = {str(path): mistakes(schema, path.read_text(encoding="utf-8")) for path in files}
    assert {path: found for path, found in wrong.items() if found} == {}


def test_the_toml_of_the_documents_passes(schema: Any) -> None:
    texts = [text for path in (ROOT / "docs").glob("*.md") for text in TOML.findall(path.read_text(encoding="utf-8"))]
    specs = [text for text in texts if {"operator", "defaults", "template"} & tomli.loads(text).keys()]
    assert len(specs) > 5
    for text in specs:
        head = "" if "name" in text or "[template]" in text else '[[operator]]\nname = "torch.add"\n'
        assert mistakes(schema, head + text) == [], text


@pytest.mark.parametrize(
    "text",
    [
        spec("reseed = 1"), spec("sample = []"), "[[operator]]\nvariants = []\n", 'operator = "x"', "", "[device]\n",
        spec() + '[device]\nname = "npu"\n', '[template]\nabout = "no samples"\n', "[[samples]]\nargs = []\n",
    ],
)  # fmt: skip
def test_what_the_loader_refuses_is_refused(schema: Any, text: str) -> None:
    assert mistakes(schema, text)


@pytest.mark.parametrize("dtype", [*KNOWN, *FOLLOWING])
def test_each_dtype_of_a_tensor_that_the_loader_knows_is_accepted(folder: Path, closed: Any, dtype: str) -> None:
    path = folder / "spec.toml"
    path.write_text(spec(samples=f'[{{ args = [{{ shape = [2], dtype = "{dtype}" }}] }}]'), encoding="utf-8")
    load([path])
    assert mistakes(closed, path.read_text(encoding="utf-8")) == []


@settings(max_examples=300, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(planted.operators()),
    st.integers(0, 10**6),
    st.sampled_from(
        (*planted.NASTY_NUMBERS, *planted.NASTY_STRINGS, *planted.NASTY_TABLES, "true", '"float32"', "[1]")
    ),
)
def test_what_the_loader_accepts_is_accepted(folder: Path, closed: Any, text: str, choice: int, value: str) -> None:
    path = folder / "spec.toml"
    path.write_text(planted.planted(text, choice, value, key=False)[0], encoding="utf-8")
    try:
        load([path])
    except SpecError:
        return
    # A default that every operator overrides may be wrong unnoticed.
    assert [told for told in mistakes(closed, path.read_text(encoding="utf-8")) if "$.defaults" not in told] == []
