"""Samples of a spec as tensors: every key of a recipe, every literal, and the seed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, get_args

import pytest
import torch

from opcheck.samples.inputs import Inputs
from opcheck.samples.realize import realize
from opcheck.samples.resolve import Unresolved
from opcheck.spec.library import Sample
from opcheck.spec.recipe import SPARSE_LAYOUTS, Memory, Structure, Through

Made = Callable[..., Inputs]

FOLLOWING = ["float64", "float32", "float16", "bfloat16", "complex128", "complex64"]
WHOLE = ["int64", "uint8", "bool"]

pytestmark = pytest.mark.filterwarnings("ignore:Sparse.*beta:UserWarning")


def only(inputs: Inputs) -> torch.Tensor:
    """What the operator gets for a single argument."""
    ((value,), kwargs) = inputs.fill()
    assert not kwargs
    assert isinstance(value, torch.Tensor)
    return value


class TestDtypes:
    @pytest.mark.parametrize("dtype", [*FOLLOWING, *WHOLE])
    def test_tensors_follow_the_dtype_of_the_case(self, dtype: str, made: Made) -> None:
        assert only(made("{ shape = [2, 3] }", dtype=dtype)).dtype is getattr(torch, dtype)

    @pytest.mark.parametrize(
        ("dtype", "real", "complex_"),
        [
            ("float64", "float64", "complex128"),
            ("complex128", "float64", "complex128"),
            ("float32", "float32", "complex64"),
            ("complex64", "float32", "complex64"),
            ("bfloat16", "bfloat16", "bfloat16"),
            ("int64", "int64", "int64"),
        ],
    )
    def test_real_and_complex_follow_the_precision_of_the_case(
        self, dtype: str, real: str, complex_: str, made: Made
    ) -> None:
        inputs = made('{ shape = [2], dtype = "real" }', '{ shape = [2], dtype = "complex" }', dtype=dtype)
        assert [x.dtype for x in inputs.fill()[0]] == [getattr(torch, real), getattr(torch, complex_)]

    @pytest.mark.parametrize(("dtype", "integer"), [("int8", "int8"), ("float32", "int64"), ("complex64", "int64")])
    def test_integers_are_those_of_the_case_or_int64(self, dtype: str, integer: str, made: Made) -> None:
        inputs = made('{ shape = [2], dtype = "integer" }', dtype=dtype)
        assert only(inputs).dtype is getattr(torch, integer)
        assert not inputs.leaves

    @pytest.mark.parametrize(
        ("dtype", "finer"),
        [
            ("float16", "float64"),
            ("float32", "float64"),
            ("complex64", "complex128"),
            ("uint8", "int64"),
            ("bool", "int64"),
        ],
    )
    def test_the_numbers_of_a_case_can_be_had_in_a_finer_dtype(self, dtype: str, finer: str, made: Made) -> None:
        args = (
            '{ shape = [2, 3], memory = "transposed" }',
            '{ shape = [3, 3], structure = "triangular", conj = true }',
            '{ shape = [4], dtype = "real" }',
            '{ shape = [4], dtype = "int64", high = 3 }',
            '{ shape = [2, 2], dtype = "float32" }',
            '{ shape = [3, 3], layout = "sparse_coo" }',
        )
        coarse, fine = (made(*args, dtype=dtype, **keys).detached().fill()[0] for keys in ({}, {"finer": finer}))
        assert [x.dtype for x in coarse[3:5]] == [x.dtype for x in fine[3:5]] == [torch.int64, torch.float32]
        assert fine[0].dtype is fine[1].dtype is fine[5].dtype is getattr(torch, finer)
        for one, other in zip(coarse, fine, strict=True):
            assert one.stride() == other.stride() if one.layout is torch.strided else one.layout is other.layout
            assert torch.equal(one.to_dense().to(other.dtype), other.to_dense())

    def test_a_dtype_that_is_named_is_that_dtype(self, made: Made) -> None:
        for name in ("int64", "bool", "uint8", "float16", "complex128"):
            assert only(made(f'{{ shape = [2], dtype = "{name}" }}')).dtype is getattr(torch, name)

    @pytest.mark.parametrize("shape", [[], [0], [2, 0], [3, 4]])
    @pytest.mark.parametrize("dtype", ["float64", "complex128", "int64", "bool"])
    def test_the_shape_is_as_written(self, shape: list[int], dtype: str, made: Made) -> None:
        assert list(only(made(f"{{ shape = {shape} }}", dtype=dtype)).shape) == shape


class TestLeaves:
    @pytest.mark.parametrize("dtype", ["float64", "complex128", "bfloat16"])
    @pytest.mark.parametrize("memory", get_args(Memory))
    @pytest.mark.parametrize("views", ["", ", conj = true, neg = true", ', through = "unit_norm"'])
    def test_leaves_are_leaves_that_require_grad_and_do_not_overlap(
        self, dtype: str, memory: str, views: str, made: Made
    ) -> None:
        shapes: list[list[int]] = [[], [0, 2], [2, 3], [2, 3, 1, 2]]
        shapes = shapes[-1:] if memory == "channels_last" else shapes
        inputs = made(*(f'{{ shape = {shape}, memory = "{memory}"{views} }}' for shape in shapes), dtype=dtype)
        assert [list(x.shape) for x in inputs.fill()[0]] == shapes
        for leaf in inputs.leaves:
            self.is_proper(leaf)

    @staticmethod
    def is_proper(leaf: torch.Tensor) -> None:
        assert leaf.is_leaf
        assert leaf.requires_grad
        assert not leaf.is_neg()
        assert 0 not in [stride for stride, size in zip(leaf.stride(), leaf.shape, strict=True) if size > 1]

    @pytest.mark.parametrize("layout", SPARSE_LAYOUTS)
    @pytest.mark.parametrize("dtype", FOLLOWING)
    def test_sparse_leaves_require_grad(self, layout: str, dtype: str, made: Made) -> None:
        (leaf,) = made(f'{{ shape = [2, 3], layout = "{layout}" }}', dtype=dtype).leaves
        assert leaf.is_leaf
        assert leaf.requires_grad
        assert leaf.layout is getattr(torch, layout)

    def test_a_jagged_tensor_has_its_rows_as_leaf(self, made: Made) -> None:
        inputs = made('{ shape = [2, 3, 2], layout = "jagged" }')
        assert inputs.leaves[0].layout is torch.strided
        assert torch.equal(only(inputs).values(), inputs.leaves[0])

    @pytest.mark.parametrize(
        ("dtype", "keys", "leaf"),
        [
            ("float64", "", True),
            ("complex128", "", True),
            ("int64", "", False),
            ("bool", "", False),
            ("float64", ", grad = false", False),
            ("float64", ', dtype = "real"', True),
            ("complex128", ', dtype = "real"', True),
            ("float64", ', dtype = "complex"', True),
            ("int64", ', dtype = "real"', False),
            ("float64", ', dtype = "int64"', False),
            ("float64", ', dtype = "float32"', False),
            ("float64", ', dtype = "float32", grad = true', True),
            ("float64", ', dtype = "complex", grad = false', False),
            ("int64", ', dtype = "float32", grad = true', True),
            ("int64", ", grad = true", False),
        ],
    )
    def test_what_follows_the_case_is_differentiated_unless_the_recipe_says_otherwise(
        self, dtype: str, keys: str, leaf: bool, made: Made
    ) -> None:
        inputs = made(f"{{ shape = [2]{keys} }}", dtype=dtype)
        assert len(inputs.leaves) == leaf
        assert only(inputs).requires_grad == leaf

    def test_places_can_be_chosen_from_outside(self, made: Made) -> None:
        inputs = made("{ shape = [2] }", "[{ shape = [3] }, { shape = [4] }]", wrt=lambda path: path == ("args", 1, 0))
        assert [leaf.numel() for leaf in inputs.leaves] == [3]
        assert [slot.path for slot in inputs.slots] == [("args", 1, 0)]

    def test_the_choice_does_not_change_the_numbers(self, made: Made) -> None:
        recipes = ('{ shape = [2], memory = "noncontiguous", neg = true }', "{ shape = [3] }")
        every, none = made(*recipes).fill()[0], made(*recipes, wrt=lambda path: False).fill()[0]
        assert [x.tolist() for x in every] == [x.tolist() for x in none]
        assert not any(x.requires_grad for x in none)
        assert none[0].is_neg()


class TestPlaces:
    def test_leaves_stand_in_lists_tuples_and_keywords(self, sample: Callable[..., Sample]) -> None:
        text = """
            args = [[{ shape = [1] }, { shape = [2] }], { tuple = [{ shape = [3] }, 7] }, 2.5, { shape = [4] }]
            kwargs = { weight = { shape = [5] }, many = [[{ shape = [6] }]], mode = "mean" }
        """
        inputs = realize(sample(text), "float64", "cpu", "seed")
        assert [leaf.numel() for leaf in inputs.leaves] == [1, 2, 3, 4, 5, 6]
        assert [slot.path for slot in inputs.slots] == [
            ("args", 0, 0),
            ("args", 0, 1),
            ("args", 1, 0),
            ("args", 3),
            ("kwargs", "weight"),
            ("kwargs", "many", 0, 0),
        ]
        assert [slot.index for slot in inputs.slots] == list(range(6))
        args, kwargs = inputs.fill()
        assert [type(arg) for arg in args] == [list, tuple, float, torch.Tensor]
        assert args[1][1] == 7
        assert kwargs["many"][0][0] is inputs.leaves[5]
        assert kwargs["mode"] == "mean"

    def test_a_sample_may_have_no_arguments(self, sample: Callable[..., Sample]) -> None:
        assert realize(sample("args = []"), "float64", "cpu", "seed").fill() == ((), {})


class TestLiterals:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("3", 3),
            ("-0.5", -0.5),
            ("true", True),
            ('"same"', "same"),
            ("[1, 2]", [1, 2]),
            ("[]", []),
            ("{ none = true }", None),
            ("{ complex = [1, -2.5] }", 1 - 2.5j),
            ('{ dtype = "int64" }', torch.int64),
            ("{ slice = [1, 5, 2] }", slice(1, 5, 2)),
            ("{ slice = [4] }", slice(4)),
            ("{ slice = [{ none = true }, -1] }", slice(None, -1)),
            ("{ ellipsis = true }", ...),
            ("{ tuple = [1, { none = true }, { tuple = [] }] }", (1, None, ())),
            ("[{ ellipsis = true }, { slice = [1, 2] }]", [..., slice(1, 2)]),
            ('{ object = "torch.strided" }', torch.strided),
            ('{ object = "torch.nn.functional.relu" }', torch.nn.functional.relu),
        ],
    )
    def test_each_is_the_python_object_that_it_stands_for(self, text: str, expected: Any, made: Made) -> None:
        ((value,), _) = made(text).fill()
        assert value == expected
        assert type(value) is type(expected)

    @pytest.mark.parametrize(
        ("dtype", "name", "expected"),
        [
            ("complex64", "real", torch.float32),
            ("float64", "complex", torch.complex128),
            ("float16", "real", torch.float16),
        ],
    )
    def test_a_dtype_follows_the_precision_of_the_case(
        self, dtype: str, name: str, expected: torch.dtype, made: Made
    ) -> None:
        assert made(f'{{ dtype = "{name}" }}', dtype=dtype).fill()[0] == (expected,)

    def test_objects_come_from_allowed_modules_only(self, sample: Callable[..., Sample]) -> None:
        written = sample('args = [{ object = "math.pi" }]', modules=("torch", "math"))
        with pytest.raises(Unresolved, match="outside the allowed modules"):
            realize(written, "float64", "cpu", "seed")
        assert realize(written, "float64", "cpu", "seed", modules=("torch", "math")).fill()[0] == (torch.pi,)


class TestKeys:
    def test_explicit_values_are_handed_over(self, made: Made) -> None:
        assert only(made("{ values = [[1, 2], [3, 4.5]] }")).tolist() == [[1, 2], [3, 4.5]]
        assert only(made("{ values = [{ complex = [0, 1] }] }", dtype="complex128")).tolist() == [1j]
        assert only(made('{ values = [2, 0], dtype = "int64" }')).tolist() == [2, 0]

    def test_bounds_and_points_hold_for_what_is_handed_over(self, made: Made) -> None:
        x = only(made('{ shape = [50], low = 0, high = 1, exclude = 0.5, memory = "noncontiguous" }')).detach()
        assert x.min() >= 0
        assert x.max() < 1
        assert (x - 0.5).abs().min() >= 0.1

    @pytest.mark.parametrize("dtype", [*FOLLOWING, *WHOLE])
    def test_every_structure_and_map_goes_with_every_dtype(self, dtype: str, made: Made) -> None:
        keys = [f'structure = "{name}"' for name in get_args(Structure)]
        keys += [f'through = "{name}"' for name in get_args(Through)]
        for x in made(*(f"{{ shape = [2, 3, 3], {key} }}" for key in keys), dtype=dtype).fill()[0]:
            assert (list(x.shape), x.dtype) == ([2, 3, 3], getattr(torch, dtype))

    def test_maps_are_applied_to_what_is_drawn(self, made: Made) -> None:
        inputs = made('{ shape = [3, 3], through = "symmetrize" }', dtype="complex128")
        x, leaf = only(inputs), inputs.leaves[0]
        assert torch.equal(x, x.mH)
        assert not torch.equal(leaf, leaf.mH)

    def test_maps_of_sparse_leaves_are_applied_too(self, made: Made) -> None:
        x = only(made('{ shape = [3, 3], layout = "sparse_coo", through = "symmetrize" }')).detach().to_dense()
        assert torch.equal(x, x.mT)


class TestViews:
    STRIDES: ClassVar = {
        "contiguous": (12, 4, 2, 1),
        "noncontiguous": (24, 8, 4, 2),
        "transposed": (1, 4, 2, 12),
        "channels_last": (12, 1, 6, 3),
        "expanded": (0, 4, 2, 1),
        "offset": (12, 4, 2, 1),
    }
    SHAPE = "[2, 3, 2, 2]"

    @pytest.mark.parametrize("through", ["", ', through = "unit_norm"'])
    @pytest.mark.parametrize(("conj", "neg"), [(False, False), (True, False), (False, True), (True, True)])
    @pytest.mark.parametrize("memory", get_args(Memory))
    def test_memory_conjugation_negation_and_maps_go_together(
        self, memory: str, conj: bool, neg: bool, through: str, made: Made
    ) -> None:
        text = f'memory = "{memory}", conj = {str(conj).lower()}, neg = {str(neg).lower()}{through}'
        x = only(made(f"{{ shape = {self.SHAPE}, {text} }}", dtype="complex128"))
        assert (x.is_conj(), x.is_neg()) == (conj, neg)
        assert x.stride() == self.STRIDES[memory]
        assert not through or torch.allclose(x.abs().square().sum(-1), torch.ones(2, 3, 2, dtype=torch.float64))

    @pytest.mark.parametrize("dtype", ["float64", "complex128", "float16", "int64", "uint8", "bool"])
    @pytest.mark.parametrize("keys", ["conj = true", "neg = true", "conj = true, neg = true"])
    @pytest.mark.parametrize("shape", [[], [0], [2, 3]])
    def test_lazy_views_have_the_same_values_as_plain_tensors(
        self, dtype: str, keys: str, shape: list[int], made: Made
    ) -> None:
        plain, view = (
            only(made(f"{{ shape = {shape} }}", dtype=dtype)),
            only(made(f"{{ shape = {shape}, {keys} }}", dtype=dtype)),
        )
        assert torch.equal(plain, view)
        assert view.is_conj() == ("conj" in keys and plain.is_complex())
        assert view.is_neg() == ("neg" in keys and dtype != "bool")

    def test_rows_of_an_expanded_tensor_are_equal(self, made: Made) -> None:
        inputs = made('{ shape = [3, 2], memory = "expanded" }')
        assert list(inputs.leaves[0].shape) == [1, 2]
        assert torch.equal(only(inputs), inputs.leaves[0].expand(3, 2))

    def test_explicit_values_can_be_expanded(self, made: Made) -> None:
        x = only(made('{ values = [[1, 2], [1, 2], [1, 2]], memory = "expanded" }'))
        assert x.stride() == (0, 1)
        assert x.tolist() == [[1, 2]] * 3

    @pytest.mark.parametrize("structure", ["hermitian", "positive_definite", "triangular"])
    def test_structured_matrices_are_expanded_along_the_batch(self, structure: str, made: Made) -> None:
        x = only(made(f'{{ shape = [4, 2, 2], structure = "{structure}", memory = "expanded" }}'))
        assert x.stride()[0] == 0
        lower = x if structure == "triangular" else x.mT
        assert torch.equal(x, lower.tril() if structure == "triangular" else lower)

    @pytest.mark.parametrize("shape", [[], [0, 2], [1, 2]])
    def test_numbers_empty_tensors_and_single_rows_can_be_expanded(self, shape: list[int], made: Made) -> None:
        assert list(only(made(f'{{ shape = {shape}, memory = "expanded" }}')).shape) == shape

    def test_jagged_rows_have_a_memory_format(self, made: Made) -> None:
        x = only(made('{ shape = [3, 4, 2], layout = "jagged", memory = "noncontiguous" }'))
        assert not x.values().is_contiguous()

    def test_gaps_survive_the_way_to_another_device(self, sample: Callable[..., Sample]) -> None:
        for memory, strides in (("noncontiguous", (6, 2)), ("transposed", (1, 2)), ("contiguous", (3, 1))):
            written = sample(f'args = [{{ shape = [2, 3], memory = "{memory}" }}]')
            assert realize(written, "float64", "meta", "seed").leaves[0].stride() == strides
            for dtype in ("float64", "complex128"):
                written = sample(f'args = [{{ shape = [2, 3], memory = "{memory}", neg = true }}]')
                has_gaps = memory == "contiguous" and dtype == "float64"  # as x.conj().imag has
                assert only(realize(written, dtype, "meta", "seed")).stride() == ((6, 2) if has_gaps else strides)


SPECIMEN = """
    args = [
      { shape = [3, 3] }, { shape = [2, 4], structure = "permutation", dtype = "int64" },
      { shape = [3, 3], layout = "sparse_csr" }, { shape = [3, 4, 2], layout = "jagged" },
      { shape = [4], structure = "distinct" }, { shape = [3, 3], structure = "orthogonal" },
      { shape = [5], exclude = 0 },
    ]
    grad_outputs = [{ shape = [3] }]
