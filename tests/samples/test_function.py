"""The function under test: held against torch.autograd.gradcheck for operators known to be right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from opcheck.samples.function import TestedFunction
from opcheck.samples.inputs import Inputs
from opcheck.samples.results import Untestable
from opcheck.spec.claims import Outputs
from opcheck.spec.recipe import SPARSE_LAYOUTS, Memory

Made = Callable[..., Inputs]
FIRST = {"": ("args", 0)}
DENSE = Outputs(apply="to_dense")
DTYPES = ["float64", "complex128"]

pytestmark = pytest.mark.filterwarnings(
    "ignore:Sparse:UserWarning",
    "ignore:Input #0 requires gradient:UserWarning",
    "ignore:.*jit.script:DeprecationWarning",
)


def holds(operator: Callable[..., Any], inputs: Inputs, **settings: Any) -> bool:
    function = TestedFunction(operator, inputs, **settings)
    return gradcheck(function, inputs.leaves, check_forward_ad=True, check_batched_grad=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("views", ["", "conj = true, neg = true", 'through = "unit_norm"'])
@pytest.mark.parametrize("memory", get_args(Memory))
def test_every_memory_format_and_view_passes_gradcheck(memory: str, views: str, dtype: str, made: Made) -> None:
    inputs = made(f'{{ shape = [2, 2, 1, 1], memory = "{memory}", {views} }}'.replace(", }", " }"), dtype=dtype)
    assert holds(torch.sin, inputs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [[], [0], [2, 0]])
def test_numbers_and_empty_tensors_pass_gradcheck(shape: list[int], dtype: str, made: Made) -> None:
    assert holds(torch.exp, made(f"{{ shape = {shape}, neg = true }}", dtype=dtype))


def solved(factor: torch.Tensor) -> torch.Tensor:
    right = torch.ones(factor.shape[-1], 1, dtype=factor.dtype)
    return torch.linalg.solve_triangular(factor, right, upper=False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("through", "operator"),
    [
        ("symmetrize", torch.linalg.eigvalsh),
        ("tril", lambda x: x @ x.mH),
        ("triu", lambda x: x @ x.mH),
        ("positive_diagonal", solved),
        ("positive_definite", torch.linalg.cholesky),
        ("low_rank", lambda x: torch.linalg.svdvals(x)[..., :1]),
        ("log_simplex", torch.exp),
        ("simplex", torch.log),
        ("orthogonal", torch.linalg.inv),
        ("unit_norm", lambda x: x.cumsum(-1)),
    ],
)
def test_every_map_passes_gradcheck_with_an_operator_that_needs_it(
    through: str, operator: Callable[..., Any], dtype: str, made: Made
) -> None:
    assert holds(operator, made(f'{{ shape = [2, 2], through = "{through}" }}', dtype=dtype))


def test_a_map_keeps_perturbed_inputs_on_the_manifold(made: Made) -> None:
    def picky(x: torch.Tensor) -> torch.Tensor:
        assert torch.equal(x, x.mT)
        return x @ x

    inputs = made('{ shape = [2, 2], through = "symmetrize" }')
    assert gradcheck(TestedFunction(picky, inputs), inputs.leaves)
    with pytest.raises(AssertionError):
        gradcheck(TestedFunction(picky, made('{ shape = [2, 2], structure = "hermitian" }')), inputs.leaves)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", SPARSE_LAYOUTS)
@pytest.mark.parametrize("keys", ["shape = [2, 2]", "shape = [2, 2, 2], dense_dim = 1"])
def test_every_sparse_layout_passes_gradcheck_masked_or_not(
    layout: str, keys: str, dtype: str, masked: bool, made: Made
) -> None:
    blocks = ", blocksize = [2, 1]" if layout in ("sparse_bsr", "sparse_bsc") else ""
    inputs = made(f'{{ {keys}, layout = "{layout}"{blocks} }}', dtype=dtype)
    function = TestedFunction(lambda x: x * 2, inputs, DENSE, masked=masked)
    assert gradcheck(function, inputs.leaves, masked=masked)


def test_the_values_of_a_sparse_tensor_pass_gradcheck(made: Made) -> None:
    inputs = made('{ shape = [3, 3], layout = "sparse_coo" }')
    function = TestedFunction(lambda x: x * x, inputs, Outputs(apply="values"))
    assert gradcheck(function, inputs.leaves, masked=True)


def test_mkldnn_tensors_pass_gradcheck(made: Made) -> None:
    inputs = made('{ shape = [2, 3], layout = "mkldnn", low = 0.5 }', dtype="float32")
    function = TestedFunction(torch.relu, inputs, DENSE)
    assert gradcheck(function, inputs.leaves, eps=1e-2, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("keys", ["", ', memory = "noncontiguous"', ', through = "log_simplex"'])
def test_jagged_tensors_pass_gradcheck(keys: str, made: Made) -> None:
    recipe = f'{{ shape = [2, 3, 2], layout = "jagged"{keys} }}'
    inputs = made(recipe, recipe)
    function = TestedFunction(lambda x, y: x.sin() * y, inputs, Outputs(apply="values"))
    assert gradcheck(function, inputs.leaves)


def test_lists_and_keywords_pass_gradcheck(sample: Callable[..., Any]) -> None:
    from opcheck.samples.realize import realize

    written = sample("args = [[{ shape = [2] }, { shape = [1] }]]\nkwargs = { dim = 0 }")
    assert holds(torch.cat, realize(written, "float64", "cpu", "seed"))


@pytest.mark.parametrize("views", ["", ", conj = true", ", neg = true", ', through = "unit_norm"'])
# Without channels_last, which torch's vmap does not know.
@pytest.mark.parametrize("memory", sorted({*get_args(Memory)} - {"channels_last"}))
def test_every_memory_format_and_view_goes_with_the_transforms_of_torch_func(
    memory: str, views: str, made: Made
) -> None:
    inputs = made(f'{{ shape = [2, 2], memory = "{memory}"{views} }}')
    function = TestedFunction(torch.exp, inputs.detached())
    (leaf,) = function.inputs.leaves
    (forward,), (reverse,) = torch.func.jacfwd(function)(leaf), torch.func.jacrev(function)(leaf)
    torch.testing.assert_close(forward, reverse)
    (batched,) = torch.func.vmap(function)(torch.stack([leaf, leaf + 1]))
    torch.testing.assert_close(batched[1], function(leaf + 1)[0])


def test_second_order_passes_gradgradcheck(made: Made) -> None:
    inputs = made('{ shape = [2, 2], memory = "expanded", conj = true, neg = true }', dtype="complex128")
    assert gradgradcheck(TestedFunction(torch.sin, inputs), inputs.leaves)


class TestCalls:
    def test_without_leaves_it_works_on_those_of_the_sample(self, made: Made) -> None:
        inputs = made("{ values = [1, 2] }", "3")
        assert [x.tolist() for x in TestedFunction(torch.mul, inputs)()] == [[3, 6]]

    def test_other_leaves_take_their_place(self, made: Made) -> None:
        function = TestedFunction(torch.mul, made("{ values = [1, 2] }", "3"))
        assert [x.tolist() for x in function(torch.tensor([5.0, 6.0]))] == [[15, 18]]

    def test_outputs_are_selected_and_mapped(self, made: Made) -> None:
        inputs = made("{ values = [[2, 0], [0, -3]] }")
        function = TestedFunction(torch.linalg.slogdet, inputs, Outputs(select=(1,), apply="abs"))
        (logarithm,) = function()
        torch.testing.assert_close(logarithm, torch.tensor(6.0, dtype=torch.float64).log())

    def test_the_result_itself_is_that_of_the_operator(self, made: Made) -> None:
        assert TestedFunction(lambda x: {"x": x, "n": 1}, made("{ shape = [2] }")).result()["n"] == 1

    def test_an_operator_without_tensors_cannot_be_tested(self, made: Made) -> None:
        with pytest.raises(Untestable, match="the operator returned None; it contains no tensor"):
            TestedFunction(lambda x: None, made("{ shape = [2] }"))()

    def test_outputs_have_the_names_of_the_result(self, made: Made) -> None:
        function = TestedFunction(lambda x: {"x": x, "y": x}, made("{ shape = [2] }"))
        assert function.names(function.result()) == ("['x']", "['y']")


class TestInPlace:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("views", ["", ", conj = true", ", conj = true, neg = true"])
    @pytest.mark.parametrize("memory", ["contiguous", "noncontiguous", "transposed", "expanded"])
    def test_every_format_passes_gradcheck(self, memory: str, views: str, dtype: str, made: Made) -> None:
        inputs = made(f'{{ shape = [2, 2], memory = "{memory}"{views} }}', dtype=dtype)
        assert holds(torch.Tensor.sin_, inputs, writes=FIRST)

    def test_the_leaves_are_left_untouched(self, made: Made) -> None:
        inputs = made("{ values = [1, 4] }", "{ values = [1, 1] }")
        function = TestedFunction(torch.Tensor.add_, inputs, writes=FIRST)
        assert [x.tolist() for x in function()] == [[2, 5]]
        assert [x.tolist() for x in function()] == [[2, 5]]
        assert inputs.leaves[0].tolist() == [1, 4]

    def test_the_operator_works_on_the_memory_format_of_the_sample(self, made: Made) -> None:
        seen = []

        def spy(x: torch.Tensor) -> torch.Tensor:
            seen.append((x.stride(), x.is_conj()))
            return x.mul_(2)

        TestedFunction(
            spy, made('{ shape = [3], memory = "noncontiguous", conj = true }', dtype="complex128"), writes=FIRST
        )()
        assert seen == [((2,), False)]  # strides are kept, lazy conjugation is not

    def test_arguments_that_are_no_leaves_are_left_untouched(self, made: Made) -> None:
        inputs = made("{ values = [1, 2], grad = false }")
        TestedFunction(torch.Tensor.neg_, inputs, writes=FIRST)()
        assert inputs.fill()[0][0].tolist() == [1, 2]

    def test_lists_are_copied_tensor_by_tensor(self, made: Made) -> None:
        inputs = made("[{ values = [1] }, { values = [2] }]")
        function = TestedFunction(torch._foreach_neg_, inputs, writes=FIRST)
        assert [x.tolist() for x in function()] == [[-1], [-2]]
        assert [leaf.tolist() for leaf in inputs.leaves] == [[1], [2]]

    def test_what_was_changed_is_the_output_of_an_operator_that_returns_nothing(self, made: Made) -> None:
        def doubled(x: torch.Tensor) -> None:
            x.mul_(2)

        inputs = made("{ values = [1, 2] }")
        assert [x.tolist() for x in TestedFunction(doubled, inputs, writes=FIRST)()] == [[2, 4]]
        assert holds(doubled, inputs, writes=FIRST)

    @pytest.mark.parametrize("layout", SPARSE_LAYOUTS)
    def test_sparse_leaves_are_left_untouched(self, layout: str, made: Made) -> None:
        inputs = made(f'{{ values = [[1, 0], [0, 2]], layout = "{layout}" }}')
        (doubled,) = TestedFunction(lambda x: x.mul_(2), inputs, DENSE, writes=FIRST)()
        assert doubled.tolist() == [[2, 0], [0, 4]]
        assert inputs.leaves[0].detach().to_dense().tolist() == [[1, 0], [0, 2]]


class TestSeeds:
    def test_a_random_operator_repeats_itself_under_a_seed(self, made: Made) -> None:
        inputs = made("{ shape = [50] }", "0.5")
        function = TestedFunction(torch.nn.functional.dropout, inputs, seed=1)
        assert torch.equal(function()[0], function()[0])
        other = TestedFunction(torch.nn.functional.dropout, inputs, seed=2)
        assert not torch.equal(function()[0], other()[0])

    def test_a_random_operator_passes_gradcheck_under_a_seed_and_only_then(self, made: Made) -> None:
        inputs = made("{ shape = [20] }", "0.5")
        assert gradcheck(TestedFunction(torch.nn.functional.dropout, inputs, seed=1), inputs.leaves)
        with pytest.raises(RuntimeError):
            gradcheck(TestedFunction(torch.nn.functional.dropout, inputs), inputs.leaves)
