"""Templates: what a use fills in, where templates are found, and whose mistake a mistake is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opcheck.planning import load
from opcheck.settings import Settings
from opcheck.spec import Library, SpecError
from opcheck.spec.document import Document
from opcheck.spec.operator import SampleSpec, TemplateUse
from opcheck.spec.templates import Template, builtin

Write = Callable[..., Path]
Load = Callable[..., Library]
Mistakes = Callable[..., list[str]]

TEMPLATE = """
[template]
about    = "one input"
optional = ["shape", "extra"]
defaults = { low = 0 }

[[samples]]
name = "only"
args = ["$extra", { shape = "$shape", low = "$low", high = 2 }]
"""
USE = '[[operator]]\nname = "torch.sin"\nsamples = [{ use = "mine", shape = [2] }]\n'


def lines_of(path: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load([path])
    return str(caught.value).splitlines()


class TestBuiltin:
    @pytest.mark.parametrize("name", builtin())
    def test_every_shipped_template_says_what_it_is_for(self, name: str) -> None:
        assert Template.of(name, Document.read(*builtin()[name])).file.template.about

    @pytest.mark.parametrize("name", builtin())
    def test_every_sample_of_a_shipped_template_has_a_name_of_its_own(self, name: str) -> None:
        names = [sample.get("name") for sample in Template.of(name, Document.read(*builtin()[name])).file.samples]
        assert None not in names
        assert len(set(names)) == len(names)

    def test_an_unknown_template_has_the_nearest_name(self, mistakes: Mistakes) -> None:
        (line,) = mistakes(USE.replace("mine", "unari"))
        assert line.startswith('spec.toml:3:20: unknown template "unari"; expected one of ')
        assert line.endswith('; did you mean "unary"?')

    def test_an_unknown_parameter_has_the_nearest_name(self, mistakes: Mistakes) -> None:
        assert mistakes(USE.replace("mine", "unary").replace("shape = [2]", "lwo = 1")) == [
            'spec.toml:3:29: unknown key "lwo"; expected one of low, high, exclude '
            '(parameters of the template unary); did you mean "low"?'
        ]

    def test_every_unknown_parameter_is_reported_and_keys_of_any_use_are_suggested(self, mistakes: Mistakes) -> None:
        lines = mistakes(USE.replace("mine", "unary").replace("shape = [2]", "hihg = 1, kwarg = {}"))
        assert [(line.split(":")[2], line.rpartition("; ")[2]) for line in lines] == [
            ("29", 'did you mean "high"?'),
            ("39", 'did you mean "kwargs"?'),
        ]


class TestRecognition:
    """A template is a file that has a key `template`, whatever its text looks like."""

    @pytest.mark.parametrize(
        "head",
        [
            'template = { about = "x" }',
            'template.about = "x"',
            '[ "template" ]\nabout = "x"',
            '["\\u0074emplate"]\nabout = "x"',
            '# [[operator]]\n[template]\nabout = "x"',
        ],
    )
    def test_it_may_be_written_in_any_way(self, write: Write, head: str) -> None:
        write(f"{head}\n[[samples]]\nargs = []\n", "specs/mine.toml")
        write(USE.replace(", shape = [2]", ""), "specs/a.toml")
        assert len(load(["specs"])) == 1

    @pytest.mark.parametrize("notes", ['"""\n[template]\n"""', "'[template]' # [template]", '"""\n[template.x]\n"""'])
    def test_text_that_looks_like_one_is_none(self, write: Write, notes: str) -> None:
        write('[[operator]]\nname = "torch.sin"\nsamples = [{ use = "unary" }]\nnotes = ' + notes, "specs/a.toml")
        assert len(load(["specs"])) == 1

    def test_a_broken_one_is_the_mistake_of_its_uses(self, write: Write) -> None:
        write(TEMPLATE + "x = [", "specs/mine.toml")
        write(USE, "specs/a.toml")
        (line,) = lines_of("specs/a.toml")
        assert line.startswith("specs/mine.toml:9:6: invalid TOML: ")

    def test_two_of_one_name_are_refused(self, write: Write) -> None:
        write(TEMPLATE, "specs/b/mine.toml")
        write(TEMPLATE, "specs/a/mine.toml")
        write(USE, "specs/a.toml")
        assert lines_of("specs") == [
            'specs/b/mine.toml:1:2: template "mine" is described twice; first in specs/a/mine.toml; '
            "expected another file name"
        ]


class TestOfAProject:
    def test_templates_of_a_folder_are_known_to_its_specs_in_any_order(self, write: Write) -> None:
        write(TEMPLATE, "specs/zzz/mine.toml")
        write(USE, "specs/a.toml")
        (operator,) = load(["specs"])
        assert [(sample.name, sample.toml()) for sample in operator.samples] == [
            ("0.only", "{ args = [{ shape = [2], low = 0.0, high = 2.0 }] }")
        ]

    def test_a_lone_file_knows_the_templates_beside_it(self, write: Write) -> None:
        write(TEMPLATE, "specs/mine.toml")
        write(USE, "specs/a.toml")
        assert len(load(["specs/a.toml"])) == 1

    def test_a_lone_file_knows_the_templates_of_the_project(self, write: Write) -> None:
        write(TEMPLATE, "specs/templates/mine.toml")
        write(USE, "specs/unary/a.toml")
        assert len(load(["specs/unary/a.toml"], Settings.model_validate({"specs": ["specs"]}))) == 1

    def test_a_template_of_the_project_comes_before_a_shipped_one(self, write: Write) -> None:
        write(TEMPLATE, "specs/unary.toml")
        write(USE.replace("mine", "unary"), "specs/a.toml")
        (operator,) = load(["specs"])
        assert [sample.name for sample in operator.samples] == ["0.only"]

    def test_a_broken_template_is_reported_once_and_its_uses_are_not(self, write: Write) -> None:
        write(TEMPLATE.replace("about ", "abot "), "specs/mine.toml")
        write(USE + USE.replace("sin", "cos"), "specs/a.toml")
        assert lines_of("specs") == [
            'specs/mine.toml:2:1: unknown key "abot"; expected one of about, optional, defaults; did you mean "about"?'
        ]

    def test_a_parameter_must_be_declared(self, write: Write) -> None:
        write(TEMPLATE.replace('"$shape"', '"$shpae"'), "specs/mine.toml")
        assert lines_of("specs/mine.toml") == [
            'specs/mine.toml:8:29: unknown parameter "$shpae"; expected one of $shape, $extra, $low; '
            'did you mean "$shape"?'
        ]

    def test_a_parameter_cannot_have_the_name_of_a_key_of_every_use(self, write: Write) -> None:
        write(TEMPLATE.replace('["shape", "extra"]', '["shape", "extra", "kwargs"]'), "specs/mine.toml")
        assert lines_of("specs/mine.toml") == [
            'specs/mine.toml:3:31: a parameter cannot be called "kwargs"; '
            "expected a name other than name, kwargs, grid, skip, dtypes, vary, large, use"
        ]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("[template]\n", '1:1: missing key "about"; expected the purpose of the template'),
            ('[template]\nabout = "x"\nsamples = 3', '3:1: unknown key "samples"; expected one of about, optional, '),
            ('samples = []\n[template]\nabout = "x"\n', "1:11: samples is empty; expected at least one element"),
        ],
    )
    def test_templates_have_a_form(self, write: Write, text: str, said: str) -> None:
        write(text, "specs/mine.toml")
        assert any(line.startswith(f"specs/mine.toml:{said}") for line in lines_of("specs/mine.toml"))


class TestWhoseMistake:
    def mistakes(self, write: Write, use: str, template: str = TEMPLATE) -> list[str]:
        write(template, "specs/mine.toml")
        write(USE.replace("shape = [2]", use), "specs/a.toml")
        return lines_of("specs")

    def test_a_wrong_parameter_is_the_mistake_of_the_use(self, write: Write) -> None:
        assert self.mistakes(write, 'shape = [2, "x"]') == [
            'specs/a.toml:3:40: wrong type for an element of shape: a string ("x"); expected an integer'
        ]

    def test_a_parameter_that_does_not_go_with_the_template_is_the_mistake_of_the_use(self, write: Write) -> None:
        template = TEMPLATE.replace('"$shape"', "[2]")
        assert self.mistakes(write, "low = 7", template) == ["specs/a.toml:3:34: low = 7 is not below high = 2"]

    def test_parameters_that_do_not_go_together_are_the_mistake_of_the_use_as_a_whole(self, write: Write) -> None:
        assert self.mistakes(write, "shape = [2], low = 7") == ["specs/a.toml:3:12: low = 7 is not below high = 2"]

    def test_a_wrong_keyword_is_the_mistake_of_the_use(self, write: Write) -> None:
        assert self.mistakes(write, "shape = [2], kwargs = { x = { shape = [10000] } }") == [
            "specs/a.toml:3:56: a tensor of 10000 elements is too large; "
            "expected at most 4096 (max_elements of [tool.opcheck]), or large = true in the sample, for up to 65536"
        ]

    def test_anything_else_is_the_mistake_of_the_template(self, write: Write) -> None:
        assert self.mistakes(write, "shape = [2]", TEMPLATE.replace("high = 2", "hihg = 2"))[0].startswith(
            'specs/mine.toml:8:53: unknown key "hihg"; expected one of shape, '
        )

    def test_places_are_right_where_an_optional_argument_is_left_out(self, write: Write) -> None:
        template = TEMPLATE.replace("high = 2 }]", "high = 2 }, { none = false }]")
        assert self.mistakes(write, "shape = [2]", template) == [
            "specs/mine.toml:8:74: wrong value for none: a boolean (false); expected true"
        ]
        assert self.mistakes(write, "extra = 1, shape = [1], kwargs = {}", template) == [
            "specs/mine.toml:8:74: wrong value for none: a boolean (false); expected true"
        ]

    def test_a_tensor_that_a_parameter_makes_too_large_is_the_mistake_of_the_use(self, write: Write) -> None:
        assert self.mistakes(write, "shape = [100, 100]") == [
            "specs/a.toml:3:36: a tensor of 10000 elements is too large; "
            "expected at most 4096 (max_elements of [tool.opcheck]), or large = true in the sample, for up to 65536"
        ]


class TestFilling:
    def test_a_parameter_not_given_leaves_no_trace(self, write: Write) -> None:
        template = Template.of("mine", Document.read(write(TEMPLATE, "mine.toml")))
        assert template.parameters == ("shape", "extra", "low")
        (sample,) = template.file.samples
        assert template.filled(sample, {}) == {"name": "only", "args": [{"low": 0, "high": 2}]}
        assert template.filled(sample, {"low": -1, "extra": [1]})["args"] == [
            [1],
            {"low": -1, "high": 2},
        ]

    def test_parameters_are_not_among_the_keys_of_a_sample(self) -> None:
        use = TemplateUse.model_validate({"use": "unary", "low": 1, "kwargs": {"a": 1}})
        assert use.parameters == {"low": 1}
        assert SampleSpec.model_validate({"args": []}).name is None

    def test_a_broken_template_beside_a_lone_file_concerns_it_only_where_it_uses_it(self, write: Write) -> None:
        write(TEMPLATE.replace("about ", "abot "), "specs/mine.toml")
        write('[[operator]]\nname = "torch.sin"\nsamples = [{ args = [{ shape = [2] }] }]\n', "specs/plain.toml")
        write(USE, "specs/uses.toml")
        assert len(load(["specs/plain.toml"])) == 1
        assert len(lines_of("specs/uses.toml")) == 1

    def test_the_project_file_is_no_spec(self, write: Write) -> None:
        write("[project]\nname = 'x'\n", "pyproject.toml")
        write('[[operator]]\nname = "torch.sin"\nsamples = [{ args = [{ shape = [2] }] }]\n', "specs/plain.toml")
        assert len(load(["."])) == 1
