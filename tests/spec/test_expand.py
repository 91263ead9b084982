"""From written samples to samples that run: grids, skips, layouts, dtypes, bounds, names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opcheck.planning import load
from opcheck.spec import Library
from opcheck.spec.library import names_of
from opcheck.spec.operator import Construction

Write = Callable[..., Path]
Load = Callable[..., Library]
Mistakes = Callable[..., list[str]]

HEAD = '[[operator]]\nname = "torch.sin"\n'
STEPS = 20_000_000
"""Lines run and calls made, 6 million of them to read the file. A million samples that are made one by one, or compared
with a thousand skips, take far more."""


def names(library: Library) -> list[str]:
    return [sample.name for operator in library for sample in operator.samples]


class TestGrids:
    def test_every_combination_is_a_sample(self, loaded: Load) -> None:
        library = loaded(HEAD + 'samples = [{ args = [1], grid = { stride = [1, 2], padding = [0, "same"] } }]')
        assert names(library) == [
            "0[stride=1,padding=0]",
            "0[stride=1,padding=same]",
            "0[stride=2,padding=0]",
            "0[stride=2,padding=same]",
        ]
        (operator,) = library
        assert operator.samples[1].kwargs == {"stride": 1, "padding": "same"}

    def test_the_grid_has_other_keywords_than_kwargs(self, mistakes: Mistakes) -> None:
        assert mistakes(HEAD + "samples = [{ kwargs = { a = 1, b = 2 }, grid = { a = [3] } }]") == [
            'spec.toml:3:29: "a" is in kwargs and in grid; expected one of them'
        ]

    def test_a_skip_leaves_out_what_it_matches(self, loaded: Load) -> None:
        text = "grid = { a = [1, 2], b = [1, 2] }, skip = [{ a = 1, b = 2 }, { a = 2 }]"
        assert names(loaded(HEAD + f"samples = [{{ {text} }}]")) == ["0[a=1,b=1]"]

    def test_tables_can_be_points_of_a_grid(self, loaded: Load) -> None:
        text = "grid = { m = [{ none = true }, [1, 2]] }, skip = [{ m = { none = true } }]"
        assert names(loaded(HEAD + f"samples = [{{ {text} }}]")) == ["0[m=[1, 2]]"]

    def test_a_skip_that_matches_nothing_is_refused(self, mistakes: Mistakes) -> None:
        assert mistakes(HEAD + "samples = [{ grid = { a = [1, 2] }, skip = [{ a = 1 }, { a = 3 }] }]") == [
            "spec.toml:3:56: this skip matches no combination of the grid; expected values of the grid"
        ]

    def test_a_skip_of_an_unknown_key_has_the_nearest_name(self, mistakes: Mistakes) -> None:
        assert mistakes(HEAD + "samples = [{ grid = { stride = [1], dim = [0] }, skip = [{ strid = 1 }] }]") == [
            'spec.toml:3:60: "strid" is not a key of the grid; expected one of stride, dim; did you mean "stride"?'
        ]

    def test_a_skip_without_a_grid_is_refused(self, mistakes: Mistakes) -> None:
        assert mistakes(HEAD + "samples = [{ skip = [{ a = 1 }] }]") == [
            'spec.toml:3:24: "a" is not a key of the grid; expected a sample with a grid'
        ]

    def test_an_empty_skip_is_refused(self, mistakes: Mistakes) -> None:
        assert mistakes(HEAD + "samples = [{ grid = { a = [1] }, skip = [{}] }, { use = 'unary' }]") == [
            "spec.toml:3:42: an empty skip would skip every sample; expected keys and values of the grid"
        ]

    def test_an_empty_list_of_values_is_refused(self, mistakes: Mistakes) -> None:
        assert mistakes(HEAD + "samples = [{ grid = { a = [] } }]") == [
            "spec.toml:3:27: a is empty; expected at least one element"
        ]

    def test_a_grid_over_a_template_gives_every_sample_every_combination(self, loaded: Load) -> None:
        plain = names(loaded(HEAD + 'samples = [{ use = "unary" }]'))
        text = 'samples = [{ use = "unary", grid = { a = [1, 2, 3] }, skip = [{ a = 2 }] }]'
        assert names(loaded(HEAD + text)) == [f"{name}[a={a}]" for name in plain for a in (1, 3)]

    def test_a_skip_over_a_template_that_matches_nothing_is_reported_once(self, mistakes: Mistakes) -> None:
        assert mistakes(HEAD + 'samples = [{ use = "unary", grid = { a = [1] }, skip = [{ a = 2 }] }]') == [
            "spec.toml:3:57: this skip matches no combination of the grid; expected values of the grid"
        ]

    def test_samples_remember_their_lines(self, loaded: Load) -> None:
        (operator,) = loaded(HEAD + "samples = [\n  { grid = { a = [1, 2] } },\n  { args = [1] },\n]")
        assert [sample.where for sample in operator.samples] == ["spec.toml:4", "spec.toml:4", "spec.toml:5"]

    def test_samples_of_the_defaults_lie_in_the_defaults(self, loaded: Load) -> None:
        (operator,) = loaded("[defaults]\nsamples = [{ args = [1] }]\n" + HEAD)
        assert [sample.where for sample in operator.samples] == ["spec.toml:2"]


class TestNames:
    def test_a_sample_is_called_by_its_name_else_by_its_number(self, loaded: Load) -> None:
        assert names(loaded(HEAD + 'samples = [{ args = [1] }, { name = "two", args = [2] }]')) == ["0", "two"]

    def test_a_name_in_expect_means_the_whole_grid(self, loaded: Load) -> None:
        (operator,) = loaded(HEAD + 'samples = [{ name = "s", grid = { a = [1, 2] } }]')
        assert [names_of(sample.name) for sample in operator.samples] == [("s[a=1]", "s"), ("s[a=2]", "s")]

    def test_two_samples_of_one_name_are_refused(self, mistakes: Mistakes) -> None:
        assert mistakes(HEAD + 'samples = [{ name = "s", args = [1] }, { name = "s", args = [2] }]') == [
            'spec.toml:3:49: two samples are called "s"; expected names that differ'
        ]

    def test_a_value_twice_in_a_grid_is_refused(self, mistakes: Mistakes) -> None:
        assert mistakes(HEAD + "samples = [{ grid = { a = [1, 1] } }]") == [
            'spec.toml:3:12: two samples are called "0[a=1]"; expected names that differ'
        ]


class TestModules:
    HEAD = '[[operator]]\nname = "torch.nn.Linear"\n'

    def test_a_sample_says_what_differs_in_how_the_module_is_constructed(self, loaded: Load) -> None:
        written = "module = { kwargs = { bias = false } }"
        (operator,) = loaded(
            f"{self.HEAD}module = {{ args = [3, 2], train = false }}\n"
            f"samples = [{{ args = [{{ shape = [3] }}] }}, {{ args = [{{ shape = [3] }}], {written} }}]"
        )
        usual, other = operator.samples
        assert usual.module is None
        assert other.module == Construction(args=[3, 2], kwargs={"bias": False}, train=False)
        assert other.toml() == (
            "{ args = [{ shape = [3] }], module = { args = [3, 2], kwargs = { bias = false }, train = false } }"
        )

    def test_what_is_no_module_is_not_constructed(self, mistakes: Mistakes) -> None:
        assert mistakes(HEAD + "samples = [{ args = [1], module = {} }]") == [
            "spec.toml:3:26: the operator is not a module; expected `module` of the operator, too"
        ]

    def test_its_values_are_bounded_as_others_are(self, mistakes: Mistakes) -> None:
        text = "module = {}\nsamples = [{ module = { args = [{ call = 'os.system' }, { shape = [100, 1000] }] } }]"
        assert [line.split(";")[0] for line in mistakes(self.HEAD + text)] == [
            'spec.toml:4:42: "os.system" is outside the allowed modules',
            "spec.toml:4:57: a tensor of 100000 elements is too large",
        ]


class TestLayouts:
    TEXT = "samples = [{ args = [{ shape = [2, 2] }] }, { args = [{ shape = [2] }, 1] }, { args = [{ shape = [] }] }]\n"

    def test_strided_samples_are_repeated_where_their_rank_allows(self, loaded: Load) -> None:
        (operator,) = loaded(HEAD + self.TEXT + 'layouts = ["strided", "sparse_coo", "sparse_csr"]')
        assert [sample.name for sample in operator.samples] == [
            "0",
            "1",
            "2",
            "0+sparse_coo",
            "1+sparse_coo",
            "0+sparse_csr",
        ]
        assert [sample.is_sparse for sample in operator.samples] == [False] * 3 + [True] * 3
        assert operator.samples[4].toml() == '{ args = [{ shape = [2], layout = "sparse_coo" }, 1] }'

    def test_keys_of_strided_tensors_are_left_out(self, loaded: Load) -> None:
        text = 'samples = [{ args = [{ shape = [2, 3], memory = "transposed", low = 1.0 }] }]\nlayouts = ["sparse_coo"]'
        (operator,) = loaded(HEAD + text)
        assert operator.samples[0].toml() == '{ args = [{ shape = [2, 3], low = 1.0, layout = "sparse_coo" }] }'

    def test_without_strided_only_the_others_stay(self, loaded: Load) -> None:
        assert names(loaded(HEAD + self.TEXT + 'layouts = ["sparse_csr"]')) == ["0+sparse_csr"]

    def test_a_name_with_a_plus_is_repeated_too(self, loaded: Load) -> None:
        text = 'samples = [{ name = "a+b", args = [{ shape = [2] }] }]\nlayouts = ["strided", "sparse_coo"]'
        assert names(loaded(HEAD + text)) == ["a+b", "a+b+sparse_coo"]

    def test_a_layout_that_no_sample_can_have_is_a_mistake(self, loaded: Load, mistakes: Mistakes) -> None:
        text = HEAD + 'samples = [{ args = [{ shape = [2] }] }]\nlayouts = ["strided", "sparse_coo", "sparse_csr"]'
        (line,) = mistakes(text)
        assert line.startswith("spec.toml:4:37: no sample can have the layout sparse_csr: it would not be tested")
        assert names(loaded(text.replace("[2]", "[2, 2]"))) == ["0", "0+sparse_coo", "0+sparse_csr"]

    def test_layouts_that_no_sample_can_have_leave_none(self, mistakes: Mistakes) -> None:
        assert mistakes(HEAD + 'samples = [{ args = [{ shape = [2] }] }]\nlayouts = ["sparse_csr"]') == [
            'spec.toml:3:11: operator "torch.sin" has no samples left; '
            "expected a skip, dtypes or layouts that leave at least one"
        ]


class TestDtypes:
    def test_a_sample_goes_with_all_dtypes_unless_it_says_otherwise(self, loaded: Load) -> None:
        (operator,) = loaded(HEAD + 'samples = [{ args = [1] }, { args = [2], dtypes = ["complex"] }]')
        assert [sample.goes_with("float64") for sample in operator.samples] == [True, False]
        assert [sample.goes_with("complex64") for sample in operator.samples] == [True, True]

    def test_a_use_restricts_all_samples_of_its_template(self, write: Write) -> None:
        write(
            """
            [template]
            about = "one sample for all dtypes, one for some"
            [[samples]]
            name = "all"
            [[samples]]
            name = "conj"
            dtypes = ["complex"]
            """,
            "specs/two.toml",
        )
        uses = ['{ use = "two", dtypes = ["float64", "complex64"] }', '{ use = "two", dtypes = ["floating"] }']
        write(f"{HEAD}samples = [{', '.join(uses)}]", "specs/a.toml")
        (operator,) = load(["specs"])
        # The last one would go with no dtype at all, and is left out.
        assert {sample.name: sample.dtypes for sample in operator.samples} == {
            "0.all": ("float64", "complex64"),
            "0.conj": ("complex64",),
            "1.all": ("float16", "bfloat16", "float32", "float64"),
        }


LARGE = ", or large = true in the sample, for up to 65536"
"""What the message adds for a size that a large sample may have."""


class TestBounds:
    def test_a_grid_of_a_million_samples_is_refused(self, mistakes: Mistakes) -> None:
        values = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
        grid = ", ".join(f"{key} = {values}" for key in "abcdef")
        assert mistakes(HEAD + f"samples = [{{ grid = {{ {grid} }}, skip = [{{ a = 77 }}] }}]") == [
            "spec.toml:3:21: too many samples: 1000000; expected at most 1000 (max_samples of [tool.opcheck])"
        ]

    def test_several_grids_count_together(self, mistakes: Mistakes) -> None:
        text = "samples = [{ grid = { a = [1, 2, 3] } }, { grid = { b = [1, 2] } }]"
        assert mistakes(HEAD + text, max_samples=4) == [
            "spec.toml:3:11: too many samples: more than 4; expected at most 4 (max_samples of [tool.opcheck])"
        ]

    @pytest.mark.parametrize(
        ("argument", "column", "elements"),
        [
            ("{ shape = [1000000, 1000000] }", 22, "1000000000000"),
            ("[1, { shape = [65, 64] }]", 26, "4160"),
            ("{ tuple = [{ shape = [65, 64] }] }", 33, "4160"),
            ("{ shape = [999999999999, 999999999999] }", 22, "more than 10^15"),
        ],
    )
    def test_a_tensor_over_the_bound_is_refused_before_it_is_made(
        self, mistakes: Mistakes, argument: str, column: int, elements: str
    ) -> None:
        assert mistakes(HEAD + f"samples = [{{ args = [{argument}] }}]") == [
            f"spec.toml:3:{column}: a tensor of {elements} elements is too large; "
            "expected at most 4096 (max_elements of [tool.opcheck])" + LARGE * (elements == "4160")
        ]

    @pytest.mark.parametrize("keys", ["args = [%s]", "kwargs = { x = %s }", "use = 'reduction', kwargs = { x = %s }"])
    @pytest.mark.parametrize("size", [4097, 65536])
    def test_a_sample_may_be_large(self, loaded: Load, keys: str, size: int) -> None:
        sample = keys % f"{{ shape = [{size}] }}"
        (operator,) = loaded(HEAD + f"samples = [{{ {sample}, large = true }}]")
        assert operator.samples[0].tensors[-1].numel == size

    def test_a_large_sample_is_bounded_too(self, mistakes: Mistakes) -> None:
        assert mistakes(HEAD + "samples = [{ args = [{ shape = [65537] }], large = true }]") == [
            "spec.toml:3:22: a tensor of 65537 elements is too large; "
            "expected at most 65536 (max_elements of [tool.opcheck])"
        ]

    def test_a_size_of_thousands_of_digits_is_refused_as_well(self, mistakes: Mistakes) -> None:
        lines = mistakes(HEAD + f"samples = [{{ args = [{{ shape = [{'9' * 4000}, {'9' * 4000}] }}] }}]")
        said = "an integer beyond 64 bits; expected -2^63 to 2^63 - 1"
        assert lines == [f"spec.toml:3:33: {said}", f"spec.toml:3:4035: {said}"]

    @pytest.mark.parametrize("where", ["kwargs = { x = %s }", "grid = { x = [%s] }", "grad_outputs = [%s]"])
    def test_tensors_are_bounded_wherever_they_stand(self, mistakes: Mistakes, where: str) -> None:
        sample = where % "{ shape = [3, 3] }"
        column = f"samples = [{{ {sample}".index("{ shape") + 1
        assert mistakes(HEAD + f"samples = [{{ {sample} }}]", max_elements=8) == [
            f"spec.toml:3:{column}: a tensor of 9 elements is too large; "
            "expected at most 8 (max_elements of [tool.opcheck])" + LARGE
        ]

    def test_tensors_of_error_claims_are_bounded_too(self, mistakes: Mistakes) -> None:
        text = 'samples = [{ args = [1] }]\nerrors = [{ args = [{ shape = [70, 70] }], match = "x" }]\n'
        assert mistakes(HEAD + text) == [
            "spec.toml:4:21: a tensor of 4900 elements is too large; "
            "expected at most 4096 (max_elements of [tool.opcheck])"
        ]

    @pytest.mark.parametrize(
        "sample",
        [
            "{{ name = 's{0}', grid = {{ a = {1}, b = {1}, c = {1} }} }}",
            "{{ name = 's{0}', use = 'unary', grid = {{ a = {1}, b = {1}, c = {1} }} }}",
            "{{ name = 's{0}', grid = {{ a = {1}, b = {1}, c = {1} }}, skip = [{{ a = 1 }}] }}",
        ],
    )
    def test_a_thousand_grids_of_a_thousand_samples_are_refused_soon(
        self, mistakes: Mistakes, steps: Callable[[Callable[[], object]], int], sample: str
    ) -> None:
        grids = ", ".join(sample.format(number, "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]") for number in range(1000))
        (line,) = mistakes(HEAD + f"samples = [{grids}]")
        assert steps(lambda: mistakes(HEAD + f"samples = [{grids}]")) < STEPS
        assert line == (
            "spec.toml:3:11: too many samples: more than 1000; expected at most 1000 (max_samples of [tool.opcheck])"
        )

    def test_grids_that_are_all_left_out_are_bounded_too(
        self, mistakes: Mistakes, steps: Callable[[Callable[[], object]], int]
    ) -> None:
        skips = ", ".join(f"{{ a = {number} }}" for number in range(1000))
        grids = ", ".join([f"{{ grid = {{ a = [{', '.join(map(str, range(1000)))}] }}, skip = [{skips}] }}"] * 10)
        lines = mistakes(HEAD + f"samples = [{grids}]")
        assert steps(lambda: mistakes(HEAD + f"samples = [{grids}]")) < STEPS
        assert len(lines) == 10
        assert all("skip is too long; expected at most 100 elements" in line for line in lines)

    def test_samples_in_further_layouts_count_as_well(self, mistakes: Mistakes) -> None:
        samples = ", ".join(["{ args = [{ shape = [2, 2] }] }"] * 3)
        text = HEAD + f'samples = [{samples}]\nlayouts = ["strided", "sparse_coo"]'
        assert mistakes(text, max_samples=5) == [
            "spec.toml:3:11: too many samples: more than 5; expected at most 5 (max_samples of [tool.opcheck])"
        ]

    def test_names_that_follow_from_long_values_are_refused(self, mistakes: Mistakes) -> None:
        text = f'samples = [{{ grid = {{ a = [1], b = [2, "{"x" * 300}"] }} }}]'
        assert mistakes(HEAD + text) == [
            "spec.toml:3:36: the values of this grid make sample names of up to 309 characters; "
            "expected at most 300; put longer values into separate samples"
        ]
