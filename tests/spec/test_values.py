"""What an argument can be, and how it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from opcheck.spec import Library
from opcheck.spec.recipe import Tensor
from opcheck.spec.values import (
    CallValue,
    ComplexValue,
    DtypeValue,
    EllipsisValue,
    MappingValue,
    NoneValue,
    ObjectValue,
    SliceValue,
    TupleValue,
    parts,
)

Load = Callable[..., Library]
Mistakes = Callable[..., list[str]]

HEAD = '[[operator]]\nname = "torch.sin"\n'


@pytest.fixture
def read(loaded: Load) -> Callable[[str], Any]:
    """Return the value that an argument is read as."""

    def argument(text: str) -> Any:
        (operator,) = loaded(f"{HEAD}samples = [{{ args = [{text}] }}]")
        return operator.samples[0].args[0]

    return argument


@pytest.fixture
def refused(mistakes: Mistakes) -> Callable[[str], str]:
    """Return what is said about an argument, without the place."""

    def argument(text: str) -> str:
        (line,) = mistakes(f"{HEAD}samples = [{{ args = [{text}] }}]")
        return line.partition(": ")[2]

    return argument


Read = Callable[[str], Any]


def tensors_in(value: Any) -> list[Tensor]:
    return [part for _, part in parts(value) if isinstance(part, Tensor)]


class TestLiterals:
    @pytest.mark.parametrize(("text", "value"), [("1", 1), ("1.5", 1.5), ("true", True), ("'x'", "x"), ("[1]", [1])])
    def test_plain_values_stand_for_themselves(self, read: Read, text: str, value: object) -> None:
        found = read(text)
        assert found == value
        assert type(found) is type(value)

    @pytest.mark.parametrize(
        ("text", "model"),
        [
            ("{ none = true }", NoneValue),
            ("{ complex = [1, 2.5] }", ComplexValue),
            ("{ dtype = 'int64' }", DtypeValue),
            ("{ slice = [{ none = true }, 3] }", SliceValue),
            ("{ ellipsis = true }", EllipsisValue),
            ("{ tuple = [1, { shape = [2] }] }", TupleValue),
            ("{ object = 'torch.strided' }", ObjectValue),
            ("{ mapping = { q = { shape = [2] }, heads = 2 } }", MappingValue),
            ("{ mapping = {} }", MappingValue),
            ("{ call = 'torch.nn.Linear', args = [3, 2], kwargs = { bias = false } }", CallValue),
            ("{ shape = [2] }, { same = 0 }", Tensor),
            ("{ shape = [] }", Tensor),
            ("{ values = 3 }", Tensor),
            ("{ shape = [2], dtype = 'int64' }", Tensor),
        ],
    )
    def test_tables_are_told_apart_by_their_keys(self, read: Read, text: str, model: type) -> None:
        assert type(read(text)) is model

    def test_arrays_of_tensor_tables_are_tensor_lists(self, read: Read) -> None:
        assert [tensor.sizes for tensor in tensors_in(read("[{ shape = [2] }, { shape = [3, 1] }]"))] == [(2,), (3, 1)]

    def test_tensors_are_found_within_tuples_and_tables(self, read: Read) -> None:
        inner = read("{ tuple = [1, { tuple = [{ shape = [4] }] }] }")
        assert [tensor.sizes for tensor in tensors_in({"a": inner})] == [(4,)]

    def test_tensors_are_found_in_what_objects_are_made_of(self, read: Read) -> None:
        value = read(
            "{ mapping = { a = [{ shape = [1] }], b = "
            "{ call = 'torch.stack', args = [[{ shape = [2] }]], kwargs = { out = { shape = [3] } } } } }"
        )
        assert [tensor.sizes for tensor in tensors_in(value)] == [(1,), (2,), (3,)]


class TestObjects:
    @pytest.mark.parametrize(
        ("text", "place", "what"),
        [
            ("{ mapping = { a = { shape = [5000] } } }", 40, "a tensor of 5000 elements is too large"),
            ("[{ call = 'os.system', args = ['ls'] }]", 32, '"os.system" is outside the allowed modules'),
            ("{ call = 'torch.nn.Linear', args = [{ object = 'sys.path' }] }", 69, '"sys.path" is outside'),
            ("{ call = 'linear' }", 31, '"linear" is not a dotted path'),
            ("{ call = 'torch.sin', keywords = {} }", 44, 'unknown key "keywords"; expected one of call, args, kwargs'),
        ],
    )
    def test_mistakes_have_places(self, mistakes: Mistakes, text: str, place: int, what: str) -> None:
        (line,) = mistakes(f"{HEAD}samples = [{{ args = [{text}] }}]")
        assert line.startswith(f"spec.toml:3:{place}: {what}")


class TestSame:
    def test_it_names_a_position_or_a_keyword(self, loaded: Load) -> None:
        text = "args = [{ shape = [2] }, { same = 'w' }, [{ same = 0 }]], "
        text += "kwargs = { w = { shape = [2] }, v = { same = 0 } }"
        (sample,) = loaded(f"{HEAD}samples = [{{ {text} }}]").operators[0].samples
        assert [sample.args[1].same, sample.args[2][0].same, sample.kwargs["v"].same] == ["w", 0, 0]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("args = [{ same = 0 }]", "there is no tensor at position 0; expected another argument that is a tensor"),
            ("args = [{ shape = [2] }, { same = 2 }]", "there is no tensor at position 2; expected 0"),
            ("args = [{ shape = [2] }, 3, { same = 1 }]", "there is no tensor at position 1; expected 0"),
            ("args = [[{ shape = [2] }], { same = 0 }]", "there is no tensor at position 0; expected another"),
            (
                "args = [{ same = 'wieght' }], kwargs = { weight = { shape = [2] } }",
                'no argument called "wieght" is a tensor; expected "weight"; did you mean "weight"?',
            ),
            (
                "args = [{ same = 'w' }], grid = { w = [{ shape = [2] }, 3] }",
                'no argument called "w" is a tensor; expected another argument that is a tensor',
            ),
        ],
    )
    def test_it_has_to_be_a_tensor(self, mistakes: Mistakes, text: str, expected: str) -> None:
        (line,) = mistakes(f"{HEAD}samples = [{{ {text} }}]")
        assert line.partition(": ")[2].startswith(expected)

    def test_in_what_the_operator_must_refuse_it_has_to_be_a_tensor_too(self, mistakes: Mistakes) -> None:
        text = (
            f"{HEAD}samples = [{{ args = [{{ shape = [2] }}] }}]\nerrors = [{{ args = [{{ same = 0 }}], match = 'x' }}]"
        )
        (line,) = mistakes(text)
        assert line.partition(": ")[2].startswith("there is no tensor at position 0")

    def test_it_may_be_a_keyword_of_a_grid(self, loaded: Load) -> None:
        (operator,) = loaded(f"{HEAD}samples = [{{ args = [{{ same = 'w' }}], grid = {{ w = [{{ shape = [2] }}] }} }}]")
        assert operator.samples[0].args[0].same == "w"


class TestTensors:
    def test_sizes_follow_from_values(self, read: Read) -> None:
        tensor = read("{ values = [[1, 2, 3], [4, 5, 6]] }")
        assert tensor.sizes == (2, 3)
        assert tensor.numel == 6
        assert read("{ values = [] }").sizes == (0,)
        assert read("{ values = 3.0 }").sizes == ()

    def test_values_can_be_complex(self, read: Read) -> None:
        assert read("{ values = [1, { complex = [1, -2] }] }").values == (1, 1 - 2j)

    def test_an_array_of_two_numbers_is_no_complex_number(self, read: Read) -> None:
        assert read("{ values = [[1, 2]] }").values == ((1, 2),)

    def test_ragged_values_are_refused(self, mistakes: Mistakes) -> None:
        assert mistakes(HEAD + "samples = [{ args = [{ values = [[1], [1, 2]] }] }]") == [
            "spec.toml:3:33: the rows of values differ in length; expected a rectangular array"
        ]

    def test_rows_and_numbers_do_not_mix(self, refused: Read) -> None:
        assert refused("{ values = [1, [2]] }").startswith("the rows of values differ in length")

    @pytest.mark.parametrize(
        ("text", "shown"), [("'x'", '"x"'), ("[{ complex = [1] }]", "a table"), ("{ complex = [true, 1] }", "a table")]
    )
    def test_other_values_are_refused(self, refused: Read, text: str, shown: str) -> None:
        assert refused(f"{{ values = {text} }}") == (
            f"{shown} is not a valid tensor value; "
            "expected numbers, booleans, { complex = [re, im] } or arrays of them"
        )

    @pytest.mark.parametrize("text", ["{}", "{ low = 1 }", "{ shape = [1], values = [1] }"])
    def test_shape_and_values_exclude_each_other(self, refused: Read, text: str) -> None:
        assert refused(text) == "a tensor needs either shape or values; expected exactly one of the two"

    @pytest.mark.parametrize(("low", "high"), [("3", "2"), ("2", "2"), ("0.5", "-0.5")])
    def test_low_must_be_below_high(self, mistakes: Mistakes, low: str, high: str) -> None:
        assert mistakes(f"{HEAD}samples = [{{ args = [1, {{ shape = [2], low = {low}, high = {high} }}] }}]") == [
            f"spec.toml:3:25: low = {low} is not below high = {high}"
        ]

    @pytest.mark.parametrize(
        ("low", "high", "exclude"),
        [("0", "0.1", "0"), ("0", "0.3", "[0.2, 0.1]"), ("-0.1", "1", "[0, 0.15, 0.3, 0.9, 0.45, 0.6, 0.75]")],
    )
    def test_points_to_exclude_must_leave_a_number(self, refused: Read, low: str, high: str, exclude: str) -> None:
        assert refused(f"{{ shape = [2], low = {low}, high = {high}, exclude = {exclude} }}") == (
            f"no number between low = {low} and high = {high} has a distance of 0.1 from what exclude lists; "
            "expected wider bounds, or fewer points"
        )

    @pytest.mark.parametrize("keys", ["low = 0, high = 0.2, exclude = 0", "low = -1, high = 1, exclude = [0, 1]"])
    def test_points_that_leave_a_number_may_be_excluded(self, read: Read, keys: str) -> None:
        assert read(f"{{ shape = [2], {keys} }}").exclude is not None

    def test_settings_of_sparse_layouts_need_a_sparse_layout(self, refused: Read) -> None:
        assert refused("{ shape = [2, 2], nnz = 1 }") == (
            "nnz does not apply to the layout strided; expected a sparse layout"
        )
        assert refused("{ shape = [2, 2], layout = 'sparse_csr', blocksize = [1, 1] }") == (
            "blocksize does not apply to the layout sparse_csr; expected the layout sparse_bsr or sparse_bsc"
        )

    @pytest.mark.parametrize("dtype", ["float16", "int8", "complex32", "float8_e5m2", "real", "complex"])
    def test_dtypes_are_names_or_follow_the_case(self, read: Read, dtype: str) -> None:
        assert read(f"{{ shape = [2], dtype = '{dtype}' }}").dtype == dtype

    @pytest.mark.parametrize(
        ("text", "what"),
        [
            ("{ shape = [2, 2], dense_dim = 1 }", "dense_dim does not apply to the layout strided"),
            (
                "{ shape = [2, 2], layout = 'sparse_csr', coalesced = false }",
                "coalesced does not apply to the layout sparse_csr",
            ),
            ("{ shape = [2, 2], layout = 'sparse_coo', conj = true }", "conj does not apply to the layout sparse_coo"),
            ("{ shape = [2], layout = 'sparse_csr' }", "the layout sparse_csr needs at least 2 dimensions, not 1"),
            (
                "{ shape = [3, 2], layout = 'sparse_csr', dense_dim = 1 }",
                "the layout sparse_csr needs at least 2 sparse dimensions, not 1",
            ),
            (
                "{ shape = [3, 2], layout = 'sparse_coo', dense_dim = 3 }",
                "the layout sparse_coo needs at least 1 sparse dimension, not 0",
            ),
            (
                "{ shape = [3, 2], layout = 'sparse_bsr', blocksize = [2, 1] }",
                "blocks of [2, 1] do not tile a matrix of shape [3, 2]; expected sizes that they divide",
            ),
            ("{ shape = [3], layout = 'sparse_coo', nnz = 4 }", "nnz = 4 is too many: there are 3 places"),
            (
                "{ shape = [3, 2], layout = 'sparse_coo', nnz = 4, dense_dim = 1 }",
                "nnz = 4 is too many: there are 3 places",
            ),
            (
                "{ shape = [5, 4, 2], layout = 'sparse_bsc', nnz = 3, blocksize = [2, 2] }",
                "nnz = 3 is too many: there are 2 places; expected at most 2",
            ),
            ("{ shape = [2, 3, 4], memory = 'channels_last' }", "channels_last needs 4 or 5 dimensions, not 3"),
            ("{ shape = [2], dtype = 'int64', grad = true }", "a tensor of int64 has no derivative"),
            ("{ shape = [2], dtype = 'integer', grad = true }", "a tensor of integer has no derivative"),
            ("{ shape = [2, 3], structure = 'hermitian' }", "hermitian needs square matrices, not the shape [2, 3]"),
            ("{ shape = [2], through = 'symmetrize' }", "symmetrize needs square matrices, not the shape [2]"),
            ("{ shape = [2], through = 'tril' }", "tril needs at least 2 dimensions, not 1"),
            ("{ shape = [], structure = 'well_conditioned' }", "well_conditioned needs at least 2 dimensions, not 0"),
            ("{ shape = [], structure = 'one_hot' }", "one_hot needs at least 1 dimension, not 0"),
            ("{ values = [{ complex = [1, 2] }], dtype = 'float64' }", "complex numbers do not fit the dtype float64"),
            (
                "{ values = [[0], [1.5]], dtype = 'int64' }",
                "1.5 is no number of int64; expected whole numbers from -9223372036854775808 to 9223372036854775807",
            ),
            ("{ values = [256], dtype = 'uint8' }", "256 is no number of uint8; expected whole numbers from 0 to 255"),
            ("{ values = [2, 0], dtype = 'bool' }", "2 is no number of bool; expected whole numbers from 0 to 1"),
            ("{ values = [inf], dtype = 'int8' }", "inf is no number of int8"),
            ("{ values = [nan], dtype = 'int8' }", "nan is no number of int8"),
            ("{ shape = [4], dtype = 'int8', contains = [-129] }", "-129 is no number of int8"),
            ("{ shape = [4], dtype = 'int8', low = 128 }", "there are 0 numbers of int8 between the bounds"),
            ("{ shape = [4], dtype = 'uint8', high = 0 }", "there are 0 numbers of uint8 between the bounds"),
            (
                "{ shape = [4], dtype = 'int64', low = 0.2, high = 0.8 }",
                "there are 0 numbers of int64 between the bounds",
            ),
            ("{ shape = [4], dtype = 'int32', low = 0, high = 2, exclude = [0, 1] }", "there are 0 numbers of int32"),
            (
                "{ shape = [4], dtype = 'int64', low = 0, high = 3, structure = 'distinct' }",
                "there are 3 numbers of int64 between the bounds, without those that exclude lists; "
                "expected room for at least 4",
            ),
            ("{ shape = [4], low = 5, structure = 'permutation' }", "low does not apply to the structure permutation"),
            ("{ shape = [2, 2], dtype = 'int64', structure = 'orthogonal' }", "the structure orthogonal does not fit"),
            ("{ shape = [2], dtype = 'bool', low = 1 }", "low does not apply to masks"),
            (
                "{ shape = [2], dtype = 'double' }",
                'unknown dtype "double"; expected a dtype, "real", "complex" or "integer"',
            ),
            ("{ values = [[true], [false]] }", "booleans do not fit the dtype of the case"),
            ("{ values = true, dtype = 'real' }", "booleans do not fit the dtype of the case"),
            ("{ values = [1.0], low = 0.5 }", "low does not apply to explicit values"),
            ("{ values = [1], structure = 'one_hot' }", "the structure one_hot would replace the explicit values"),
        ],
    )
    def test_keys_that_contradict_each_other_are_refused(self, refused: Read, text: str, what: str) -> None:
        assert refused(text).startswith(what)

    @pytest.mark.parametrize(
        "text",
        [
            "{ shape = [], layout = 'sparse_coo' }",
            "{ shape = [3, 2], layout = 'sparse_coo', nnz = 3, dense_dim = 1 }",
            "{ shape = [5, 4, 2], layout = 'sparse_bsc', nnz = 2, blocksize = [2, 2] }",
            "{ shape = [2, 3, 4, 5, 6], memory = 'channels_last' }",
            "{ shape = [2], dtype = 'real', grad = true }",
            "{ shape = [3, 2], through = 'tril' }",
            "{ values = [[0, 255]], dtype = 'uint8' }",
            "{ values = [true, 0], dtype = 'bool' }",
            "{ shape = [0], dtype = 'int64', low = 3, high = 3.5 }",
            "{ shape = [4], dtype = 'int64', high = 4, low = 0, structure = 'distinct' }",
            "{ shape = [4], dtype = 'integer', low = 300 }",
            "{ shape = [2], dtype = 'complex', contains = [0.5] }",
            "{ shape = [3], dtype = 'int64', low = 0, high = 3, exclude = 1 }",
        ],
    )
    def test_keys_that_agree_are_not(self, read: Read, text: str) -> None:
        assert isinstance(read(text), Tensor)