"""


def numbers(inputs: Inputs) -> list[Any]:
    tensors = [x.detach() for x in inputs.fill()[0]] + list(inputs.grad_outputs or ())
    return [(x.values() if x.layout is torch.jagged else x.to_dense()).tolist() for x in tensors]


class TestSeed:
    def test_the_same_text_gives_the_same_numbers_in_any_order(self, sample: Callable[..., Sample]) -> None:
        specimen = sample(SPECIMEN)
        first = numbers(realize(specimen, "float64", "cpu", "torch.sin::backward"))
        other = numbers(realize(specimen, "float64", "cpu", "another"))
        torch.manual_seed(5)
        torch.rand(7)
        again = numbers(realize(specimen, "float64", "cpu", "torch.sin::backward"))
        assert first == again
        assert all(x != y for x, y in zip(first, other, strict=True) if len(str(x)) > 60)
        assert first != other

    def test_the_same_text_gives_the_same_numbers_in_another_process(
        self, sample: Callable[..., Sample], tmp_path: Path
    ) -> None:
        inputs = realize(sample("args = [{ shape = [2, 2] }]"), "float64", "cpu", "äöü")
        program = """
            import opcheck.planning, opcheck.samples.realize, sys
            sample = opcheck.planning.load([sys.argv[1]]).operators[0].samples[0]
            print(opcheck.samples.realize.realize(sample, "float64", "cpu", "äöü").leaves[0].tolist())
        """
        command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "spec.toml")]
        environment = os.environ | {"PYTHONHASHSEED": "77", "PYTHONUTF8": "1"}
        output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, encoding="utf-8")
        assert output.stdout.strip() == str(inputs.leaves[0].tolist())

    @pytest.mark.parametrize("dtype", ["float64", "int64"])
    def test_the_global_generator_is_left_as_it_was(self, dtype: str, sample: Callable[..., Sample]) -> None:
        torch.manual_seed(3)
        before = torch.random.get_rng_state()
        realize(sample(SPECIMEN), dtype, "cpu", "seed")
        assert torch.equal(torch.random.get_rng_state(), before)

    def test_the_global_generator_is_left_as_it_was_after_an_error(self, made: Made) -> None:
        before = torch.random.get_rng_state()
        with pytest.raises(ValueError, match="square"):
            made("{ shape = [3] }", '{ shape = [2, 3], structure = "permutation" }')
        assert torch.equal(torch.random.get_rng_state(), before)

    @pytest.fixture
    def _elsewhere(self) -> Iterator[None]:
        torch.set_default_device("meta")
        torch.set_default_dtype(torch.float16)
        yield
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)

    def test_default_device_and_dtype_change_nothing(
        self, sample: Callable[..., Sample], request: pytest.FixtureRequest
    ) -> None:
        specimen = sample(SPECIMEN)
        plain = realize(specimen, "float64", "cpu", "seed")
        expected = numbers(plain)
        request.getfixturevalue("_elsewhere")
        elsewhere = realize(specimen, "float64", "cpu", "seed")
        assert {leaf.device.type for leaf in elsewhere.leaves} == {"cpu"}
        assert numbers(elsewhere) == expected


class TestCotangents:
    def test_they_are_made_like_other_tensors_and_require_grad(self, sample: Callable[..., Sample]) -> None:
        text = 'grad_outputs = [{ shape = [2], memory = "noncontiguous" }, { shape = [2], dtype = "real" }]'
        cotangents = realize(sample(text), "complex128", "cpu", "seed").grad_outputs
        assert cotangents is not None
        assert [x.dtype for x in cotangents] == [torch.complex128, torch.float64]
        assert all(x.is_leaf and x.requires_grad for x in cotangents)
        assert cotangents[0].stride() == (2,)

    def test_lazy_views_stay_lazy(self, sample: Callable[..., Sample]) -> None:
        text = "grad_outputs = [{ shape = [2], conj = true, neg = true }]"
        (cotangent,) = realize(sample(text), "complex128", "cpu", "seed").grad_outputs or ()
        assert (cotangent.is_conj(), cotangent.is_neg(), cotangent.is_leaf) == (True, True, True)

    def test_there_are_none_where_the_sample_gives_none(self, made: Made) -> None:
        assert made("{ shape = [2] }").grad_outputs is None


def test_what_a_recipe_cannot_be_is_an_error_in_plain_words(made: Made) -> None:
    with pytest.raises(ValueError, match="a permutation matrix must be square, not of shape"):
        made('{ shape = [3, 2], structure = "permutation" }')
