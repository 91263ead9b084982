"""What an operator returns is taken apart, with names; outputs are selected; what hides tensors is refused."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from operators import results
from operators.results import Opaque, Pair, Result, Slotted, WithLogits

from opcheck.samples.function import TestedFunction
from opcheck.samples.inputs import Inputs
from opcheck.samples.results import Untestable, differentiable, flatten, leaves_of, named, names_among, select
from opcheck.spec.claims import Outputs

X, Y = torch.ones(1), torch.zeros(2)


class TestFlatten:
    def test_a_tensor_is_one_output(self) -> None:
        assert flatten(X) == (X,)

    def test_tensors_come_in_the_order_of_nested_tuples_lists_and_dicts(self) -> None:
        a, b, c, d = (torch.tensor(float(i)) for i in range(4))
        assert [x.item() for x in flatten((a, [b, {"x": c, "y": (d,)}]))] == [0, 1, 2, 3]

    def test_what_holds_no_tensor_for_certain_is_left_out(self) -> None:
        plain = (None, 3, 2.5, 1j, True, "text", b"x", torch.float64, torch.device("cpu"), torch.Size([2]), [], {})
        assert flatten((*plain, X)) == (X,)

    def test_named_tuples_are_tuples(self) -> None:
        assert flatten(namedtuple("pair", "x y")(X, Y)) == (X, Y)
        assert len(flatten(torch.linalg.slogdet(torch.eye(2)))) == 2


class TestNames:
    @pytest.mark.parametrize(
        ("result", "names"),
        [
            (X, ()),
            ((X, [Y]), ()),
            ({0: X, 1: Y}, ()),
            ({"a": X, "b b": Y}, ("['a']", "['b b']")),
            (Pair(X, 3), (".loss",)),
            (Result(X, {"parts": [Y, None]}), (".loss", ".aux['parts'][0]")),
            (Slotted(X), (".loss",)),
            (WithLogits(X, Y), ("['loss']", "['logits']")),
            ((X, Pair(Y, 1)), ("[0]", "[1].loss")),
            (torch.linalg.slogdet(torch.eye(2)), (".sign", ".logabsdet")),
            ({"a" * 60: X}, (f"['{'a' * 39}...]",)),
            ({"\x1b[31m": X}, ("['\\x1b[31m']",)),
        ],
    )
    def test_names_are_paths_where_there_are_any(self, result: Any, names: tuple[str, ...]) -> None:
        assert names_among([path for path, _ in named(result)]) == names

    def test_what_is_no_tensor_has_a_path_too(self) -> None:
        assert list(leaves_of((1, {"a": None}))) == [("[0]", 1), ("[1]['a']", None)]


class TestUntestable:
    @pytest.mark.parametrize(
        ("result", "what"),
        [
            (None, "None; it contains no tensor"),
            (3, "3 (int); it contains no tensor"),
            ("text", "'text' (str); it contains no tensor"),
            ([], "an empty list; it contains no tensor"),
            (({}, [None, 1]), "a tuple; it contains no tensor"),
            (Result(None), "an object of operators.results.Result; it contains no tensor"),
            ((x for x in [X]), "a generator; opcheck cannot look for tensors in it"),
            ({X}, "a set; opcheck cannot look for tensors in it"),
            (Opaque(X), "an object of operators.results.Opaque; opcheck cannot look for tensors in it"),
            ((X, {"rest": Opaque(Y)}), "an object of operators.results.Opaque at output[1]['rest']; "
             "opcheck cannot look for tensors in it"),
            (Result, "a type; opcheck cannot look for tensors in it"),
        ],
    )  # fmt: skip
    def test_what_was_returned_is_said(self, result: Any, what: str) -> None:
        with pytest.raises(Untestable) as caught:
            flatten(result)
        assert str(caught.value) == f"the operator returned {what}"

    @pytest.mark.parametrize("name", ["in_dict", "in_mapping", "in_dataclass", "in_attrs", "in_model_output"])
    def test_containers_of_tensors_are_taken_apart(self, name: str) -> None:
        assert flatten(getattr(results, name)(X))[-1].item() == 1


SPARSE = [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc]

pytestmark = pytest.mark.filterwarnings("ignore:Sparse.*beta:UserWarning")


def seen(result: Any, masked: bool = False, **keys: Any) -> tuple[torch.Tensor, ...]:
    return select(result, Outputs.model_validate(keys), masked)


def sparse(dense: torch.Tensor, layout: torch.layout) -> torch.Tensor:
    blocksize = (1, 1) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    return dense.to_sparse(layout=layout, blocksize=blocksize)


class TestSelect:
    def test_all_outputs_are_tested_by_default(self) -> None:
        assert len(seen((torch.ones(1), torch.ones(2), None))) == 2

    @pytest.mark.parametrize(("chosen", "sizes"), [([0], [1]), ([2, 0], [3, 1]), ([-1], [3])])
    def test_positions_choose_among_the_tensors(self, chosen: list[int], sizes: list[int]) -> None:
        result = (torch.ones(1), None, torch.ones(2), torch.ones(3))
        assert [x.numel() for x in seen(result, select=chosen)] == sizes

    @pytest.mark.parametrize("index", [1, -2])
    def test_a_position_that_no_output_has_is_an_error(self, index: int) -> None:
        with pytest.raises(
            Untestable, match=f"outputs.select names output {index}, but the operator returned 1 tensor"
        ):
            seen(torch.ones(1), select=[index])

    def test_names_follow_the_selection(self) -> None:
        def names(result: object, **keys: object) -> tuple[str, ...]:
            return TestedFunction(torch.sin, Inputs((), {}, (), ()), Outputs(**keys)).names(result)

        result = {"a": torch.ones(1), "n": 3, "b": torch.ones(2)}
        assert names(result) == ("['a']", "['b']")
        assert names(result, select=(1,)) == ("['b']",)
        assert names((torch.ones(1), torch.ones(2)), select=(1,)) == ()


class TestMaps:
    def test_abs_gives_absolute_values_and_leaves_booleans(self) -> None:
        x, y = seen((torch.tensor([3 + 4j, -1]), torch.tensor([True])), apply="abs")
        assert x.tolist() == [5, 1]
        assert y.tolist() == [True]

    @pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.float16])
    def test_finite_puts_a_number_each_in_place_of_nan_and_infinities(self, dtype: torch.dtype) -> None:
        x = torch.tensor([2.0, torch.inf, -torch.inf, torch.nan], dtype=dtype, requires_grad=True)
        y, whole = seen((x, torch.tensor([1])), apply="finite")
        assert y.isfinite().all()
        assert len(set(y.tolist())) == 4
        assert whole.tolist() == [1]
        (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
        assert gradient.tolist() == [1, 0, 0, 0]

    def test_real_gives_real_parts(self) -> None:
        x, y = seen((torch.tensor([3 + 4j]), torch.tensor([-2.0])), apply="real")
        assert (x.tolist(), y.tolist()) == ([3], [-2])

    @pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
    def test_gauge_invariant_outputs_do_not_depend_on_the_phases_of_eigenvectors(self, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        a = torch.randn(3, 3, dtype=dtype)
        values, vectors = np.linalg.eigh((a + a.mH).resolve_conj().numpy())
        phases = np.array([-1, 1, -1]) if dtype is torch.float64 else np.exp(1j * np.array([0.3, 2.0, -1.0]))
        plain = seen((torch.tensor(values), torch.tensor(vectors)), apply="gauge_invariant")
        turned = seen((torch.tensor(values), torch.tensor(vectors * phases)), apply="gauge_invariant")
        torch.testing.assert_close(plain, turned)
        assert plain[0].tolist() == values.tolist()
        np.testing.assert_allclose(plain[1].numpy(), np.abs(vectors))

    def test_gauge_invariance_keeps_the_signs_of_eigenvalues(self) -> None:
        values, _ = seen((torch.tensor([-1.0, 2.0]), torch.eye(2)), apply="gauge_invariant")
        assert values.tolist() == [-1, 2]

    @pytest.mark.parametrize("masked", [True, False])
    @pytest.mark.parametrize("layout", SPARSE)
    def test_sparse_outputs_become_dense(self, layout: torch.layout, masked: bool) -> None:
        dense = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        strided, converted = seen((dense, sparse(dense, layout)), masked, apply="to_dense")
        assert strided is dense
        assert converted.layout is torch.strided
        assert torch.equal(converted, dense)

    @pytest.mark.parametrize("layout", SPARSE)
    @pytest.mark.parametrize(("masked", "specified"), [(True, 2), (False, 4)])
    def test_masked_gradients_have_the_pattern_of_the_output(
        self, layout: torch.layout, masked: bool, specified: int
    ) -> None:
        x = sparse(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), layout).requires_grad_()
        (dense,) = seen(x, masked, apply="to_dense")
        (gradient,) = torch.autograd.grad(dense, x, torch.ones(2, 2))
        assert int((gradient.to_dense() != 0).sum()) == specified

    @pytest.mark.parametrize("layout", SPARSE)
    def test_values_gives_the_specified_elements(self, layout: torch.layout) -> None:
        dense = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        strided, values = seen((dense, sparse(dense, layout)), apply="values")
        assert strided is dense
        assert values.flatten().tolist() == [1, 2]

    @pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
    def test_values_of_coordinates_given_twice_are_summed(self) -> None:
        x = torch.sparse_coo_tensor([[0, 0, 2]], [1.0, 2.0, 5.0], (3,))
        (values,) = seen(x, apply="values")
        assert values.tolist() == [3, 5]

    def test_mkldnn_outputs_become_dense(self) -> None:
        (dense,) = seen(torch.ones(2, 3).to_mkldnn(), apply="to_dense")
        assert torch.equal(dense, torch.ones(2, 3))

    def test_nested_outputs_are_the_tensors_that_they_consist_of(self) -> None:
        nested = torch.nested.as_nested_tensor([torch.zeros(1, 2), torch.ones(3, 2)])
        assert [x.tolist() for x in seen(nested)] == [[[0, 0]], [[1, 1]] * 3]
        assert [path for path, _ in named({"x": nested})] == ["['x'][0]", "['x'][1]"]

    def test_jagged_outputs_are_their_rows(self) -> None:
        rows = torch.nested.nested_tensor_from_jagged(torch.arange(3.0), torch.tensor([0, 1, 3]))
        ((path, values),) = named(rows)
        assert values.tolist() == [0, 1, 2]
        assert path == ".values()"


def test_outputs_of_floating_and_complex_dtypes_are_differentiable() -> None:
    dtypes = (torch.float64, torch.int64, torch.bool, torch.complex64, torch.bfloat16, torch.uint8)
    outputs = [torch.ones(2, dtype=dtype) for dtype in dtypes]
    assert [x.dtype for x in differentiable(outputs)] == [torch.float64, torch.complex64, torch.bfloat16]
