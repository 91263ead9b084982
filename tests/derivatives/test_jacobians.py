"""Jacobians in real coordinates, against closed forms."""

import pytest
import torch
from operators.looped import forward_jacobian, numerical_jacobian, reverse_jacobian

from opcheck.derivatives.autodiff import Primal, Pullback, vjp

METHODS = {
    "numerical": lambda function, leaves: numerical_jacobian(function, leaves, 1e-6),
    "reverse": reverse_jacobian,
    "forward": forward_jacobian,
}
EACH = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def leaf(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def as_real(matrix):
    """The real 2M x 2N matrix of a complex linear map: a + bi becomes [[a, -b], [b, a]]."""
    blocks = [[torch.tensor([[z.real, -z.imag], [z.imag, z.real]]) for z in row] for row in matrix.tolist()]
    return torch.cat([torch.cat(row, dim=1) for row in blocks]).to(torch.float64)


@EACH
def test_a_linear_map_has_its_matrix_as_jacobian(method):
    matrix = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 4.0]], dtype=torch.float64)
    (row,) = method(lambda x: (matrix @ x,), (leaf(0.3, -0.2, 0.9),))
    torch.testing.assert_close(row[0], matrix, rtol=0, atol=1e-8)


@EACH
def test_a_complex_linear_map_has_the_real_matrix_of_its_entries(method):
    matrix = torch.tensor([[1 + 2j, -1j], [0.5, 3 - 1j]], dtype=torch.complex128)
    (row,) = method(lambda z: (matrix @ z,), (leaf(0.3 + 1j, -0.2, dtype=torch.complex128),))
    torch.testing.assert_close(row[0], as_real(matrix), rtol=0, atol=1e-8)


@EACH
def test_conjugation_which_is_not_holomorphic_is_a_reflection(method):
    (row,) = method(lambda z: (z.conj() * 1,), (leaf(0.3 + 1j, dtype=torch.complex128),))
    torch.testing.assert_close(row[0], torch.tensor([[1.0, 0.0], [0.0, -1.0]], dtype=torch.float64), rtol=0, atol=1e-8)


@EACH
def test_complex_to_real_and_real_to_complex_have_rectangular_jacobians(method):
    (row,) = method(lambda z: (z.abs(),), (leaf(3 + 4j, dtype=torch.complex128),))
    torch.testing.assert_close(row[0], torch.tensor([[0.6, 0.8]], dtype=torch.float64), rtol=0, atol=1e-8)
    (row,) = method(lambda x: (torch.complex(x, x * x),), (leaf(2.0),))
    torch.testing.assert_close(row[0], torch.tensor([[1.0], [4.0]], dtype=torch.float64), rtol=0, atol=1e-8)


@EACH
def test_several_inputs_and_outputs_give_a_block_each(method):
    x, y = leaf(2.0, 3.0), leaf(5.0)
    jacobians = method(lambda x, y: (x * y, x.sum()), (x, y))
    assert [[tuple(block.shape) for block in row] for row in jacobians] == [[(2, 2), (2, 1)], [(1, 2), (1, 1)]]
    torch.testing.assert_close(jacobians[0][1], torch.tensor([[2.0], [3.0]], dtype=torch.float64), rtol=0, atol=1e-7)
    torch.testing.assert_close(jacobians[1][1], torch.zeros(1, 1, dtype=torch.float64), rtol=0, atol=1e-7)


@EACH
def test_empty_inputs_and_outputs_give_empty_blocks(method):
    x = torch.zeros(0, 2, dtype=torch.float64, requires_grad=True)
    assert tuple(method(lambda x: (x.sin(),), (x,))[0][0].shape) == (0, 0)
    assert tuple(method(lambda x: (x.sum(),), (x,))[0][0].shape) == (1, 0)


def test_finite_differences_leave_the_leaves_alone_even_where_the_output_is_a_view():
    x = leaf(1.0, 2.0)
    (row,) = numerical_jacobian(lambda x: (x[1:],), (x,), 1e-6)
    torch.testing.assert_close(row[0], torch.tensor([[0.0, 1.0]], dtype=torch.float64), rtol=0, atol=1e-8)
    assert x.tolist() == [1.0, 2.0]


def test_the_derivative_of_a_vjp_is_the_hessian():
    x, v = leaf(1.0, 2.0), leaf(1.0)
    pulled = Pullback(Primal(lambda x: (x.pow(3).sum(),), (0,)), 1)
    v0 = v.detach().reshape(()).requires_grad_()
    (row,) = reverse_jacobian(pulled, (x, v0))
    torch.testing.assert_close(row[0], torch.diag(torch.tensor([6.0, 12.0], dtype=torch.float64)))
    torch.testing.assert_close(row[1], torch.tensor([[3.0], [12.0]], dtype=torch.float64))


def test_a_leaf_that_is_not_used_has_a_gradient_of_zero():
    x, y = leaf(1.0), leaf(2.0)
    gradients = vjp((x * 2,), (x, y), (torch.ones(1, dtype=torch.float64),))
    assert [g.item() for g in gradients] == [2.0, 0.0]
