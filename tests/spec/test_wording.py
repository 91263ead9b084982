"""What is said about a key or a value that does not fit: the line and column, what was expected, the nearest name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Mistakes = Callable[..., list[str]]

HEAD = '[[operator]]\nname = "torch.sin"\n'
MARKS = "letters, digits and any of _ . + -, no leading _; not one of and, not, or"
ANOTHER = "expected another name"
SAMPLES = 'samples = [{ use = "unary" }]\n'
TENSOR_KEYS = (
    "one of shape, values, dtype, grad, low, high, mean, std, exclude, contains, structure, layout, nnz, blocksize, "
    "dense_dim, coalesced, memory, conj, neg, through"
)
SUPPORTS_KEYS = (
    "one of backward, forward_ad, batched_grad, batched_forward_grad, second_order, fwd_over_rev, rev_over_fwd, "
    "fwd_over_fwd, third_order, inplace_backward, undefined_grad, out, masked, vmap, outputs, purity, "
    "context, linearity, saved, aliasing, compile"
)


@pytest.fixture
def about(mistakes: Mistakes) -> Callable[[str], list[str]]:
    """Return what is said about keys of an operator with good samples: their first line is the third of the file."""

    def lines(text: str) -> list[str]:
        return [line.removeprefix("spec.toml:") for line in mistakes(HEAD + text + "\n" + SAMPLES)]

    return lines


@pytest.fixture
def about_argument(mistakes: Mistakes) -> Callable[[str], list[str]]:
    """Return what is said about one argument; `^` stands for the column at which it starts."""

    def lines(argument: str) -> list[str]:
        head = "samples = [{ args = ["
        found = mistakes(f"{HEAD}{head}{argument}] }}]\n")
        assert all(line.startswith("spec.toml:3:") for line in found)
        shown = []
        for line in found:
            column, _, words = line.removeprefix("spec.toml:3:").partition(": ")
            shown.append(f"{argument[int(column) - 1 - len(head) :]} -> {words}")
        return shown

    return lines


About = Callable[[str], list[str]]


class TestUnknownKeys:
    def test_of_an_operator(self, about: About) -> None:
        (line,) = about("  reseeds = true")
        assert line == (
            '3:3: unknown key "reseeds"; expected one of dtypes, supports, tolerance, imports, variants, devices, '
            "torch, per_device, per_torch, samples, outputs, gradcheck, reseed, jacobian, orders, inplace, "
            "registered, layouts, masked, check_sparse_nnz, vary, expect, tags, notes, name, target, variant, "
            "module, aliases, reference, "
            'surrogate, errors; did you mean "reseed"?'
        )

    def test_of_an_inline_table(self, about: About) -> None:
        assert about("supports = { backward = true, fowrard_ad = false }") == [
            f'3:31: unknown key "fowrard_ad"; expected {SUPPORTS_KEYS}; did you mean "forward_ad"?'
        ]

    def test_of_a_dotted_key(self, about: About) -> None:
        assert about("supports.fwd_over_rew = false") == [
            f'3:10: unknown key "fwd_over_rew"; expected {SUPPORTS_KEYS}; did you mean "fwd_over_rev"?'
        ]

    def test_of_a_quoted_key(self, about: About) -> None:
        assert about('supports."out " = false') == [
            f'3:10: unknown key "out "; expected {SUPPORTS_KEYS}; did you mean "out"?'
        ]

    def test_of_a_table_in_a_table(self, about: About) -> None:
        assert about("tolerance = { check = { backward = { atoll = 1 } } }") == [
            '3:38: unknown key "atoll"; expected one of atol, rtol, eps, nondeterminism; did you mean "atol"?'
        ]

    def test_of_a_sub_table_with_a_header_of_its_own(self, mistakes: Mistakes) -> None:
        assert mistakes(HEAD + SAMPLES + "[operator.outputs]\nselekt = [0]\n") == [
            'spec.toml:5:1: unknown key "selekt"; expected one of select, apply; did you mean "select"?'
        ]

    def test_of_an_entry_of_an_array_of_tables(self, mistakes: Mistakes) -> None:
        text = "[[operator.samples]]\n  args = [{ shape = [2] }]\n[[operator.samples]]\n  argss = []\n"
        assert mistakes(HEAD + text) == [
            'spec.toml:6:3: unknown key "argss"; expected one of name, kwargs, grid, skip, dtypes, vary, '
            "large, args, module, grad_outputs; "
            'did you mean "args"?'
        ]

    def test_of_a_table_among_comments_and_tabs(self, mistakes: Mistakes) -> None:
        assert mistakes(HEAD + "samples = [\n  # one\n  {} ,\t{ argz\t= [] }]\n") == [
            'spec.toml:5:10: unknown key "argz"; expected one of name, kwargs, grid, skip, dtypes, vary, '
            "large, args, module, grad_outputs; "
            'did you mean "args"?'
        ]

    def test_of_a_tensor(self, about_argument: About) -> None:
        assert about_argument("{ shape = [2], structur = 1 }") == [
            f'structur = 1 }} -> unknown key "structur"; expected {TENSOR_KEYS}; did you mean "structure"?'
        ]

    def test_of_a_tensor_in_a_tuple_in_an_array(self, about_argument: About) -> None:
        assert about_argument("[3, { tuple = [{ shap = [2] }] }]") == [
            f'shap = [2] }}] }}] -> unknown key "shap"; expected {TENSOR_KEYS}; did you mean "shape"?'
        ]

    def test_of_a_tensor_given_by_the_name_of_a_tensor_key(self, mistakes: Mistakes) -> None:
        assert mistakes(HEAD + "samples = [{ kwargs = { shape = { shap = [2] } } }]") == [
            f'spec.toml:3:35: unknown key "shap"; expected {TENSOR_KEYS}; did you mean "shape"?'
        ]

    def test_of_what_was_perhaps_no_tensor_at_all(self, about_argument: About) -> None:
        (line,) = about_argument("{ non = true }")
        assert line.endswith('; did you mean "none"?')

    def test_of_a_literal(self, about_argument: About) -> None:
        assert about_argument("{ none = true, nonne = 1 }") == [
            'nonne = 1 } -> unknown key "nonne"; expected none; did you mean "none"?'
        ]

    def test_a_misspelt_key_is_not_also_called_missing(self, about: About) -> None:
        assert about('reference = { targt = "numpy.sin" }') == [
            '3:15: unknown key "targt"; expected one of target, rename, kwargs, positional, '
            'differentiable, times; did you mean "target"?'
        ]

    @pytest.mark.parametrize(
        ("text", "column"),
        [
            ('"[key]" = 1', 1),
            ('supports = { "[key]" = true }', 14),
            ('samples = [{ "[key]" = 1 }]', 14),
            ('samples = [{ kwargs = { "[key]" = 1 } }]', 25),
            ('samples = [{ args = [{ shape = [1], "[key]" = 1 }] }]', 37),
            ('reference = { target = "numpy.sin", rename = { "[key]" = "x" } }', 48),
            ('[operator.per_device.cpu.supports]\n"[key]" = true', 1),
        ],
    )
    def test_a_key_that_is_a_word_of_pydantic_is_a_key_like_any_other(
        self, mistakes: Mistakes, text: str, column: int
    ) -> None:
        samples = "" if text.startswith("samples") else SAMPLES
        (line,) = mistakes(HEAD + samples + text)
        assert line.split(":")[2] == str(column)
        assert '"[key]"' in line

    @pytest.mark.parametrize(
        ("text", "place"),
        [
            ("forward_ad = false", "supports.forward_ad"),
            ("atol = 1", "tolerance.atol"),
            ("exact = true", "dtypes.exact"),
            ("select = [0]", "outputs.select"),
            ("args = [1]", "samples = [{ args = ... }]"),
        ],
    )
    def test_of_a_key_that_belongs_one_table_deeper(self, about: About, text: str, place: str) -> None:
        (line,) = about(text)
        assert line.endswith(f'; did you mean "{place}"?')

    def test_of_a_key_that_belongs_to_the_operator(self, about: About) -> None:
        (line,) = about("supports = { reseed = true }")
        assert line == f'3:14: unknown key "reseed"; expected {SUPPORTS_KEYS}; reseed is a key of the operator'

    def test_of_a_sample_may_be_a_keyword_argument(self, mistakes: Mistakes) -> None:
        assert mistakes(HEAD + "samples = [{ args = [{ shape = [2] }], w = 3 }]\n") == [
            'spec.toml:3:40: unknown key "w"; expected one of name, kwargs, grid, skip, dtypes, vary, '
            "large, args, module, grad_outputs; "
            "a keyword argument of the operator goes under kwargs = { w = ... }"
        ]

    def test_of_a_sample_may_be_one_of_a_tensor(self, mistakes: Mistakes) -> None:
        (line,) = mistakes(HEAD + "samples = [{ shape = [2] }]\n")
        assert line.endswith("grad_outputs; a tensor goes under args = [{ shape = ... }]")

    @pytest.mark.parametrize(("key", "near"), [("requires_grad", "grad"), ("min", "low"), ("size", "shape")])
    def test_of_a_tensor_may_have_a_name_of_torch(self, mistakes: Mistakes, key: str, near: str) -> None:
        (line,) = mistakes(HEAD + f"samples = [{{ args = [{{ shape = [2], {key} = 1 }}] }}]\n")
        assert line.endswith(f'; did you mean "{near}"?')

    def test_of_an_error_may_be_a_keyword_argument(self, about: About) -> None:
        (line,) = about('errors = [{ match = "x", w = 3 }]')
        assert line.endswith("; a keyword argument of the operator goes under kwargs = { w = ... }")

    def test_a_word_like_no_other_has_no_nearest_name(self, about: About) -> None:
        assert about("outputs = { zzz = 1 }") == ['3:13: unknown key "zzz"; expected one of select, apply']


class TestWrongTypes:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ('reseed = "yes"', '10: wrong type for reseed: a string ("yes"); expected true or false'),
            ("notes = 3", "9: wrong type for notes: an integer (3); expected a string"),
            ("tags = true", "8: wrong type for tags: a boolean (true); expected an array"),
            ("devices = 'cpu'", '11: wrong type for devices: a string ("cpu"); expected an array'),
            ("devices = ['cpu', 1.5]", "19: wrong type for an element of devices: a number (1.5); expected a string"),
            ("tolerance = []", "13: wrong type for tolerance: an array ([]); expected a table"),
            ("tolerance.atol = { }", "18: wrong type for atol: a table ({}); expected a number"),
            ("tolerance.atol = true", "18: wrong type for atol: a boolean (true); expected a number"),
            ("tolerance.atol = 2026-01-02", "18: wrong type for atol: a date (2026-01-02); expected a number"),
            ("outputs.select = [1.0]", "19: wrong type for an element of select: a number (1.0); expected an integer"),
            ("per_device.cpu = 1", "18: wrong type for cpu: an integer (1); expected a table"),
            ("reference = 3", "13: wrong type for reference: an integer (3); expected a string or a table"),
            (
                "supports.backward = 3.5",
                "21: wrong type for backward: a number (3.5); expected true or false or an array",
            ),
            (
                "supports.backward = ['x', 1.5]",
                "27: wrong type for an element of backward: a number (1.5); expected a string or an integer",
            ),
        ],
    )
    def test_are_named_in_the_words_of_toml(self, about: About, text: str, said: str) -> None:
        assert about(text) == [f"3:{said}"]

    def test_the_text_of_long_values_is_left_out(self, about: About) -> None:
        assert about(f'reseed = "{"x" * 50}"') == ["3:10: wrong type for reseed: a string; expected true or false"]

    @pytest.mark.parametrize(
        ("argument", "said"),
        [
            ("{ shape = 3 }", "3 } -> wrong type for shape: an integer (3); expected an array"),
            (
                '{ shape = [2, "x"] }',
                '"x"] } -> wrong type for an element of shape: a string ("x"); expected an integer',
            ),
            ("{ shape = [-1] }", "-1] } -> an element of shape is out of range: -1; expected a number of at least 0"),
            (
                "1979-05-27T07:32:00Z",
                "1979-05-27T07:32:00Z -> wrong type for an element of args: a date and time "
                "(1979-05-27T07:32:00+00:00); expected a number, string, boolean, array or table",
            ),
            (
                "07:32:00",
                "07:32:00 -> wrong type for an element of args: a time (07:32:00); "
                "expected a number, string, boolean, array or table",
            ),
            ("{ none = false }", "false } -> wrong value for none: a boolean (false); expected true"),
            ("{ tuple = 3 }", "3 } -> wrong type for tuple: an integer (3); expected an array"),
            (
                '{ slice = [1, "x"] }',
                '"x"] } -> wrong type for an element of slice: a string ("x"); expected an integer or a table',
            ),
            ("{ slice = [] }", "[] } -> slice is empty; expected at least one element"),
            ("{ slice = [1, 2, 3, 4] }", "[1, 2, 3, 4] } -> slice is too long; expected at most 3 elements"),
            ("{ complex = [1] }", "[1] } -> complex is too short; expected 2 elements"),
            ("{ complex = [1, 2, 3] }", "[1, 2, 3] } -> complex is too long; expected at most 2 elements"),
            (
                "{ shape = [2], exclude = ['x'] }",
                "'x'] } -> wrong type for an element of exclude: a string (\"x\"); expected a number",
            ),
        ],
    )
    def test_of_arguments(self, about_argument: About, argument: str, said: str) -> None:
        assert about_argument(argument) == [said]

    def test_an_array_of_wrong_elements_is_not_also_too_short(self, about_argument: About) -> None:
        assert about_argument('{ shape = [3], contains = ["x"] }') == [
            '"x"] } -> wrong type for an element of contains: a string ("x"); expected a number'
        ]

    @pytest.mark.parametrize("depth", [50, 380])
    def test_arrays_nested_beyond_reason_are_refused(self, about_argument: About, depth: int) -> None:
        (line,) = about_argument("[" * depth + "]" * depth)
        assert line.endswith("this is nested too deeply; expected at most 50 levels of tables and arrays")


class TestWrongNames:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (
                'variants = ["metod"]',
                '13: unknown variant "metod"; expected one of method, inplace or a table; did you mean "method"?',
            ),
            (
                'outputs.apply = "gauge"',
                '17: unknown apply "gauge"; expected one of abs, real, gauge_invariant, finite, to_dense, values',
            ),
            (
                'gradcheck.gen_non_contig_grad_outputs = "bot"',
                '41: unknown gen_non_contig_grad_outputs "bot"; expected both or true or false; did you mean "both"?',
            ),
            (
                'layouts = ["strided", "sparse_co"]',
                '23: unknown layout "sparse_co"; expected one of strided, sparse_coo, sparse_csr, sparse_csc, '
                'sparse_bsr, sparse_bsc, mkldnn, jagged; did you mean "sparse_coo"?',
            ),
            (
                'dtypes.forward = ["floating", "-hafl"]',
                '31: unknown dtype "-hafl"; expected a dtype or a group (all, floating, real, complex, half, single, '
                'double, integral, signed, bool), with a leading - to remove it; did you mean "-half"?',
            ),
            (
                'target = "torch"',
                '10: "torch" is not a dotted path; expected package.attribute or package.module:attribute',
            ),
            ('tags = ["a b"]', '9: "a b" cannot be part of a test id; expected letters, digits and any of _ . + = -'),
            ('tags = ["_slow"]', f'9: "_slow" cannot be a pytest marker; expected {MARKS}'),
            ('tags = ["a=b"]', f'9: "a=b" cannot be a pytest marker; expected {MARKS}'),
            ('tags = ["x", "not"]', f'14: "not" cannot be a pytest marker; expected {MARKS}'),
            *(
                (
                    f'tags = ["{name}"]',
                    f'9: "{name}" cannot be a marker: it has a meaning of its own in pytest; {ANOTHER}',
                )
                for name in ("skip", "xfail", "parametrize", "parameterize", "timeout", "flaky")
            ),
            (f'variant = "{"x" * 101}"', "11: a name of 101 characters is too long; expected at most 100"),
            (f'tags = ["{"x" * 101}"]', "9: a name of 101 characters is too long; expected at most 100"),
            (f'target = "a.{"x" * 200}"', "10: a path of 202 characters is too long; expected at most 200"),
            (
                'variant = "inplace"',
                '11: variant cannot be "inplace"; expected another name: ids of variants end in [method] and [inplace]',
            ),
        ],
    )
    def test_of_an_operator(self, about: About, text: str, said: str) -> None:
        assert about(text) == [f"3:{said}"]

    @pytest.mark.parametrize(
        ("key", "written", "meant"),
        [
            ("structure", "hermitan", "hermitian"),
            ("layout", "sparse_scr", "sparse_csr"),
            ("through", "symetrize", "symmetrize"),
            ("memory", "noncontigous", "noncontiguous"),
        ],
    )
    def test_of_a_tensor(self, about_argument: About, key: str, written: str, meant: str) -> None:
        (line,) = about_argument(f'{{ shape = [2, 2], {key} = "{written}" }}')
        assert line.startswith(f'"{written}" }} -> unknown {key} "{written}"; expected one of ')
        assert line.endswith(f'; did you mean "{meant}"?')

    def test_of_a_dtype(self, about_argument: About) -> None:
        said = 'unknown dtype "flot32"; expected a dtype, "real", "complex" or "integer"; did you mean "float32"?'
        assert about_argument('{ shape = [2], dtype = "flot32" }') == [f'"flot32" }} -> {said}']
        assert about_argument('{ dtype = "flot32" }') == [f'"flot32" }} -> {said}']


class TestNumbers:
    @pytest.mark.parametrize("number", ["nan", "-inf", "1e400"])
    @pytest.mark.parametrize("key", ["low", "high", "mean", "std", "exclude"])
    def test_are_finite_where_others_make_no_sense(self, about_argument: About, key: str, number: str) -> None:
        (line,) = about_argument(f"{{ shape = [2], {key} = {number} }}")
        shown = "inf" if number == "1e400" else number
        assert line == f"{number} }} -> {key} is out of range: {shown}; expected a finite number"

    @pytest.mark.parametrize("key", ["atol", "rtol", "eps", "nondeterminism"])
    def test_a_tolerance_is_finite(self, about: About, key: str) -> None:
        assert about(f"tolerance.{key} = inf") == [
            f"3:{len(key) + 14}: {key} is out of range: inf; expected a finite number"
        ]

    def test_a_block_has_elements(self, about_argument: About) -> None:
        assert about_argument('{ shape = [2, 2], layout = "sparse_bsr", blocksize = [0, 1] }') == [
            "0, 1] } -> an element of blocksize is out of range: 0; expected a number of at least 1"
        ]

    def test_bounds_are_told(self, about: About) -> None:
        assert about("tolerance = { atol = -1, eps = 0 }") == [
            "3:22: atol is out of range: -1; expected a number of at least 0",
            "3:32: eps is out of range: 0; expected a number above 0",
        ]


class TestExpect:
    def test_a_reason_is_needed(self, about: About) -> None:
        assert about('expect = [{ when = { check = "vmap" }, outcome = "fail" }]') == [
            '3:11: missing key "reason"; expected the reason, ideally a link'
        ]

    def test_an_empty_reason_is_none(self, about: About) -> None:
        assert about('expect = [{ when = { check = "vmap" }, outcome = "fail", reason = "" }]') == [
            "3:67: reason is empty; expected some text"
        ]

    def test_an_empty_when_would_hide_everything(self, about: About) -> None:
        assert about('expect = [{ when = {}, outcome = "fail", reason = "x" }]') == [
            "3:20: when is empty: it would hide every failure of the operator; expected at least one key"
        ]

    def test_outcomes_are_five(self, about: About) -> None:
        assert about('expect = [{ when = { check = "vmap" }, outcome = "fial", reason = "x" }]') == [
            '3:50: unknown outcome "fial"; expected one of fail, error, inconclusive, flaky, skip; did you mean "fail"?'
        ]

    def test_unknown_keys_of_when_have_the_nearest_name(self, about: About) -> None:
        assert about('expect = [{ when = { chek = "vmap" }, outcome = "fail", reason = "x" }]') == [
            '3:22: unknown key "chek"; expected one of check, variant, device, dtype, sample, engine, derive, torch; '
            'did you mean "check"?'
        ]

    def test_version_conditions_must_be_conditions(self, about: About) -> None:
        assert about('expect = [{ when = { torch = "2.x" }, outcome = "fail", reason = "x" }]') == [
            '3:30: "2.x" is not a version condition; expected a condition such as "<2.12" or ">=2.6,<3"'
        ]

    @pytest.mark.parametrize("condition", ["<2.x", "2", "<" + "9" * 5000, ">=2," * 500])
    def test_version_conditions_have_a_length(self, about: About, condition: str) -> None:
        (line,) = about(f'expect = [{{ when = {{ torch = "{condition}" }}, outcome = "fail", reason = "x" }}]')
        assert line.startswith("3:30: ")
        assert "version condition" in line

    @pytest.mark.parametrize(
        ("pattern", "said"),
        [
            ("(", "is not a regular expression: missing ), unterminated subpattern at position 0"),
            ("a{99999999999999999999}", "is not a regular expression: the repetition number is too large"),
            ("[[a]", "is not a regular expression: Possible nested set at position 1"),
        ],
    )
    def test_patterns_must_be_patterns(self, about: About, pattern: str, said: str) -> None:
        assert about(f"errors = [{{ match = '{pattern}' }}]") == [f'3:21: "{pattern}" {said}']

    def test_patterns_have_a_size(self, about: About) -> None:
        assert about(f"errors = [{{ match = '{'(' * 500}{')' * 500}' }}]") == [
            "3:21: a regular expression of 500 groups is too large; expected at most 100"
        ]
        assert about(f"errors = [{{ match = '{'x' * 1001}' }}]") == [
            "3:21: a regular expression of 1001 characters is too long; expected at most 1000"
        ]
        assert about('expect = [{ when = { check = "vmap" }, outcome = "fail", match = "(", reason = "x" }]') == [
            '3:66: "(" is not a regular expression: missing ), unterminated subpattern at position 0'
        ]

    def test_what_is_not_run_matches_nothing(self, about: About) -> None:
        assert about('expect = [{ when = { check = "vmap" }, outcome = "skip", match = "x", reason = "x" }]') == [
            '3:11: match has no effect with outcome = "skip": nothing is run; expected no match'
        ]


class TestKeywords:
    @pytest.mark.parametrize("name", ["a-b", "", "1", "a b", "x" * 101])
    def test_arguments_have_the_names_that_arguments_can_have(self, mistakes: Mistakes, name: str) -> None:
        for key, value in (("kwargs", "1"), ("grid", "[1]")):
            text = f'samples = [{{ {key} = {{ ok = {value}, "{name}" = {value} }} }}]'
            (line,) = mistakes(HEAD + text)
            assert line.startswith(f"spec.toml:3:{text.index(chr(34)) + 1}: ")
            assert "cannot be the name of an argument" in line or "too long" in line


class TestValues:
    def test_a_wrong_one_is_reported_where_it_stands(self, about_argument: About) -> None:
        assert about_argument('{ values = [[1, 2], [3, "x"]] }') == [
            '"x"]] } -> "x" is not a valid tensor value; '
            "expected numbers, booleans, { complex = [re, im] } or arrays of them"
        ]
        (line,) = about_argument('{ values = [1, { complex = [1, "x"] }] }')
        assert line.startswith('{ complex = [1, "x"] }] } -> a table is not a valid tensor value')
        (line,) = about_argument("{ values = [1, { complex = 3 }] }")
        assert line.startswith("{ complex = 3 }] } -> a table is not a valid tensor value")
        assert about_argument("{ values = [[[1], [2]], [[1], [2, 3]]] }") == [
            "[[1], [2, 3]]] } -> the rows of values differ in length; expected a rectangular array"
        ]

    def test_a_tensor_has_as_many_dimensions_as_torch_knows(self, about_argument: About) -> None:
        (line,) = about_argument(f"{{ shape = [{', '.join(['1'] * 65)}] }}")
        assert line.endswith("shape is too long; expected at most 64 elements")


class TestManyMistakes:
    """A thousand mistakes take ten times as long as a hundred."""

    @pytest.mark.parametrize(
        "text",
        [
            lambda count: f"{SAMPLES}tags = [{'1, ' * count}]",
            lambda count: f"samples = [{'3, ' * count}]",
            lambda count: f"samples = [{'{ args = [{ shpe = [2] }] }, ' * count}]",
        ],
        ids=["tags", "samples", "arguments"],
    )
    def test_are_reported_soon(
        self, mistakes: Mistakes, steps: Callable[[Callable[[], object]], int], text: Callable[[int], str]
    ) -> None:
        assert len(mistakes(HEAD + text(1000))) >= 1000
        few, many = (steps(lambda count=count: mistakes(HEAD + text(count))) for count in (100, 1000))
        assert many < 12 * few
