"""A disagreement is named after the mistake that made it, and after no other.

Jacobians come from closed forms: the right backward formula, with the noise of finite differences, stands for the
numerical one, a formula with a planted mistake for the analytical one.
"""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from operators.looped import to_real, units
from operators.pairs import pair

from opcheck.derivatives.diagnosis import UNSEEN, Seen, diagnose
from opcheck.derivatives.disagreement import Names
from opcheck.derivatives.tolerances import BY_PRECISION, DOUBLE

SINGLE = BY_PRECISION[torch.float32]


def real(*shape, seed=0):
    return torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 0.5


def cplx(*shape, seed=0):
    return torch.complex(real(*shape, seed=seed), real(*shape, seed=seed + 100))


def jacobian(backward, outputs, count=1):
    """Return the Jacobian that a backward formula means, of the first `count` gradients that it returns."""
    rows = []
    for i, output in enumerate(outputs):
        for unit in units(output):
            gradients = backward(*(unit if k == i else torch.zeros_like(o) for k, o in enumerate(outputs)))
            gradients = gradients if isinstance(gradients, tuple) else (gradients,)
            rows.append(torch.cat([to_real(g) for g in gradients[:count]]))
    return torch.stack(rows)


def noisy(matrix, size=1e-8):
    return matrix + size * torch.randn(matrix.shape, dtype=matrix.dtype, generator=torch.Generator().manual_seed(7))


def findings(right, wrong, outputs, leaves, numbers=DOUBLE, check="", **seen):
    n, a = (jacobian(backward, outputs, len(leaves)) for backward in (right, wrong))
    matrices = pair(noisy(n), a, outputs, leaves, numbers, names_for(check, outputs, leaves))
    return diagnose(matrices, numbers, Seen("forward" if check.startswith("fwd") else "reverse", **seen))


def names_for(check, outputs, leaves):
    """Return what is called how at second order; None at first order."""
    if not check:
        return None
    forward = check.endswith("_fwd")
    linear = len(leaves) // 2 if forward else len(leaves) - len(outputs)
    inputs = [f"input {k}" for k in range(len(leaves) - linear)]
    vectors = (
        [f"tangent of {name}" for name in inputs] if forward else [f"cotangent of output {k}" for k in range(linear)]
    )
    above = [f"tangent of output {k}" if forward else f"gradient of input {k}" for k in range(len(outputs))]
    called = "the jvp" if forward else "the backward pass"
    return Names(tuple(above), (*inputs, *vectors), called, 2, linear)


def only(*args, **kwargs):
    (found,) = findings(*args, **kwargs)
    json.dumps(found.fields)  # plain data
    return found


def of_matrices(n, a, output=None, leaf=None, numbers=DOUBLE, seen=UNSEEN):
    n, a = torch.as_tensor(n, dtype=torch.float64), torch.as_tensor(a, dtype=torch.float64)
    output = torch.zeros(n.shape[0], dtype=torch.float64) if output is None else output
    leaf = torch.zeros(n.shape[1], dtype=torch.float64) if leaf is None else leaf
    (found,) = diagnose(pair(n, a, [output], [leaf], numbers), numbers, seen)
    return found


# nan


def test_nan_gradient_of_a_norm_at_zero():
    n, a = torch.tensor([[1.0, 0.0]]).double(), torch.tensor([[float("nan"), 0.0]]).double()
    found = of_matrices(n, a, torch.zeros(()))
    assert (found.kind, found.fields["analytical"], found.fields["numerical"]) == ("nan", 1, 0)
    assert found.fields["entries"][0]["leaf_index"] == (0,)
    assert (
        "the analytical Jacobian is NaN or infinite in 1 of 2 entries, as at d output 0[] / d input 0[0]" in found.text
    )
    assert len(found.text.splitlines()) == 1
    json.dumps(found.fields, allow_nan=False)


def test_numerical_nan_is_told_from_an_analytical_one():
    found = of_matrices([[float("nan"), 1.0]], [[2.0, float("-inf")]])
    assert (found.kind, found.fields["analytical"], found.fields["numerical"]) == ("nan", 1, 1)
    assert found.text.count("Jacobian is NaN or infinite") == 2


def test_the_same_infinity_on_both_sides_is_agreement_and_nan_is_none():
    inf, nan = float("inf"), float("nan")
    same = torch.tensor([[inf, -inf, 1.0]]).double()
    assert diagnose(pair(same, same.clone(), [torch.zeros(1)], [torch.zeros(3)], DOUBLE), DOUBLE) == []
    assert of_matrices([[nan, 1.0]], [[nan, 1.0]]).fields["analytical"] == 1


# sign


def test_cos_without_its_minus():
    x = real(3)
    found = only(lambda v: -v * x.sin(), lambda v: v * x.sin(), [x], [x])
    assert (found.kind, found.output, found.leaf) == ("sign", 0, 0)
    assert found.text.startswith("output 0 with respect to input 0: ")


def test_a_sign_lost_for_some_elements_only_is_not_a_lost_sign():
    x = real(4) * torch.tensor([1, -1, -1, 1])
    found = only(lambda v: v * x.sgn(), lambda v: v, [x], [x])  # abs, without its sign
    assert found.kind == "columns"
    assert [place["leaf_index"] for place in found.fields["columns"]] == [(1,), (2,)]


def test_noise_is_no_evidence_of_a_lost_sign():
    n = torch.full((1, 2), 2 * DOUBLE.atol).double()
    assert of_matrices(n, -n + 0.9 * DOUBLE.atol * torch.tensor([[1.0, -1.0]])).kind == "unlike"


# factor


@pytest.mark.parametrize(
    ("factor", "text"),
    [
        (2, "2"), (0.5, "1/2"), (3, "3"), (-2, "-2"), (1 / 3, "1/3"), (1.5, "3/2"), (5e-5, "1/20000"),
        (0.6931, "0.6931"), (1.004, "1.004"), (10.4, "10.4"),
    ],
)  # fmt: skip
def test_a_constant_factor_is_given_as_a_simple_number_where_it_is_one(factor, text):
    x = real(5)
    found = only(lambda v: 200 * x * v, lambda v: factor * 200 * x * v, [x], [x])
    assert (found.kind, found.fields["factor"]) == ("factor", pytest.approx(factor))
    assert f"is {text} times what it should be" in found.text


def test_mean_that_forgets_to_divide():
    x = real(2, 3)
    found = only(lambda v: v.expand(2, 3) / 6, lambda v: v.expand(2, 3), [torch.zeros(()).double()], [x])
    assert (found.kind, found.fields["factor"]) == ("factor", 6)
    assert "(6 = number of elements of the input)" in found.text


def test_sum_over_a_dim_that_divides_by_its_size():
    x, y = real(3, 4), real(4)
    found = only(lambda v: v.expand(3, 4), lambda v: v.expand(3, 4) / 3, [y], [x])
    assert (found.kind, found.fields["sizes"]) == ("factor", ["size of dim 0 of the input"])


def test_a_factor_enlarges_noise():
    n, noise = torch.tensor([[1.0, 2.0, 0.0]]).double(), torch.tensor([[0.0, 0.0, 0.9 * DOUBLE.atol]]).double()
    assert of_matrices(n + noise, 1000 * n).fields["factor"] == 1000


def test_a_factor_that_is_not_the_same_everywhere_is_none():
    x = real(6)
    assert only(lambda v: 3 * x**2 * v, lambda v: 3 * x * v, [x], [x]).kind == "unlike"


def test_one_number_is_a_multiple_of_another_only_where_there_is_no_more():
    x = real(1)
    assert only(lambda v: v * 1.3, lambda v: v * 2.7, [x], [x]).kind == "unlike"
    doubled = only(lambda v: v * 1.3, lambda v: v * 2.6, [x], [x])
    assert doubled.fields["alone"]
    assert doubled.text.endswith("is 2 times what it should be, judged from a single entry")
    sparse = torch.zeros(3, 3).double()
    n, a = sparse.clone(), sparse.clone()
    n[1, 1], a[1, 1] = 1.3, 2.7
    assert of_matrices(n, a).kind == "unlike"


def test_a_factor_within_the_tolerance_is_none():
    x = real(4)
    assert findings(lambda v: x * v, lambda v: 1.0005 * x * v, [x], [x]) == []


def test_orthogonal_matrices_have_no_factor():
    assert of_matrices([[1.0, 0.0]], [[0.0, 1.0]]).kind == "unlike"


def test_a_complex_factor_of_the_gradient():
    z = cplx(3)
    found = only(lambda v: v * z.exp().conj(), lambda v: 2j * v * z.exp().conj(), [z], [z])
    assert (found.kind, found.fields["factor"], found.fields["what"]) == ("factor", [0, 2], "gradient")
    assert "is 0+2j times" in found.text


def test_a_complex_factor_of_the_derivative_of_a_real_input():
    x, w = real(3), cplx(3)
    found = only(lambda v: (v * w.conj()).real, lambda v: (v * (1j * w).conj()).real, [w], [x])
    assert (found.kind, found.fields["factor"], found.fields["what"]) == ("factor", [0, 1], "derivative")


def test_a_complex_leaf_may_follow_an_odd_number_of_coordinates():
    x, z, y = real(3), cplx(2), torch.zeros(()).double()
    found = only(lambda v: (v * x, v * z), lambda v: (v * x, v * z * 2j), [y], [x, z])
    assert (found.kind, found.leaf, found.fields["factor"]) == ("factor", 1, [0, 2])


def test_one_complex_number_is_no_evidence_of_a_complex_factor():
    z, y = cplx(1), torch.zeros(()).double()
    assert only(lambda v: v * z, lambda v: v * (z * (0.3 + 1.7123j)), [y], [z]).kind == "unlike"
    assert only(lambda v: v * z, lambda v: v * z * 1j, [y], [z]).kind == "factor"


# conjugated


def test_a_derivative_that_is_not_conjugated():
    z = cplx(3)
    found = only(lambda v: v * z.exp().conj(), lambda v: v * z.exp(), [z], [z])
    assert (found.kind, found.fields["what"], found.fields["also"]) == ("conjugated", "derivative", [])


def test_the_gradient_of_abs_conjugated():
    z = cplx(3)
    found = only(lambda v: v * z.sgn(), lambda v: v * z.sgn().conj(), [z.abs()], [z])
    assert (found.kind, found.fields["what"]) == ("conjugated", "gradient")


def test_a_cotangent_conjugated():
    x, w = real(3), cplx(3)
    found = only(lambda v: (v * w.conj()).real, lambda v: (v.conj() * w.conj()).real, [w], [x])
    assert (found.kind, found.fields["what"]) == ("conjugated", "cotangent")
    z = cplx(3)
    found = only(lambda v: v * z.exp().conj(), lambda v: v.conj() * z.exp().conj(), [z], [z])
    assert (found.kind, found.fields["what"]) == ("conjugated", "cotangent")


def test_what_conjugation_does_not_tell_from_a_sign_is_both():
    z = torch.complex(torch.zeros(3), real(3).float()).to(torch.complex128)
    found = only(lambda v: v * z.conj(), lambda v: v * z, [z], [z])
    assert (found.kind, found.fields["also"]) == ("sign", ["conjugated"])
    assert "(or conjugated)" in found.text


def test_a_gradient_that_is_only_real_is_not_conjugated():
    z = cplx(3)
    assert only(lambda v: v * z.sgn(), lambda v: (v * z.sgn()).real + 0j, [z.abs()], [z]).kind == "unlike"


# transposed


def test_matmul_with_a_matrix_that_is_not_transposed():
    w, x = real(3, 3), real(3, 2, seed=1)
    found = only(lambda v: w.mT @ v, lambda v: w @ v, [w @ x], [x])
    assert (found.kind, found.fields["what"]) == ("transposed", "Jacobian")


def test_cumsum_without_its_reversal():
    x = real(4)
    found = only(lambda v: v.flip(0).cumsum(0).flip(0), lambda v: v.cumsum(0), [x], [x])
    assert found.kind == "transposed"


@pytest.mark.parametrize("missing", ["transposition", "both"])
def test_complex_matmul_with_a_matrix_that_is_not_transposed(missing):
    w, x = cplx(3, 3), cplx(3, seed=1)
    wrong = {"transposition": w.conj(), "both": w}[missing]
    assert only(lambda v: w.mH @ v, lambda v: wrong @ v, [x], [x]).kind == "transposed"
    assert only(lambda v: w.mH @ v, lambda v: w.mT @ v, [x], [x]).kind == "conjugated"


@pytest.mark.parametrize("size", [(2, 2), (2, 3), (3, 2, 2)])
def test_a_gradient_with_its_last_dims_swapped(size):
    x, c = real(*size), real(*size, seed=1)

    found = only(lambda v: v * c, lambda v: (v * c).mT.reshape(size), [torch.zeros(()).double()], [x])
    assert (found.kind, found.fields["what"]) == ("transposed", "gradient")


def test_a_cotangent_with_its_last_dims_swapped():
    a, b = real(2, 2), real(2, 3, seed=1)
    c = torch.cat([a, b], 1)[:, :2]
    found = only(lambda v: v @ c.mT, lambda v: v.mT @ c.mT, [a @ c], [a])
    assert (found.kind, found.fields["what"]) == ("transposed", "cotangent")


def test_a_product_with_a_factor_that_is_transposed():
    x, c = real(2, 2), real(2, 2, seed=1)
    found = only(lambda v: v * c, lambda v: v * c.mT, [x], [x])
    assert (found.kind, found.fields["what"]) == ("transposed", "gradient and cotangent")


def test_only_between_like_dtypes_is_there_a_transposed_jacobian():
    w, z = real(3, 3) + 0j, cplx(3)
    right, wrong = (lambda v: w.mT @ (v + 0j)), (lambda v: w @ (v + 0j))
    assert only(right, wrong, [z], [z]).kind == "transposed"
    assert only(right, wrong, [z.real], [z]).kind == "unlike"


def test_a_number_and_a_symmetric_matrix_cannot_be_transposed():
    x = real(1, 1)
    assert only(lambda v: v * 1.3, lambda v: v * 2.6, [x], [x]).fields["also"] == []
    w = real(3, 3)
    w, y = w + w.mT, real(3)
    assert only(lambda v: w @ v, lambda v: (w**2) @ v, [y], [y]).kind == "unlike"


# broadcast


def test_a_bias_that_takes_one_element_of_the_cotangent():
    y, bias = real(4, 3), real(3)
    found = only(lambda v: v.sum(0), lambda v: v[0], [y], [bias])
    assert (found.kind, found.fields["dims"], found.fields["positions"]) == ("broadcast", [0], [0])
    assert "position 0 of dim 0 of the output" in found.text


def test_a_scalar_that_takes_one_element_of_the_cotangent():
    y, s, c = real(2, 3), real(1, 1), real(2, 3, seed=1)
    found = only(lambda v: (v * c).sum().view(1, 1), lambda v: (v * c)[1:, 2:], [y], [s])
    assert (found.kind, found.fields["dims"], found.fields["positions"]) == ("broadcast", [0, 1], [1, 2])


@pytest.mark.parametrize("make", [real, cplx])
def test_a_mean_over_broadcast_dims_where_a_sum_is_right(make):
    y, bias = make(4, 3), make(3)
    found = only(lambda v: v.sum(0), lambda v: v.mean(0), [y], [bias])
    assert (found.kind, found.fields["divided_by"], found.fields["dims"]) == ("broadcast", 4, [0])
    assert found.fields["also"] == ["factor"]


def test_where_nothing_is_broadcast_no_sum_is_missing():
    y, x = real(4, 3), real(4, 3)
    only_first = torch.zeros(4, 3).double()
    only_first[0] = 1
    found = only(lambda v: v * x, lambda v: v * x * only_first, [y], [x])
    assert (found.kind, found.fields["zero"]) == ("columns", True)
    assert only(lambda v: v * x, lambda v: v * x / 4, [y], [x]).kind == "factor"


def test_a_leaf_that_is_not_broadcast_against_the_output_has_no_sum_to_miss():
    n = dense(8, 3)
    a = n.clone()
    a[4:] = 0
    assert of_matrices(n, a, torch.zeros(2, 4), torch.zeros(1, 3)).kind == "rows"


def test_two_positions_of_a_broadcast_dim_are_not_one():
    y, bias = real(4, 3), real(3)
    found = only(lambda v: v.sum(0), lambda v: v[:2].sum(0), [y], [bias])
    assert found.kind != "broadcast"


# zero


def test_a_graph_that_is_cut():
    x, y = real(3), real(3, seed=1)
    found = only(lambda v: (v * y, v * x), lambda v: (v * y, torch.zeros(3).double()), [x], [x, y])
    assert (found.kind, found.leaf, found.fields["blocks"]) == ("zero", 1, [[0, 1]])


@pytest.mark.parametrize("numbers", [DOUBLE, SINGLE])
def test_a_small_gradient_is_not_zero(numbers):
    n = torch.full((2, 2), 10 * numbers.atol).double()
    assert of_matrices(n, 0.3 * numbers.atol + 0 * n, numbers=numbers).kind == "factor"


def cube(x, lost):
    """Return the backward formulas of g(x, v) = 3 x^2 v, right and, where `lost`, with x saved without a graph."""
    return lambda w: ((0 if lost else 6) * x * w * x, 3 * x**2 * w)


@pytest.mark.parametrize("order", ["rev_over_rev", "fwd_over_rev"])
def test_a_backward_pass_from_data_without_a_graph(order):
    x, v = real(3), real(3, seed=1)
    found = only(cube(x, lost=False), cube(x, lost=True), [x], [x, v], check=order)
    assert (found.kind, found.leaf) == ("second_order_lost", 0)
    assert found.text.startswith("gradient of input 0 with respect to input 0: the second derivative is zero")
    assert ("saved without a graph" in found.text) is (order == "rev_over_rev")
    assert ("no tangent" in found.text) is (order == "fwd_over_rev")


def test_the_same_zero_of_first_order_or_by_a_cotangent_is_a_cut():
    x, v = real(3), real(3, seed=1)
    assert only(cube(x, lost=False), cube(x, lost=True), [x], [x, v]).kind == "zero"
    found = only(lambda w: (w * v, w * x), lambda w: (w * v, 0 * w), [x], [x, v], check="rev_over_rev")
    assert (found.kind, found.leaf) == ("zero", 1)
    assert "with respect to cotangent of output 0" in found.text


def test_over_forward_mode_half_of_the_leaves_are_inputs():
    x, y, t = real(2), real(2, seed=1), real(2, seed=2)
    out, leaves = [real(2)], [x, y, t, t]
    right = lambda w: (w * y, w * x, w * x * y, w)  # noqa: E731
    lost = lambda w: (w * y, 0 * w, w * x * y, w)  # noqa: E731
    assert only(right, lost, out, leaves, check="rev_over_fwd").kind == "second_order_lost"


def test_a_second_derivative_that_is_lost_is_one_finding_for_all_blocks():
    x, y, v = real(2), real(2, seed=1), real(2, seed=2)

    def product(a, b):  # of g = (y v, x v), pulled back
        keep = 1

        def backward(w0, w1, keep=keep):
            return (keep * w1 * v, keep * w0 * v, w0 * y + w1 * x)

        return backward

    right = product(x, y)
    found = only(right, lambda a, b: right(a, b, 0), [x, y], [x, y, v], check="rev_over_rev")
    assert (found.kind, found.fields["blocks"]) == ("second_order_lost", [[0, 1], [1, 0]])


# rows, columns, entries


def dense(rows, columns, seed=0):
    return torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_some_elements_of_the_output():
    n = dense(6, 4)
    a = n.clone()
    a[[1, 5]] += dense(2, 4, seed=1)
    found = of_matrices(n, a, torch.zeros(2, 3))
    assert (found.kind, found.fields["count"]) == ("rows", 2)
    assert [place["output_index"] for place in found.fields["rows"]] == [(0, 1), (1, 2)]
    assert "only 2 of 6 elements of the output are wrong: [0, 1], [1, 2]" in found.text


def test_some_zeros_among_the_wrong_are_not_all_zero():
    n = dense(6, 4)
    a = n.clone()
    a[1], a[5] = 0, 1
    assert (of_matrices(n, a).kind, of_matrices(n, a).fields["zero"]) == ("rows", False)


def test_imaginary_parts_of_the_output():
    n = dense(4, 3)
    a = n.clone()
    a[[1, 3]] = 0
    found = of_matrices(n, a, torch.zeros(2, dtype=torch.complex128))
    assert (found.kind, found.fields["zero"]) == ("rows", True)
    assert "2 of 4 elements of the output are wrong, and the gradient is zero there: [0].imag, [1].imag" in found.text


def test_some_elements_of_a_complex_input():
    z = cplx(3)
    wrong = torch.tensor([1, 1, 1.5]).double()
    found = only(lambda v: v * z, lambda v: v * z * wrong, [torch.zeros(()).double()], [z])
    assert (found.kind, found.fields["columns"]) == ("columns", [{"leaf_index": (2,)}])


def test_many_places_are_counted():
    n = dense(20, 20)
    a = n.clone()
    a[:, 3:15] += 1
    found = of_matrices(n, a)
    assert (found.kind, found.fields["count"], len(found.fields["columns"])) == ("columns", 12, 8)
    assert found.text.endswith("[10] and 4 more")


def test_rows_that_agree_because_they_are_zero_are_no_evidence():
    n, a = torch.zeros(4, 3).double(), torch.zeros(4, 3).double()
    n[:2], a[:2] = dense(2, 3), dense(2, 3, seed=1)
    assert of_matrices(n, a).kind == "unlike"
    assert of_matrices(n.mT, a.mT).kind == "unlike"


def test_few_entries():
    n = dense(5, 4)
    a = n.clone()
    a[1, 2] += 1
    a[4, 0] -= 1
    found = of_matrices(n, a)
    assert (found.kind, found.fields["count"]) == ("entries", 2)
    assert [(place["output_index"], place["leaf_index"]) for place in found.fields["entries"]] == [
        ((1,), (2,)), ((4,), (0,)),
    ]  # fmt: skip
    assert "d output 0[1] / d input 0[2] = " in found.text


def test_entries_that_fill_a_row_are_a_row_and_many_entries_are_not_few():
    n = dense(5, 4)
    a = n.clone()
    a[2] += torch.arange(1, 5)
    assert of_matrices(n, a).kind == "rows"
    a = n + torch.eye(5).double()[:, :4] + dense(5, 4).abs() * (torch.arange(20).view(5, 4) % 2)
    assert of_matrices(n, a).kind == "unlike"


# unlike


def test_the_share_and_the_greatest_relative_error_are_told():
    found = of_matrices([[1.0, 2.0], [4.0, 5.0]], [[2.0, 3.0], [0.0, 2.0]])
    assert (found.kind, found.fields["wrong"], found.fields["of"]) == ("unlike", 4, 4)
    assert found.fields["relative_error"] == 1.0
    assert "4 of 4 entries are wrong" in found.text


def test_a_gradient_where_there_is_none_is_unlike_anything():
    found = of_matrices([[0.0, 0.0], [0.0, 0.0]], [[2.0, 3.0], [1.0, 2.0]])
    assert (found.kind, found.fields["relative_error"]) == ("unlike", None)
    assert "4 of 4 entries are wrong, all of which should be zero" in found.text
    assert of_matrices([[0.0]], [[2.0]]).kind == "unlike"


# blocks


def test_only_the_block_that_disagrees_is_reported():
    x, z = real(2), cplx(3)
    right = lambda v, w: (v * x, w * z)  # noqa: E731
    wrong = lambda v, w: (v * x, w * z.conj())  # noqa: E731
    found = only(right, wrong, [x, z.abs()], [x, z])
    assert (found.kind, found.output, found.leaf) == ("conjugated", 1, 1)


def test_blocks_that_look_alike_share_a_finding_and_others_do_not():
    x, y, z = real(3), real(3, seed=1), real(3, seed=2)
    right = lambda v: (v * y, v * x, v * z)  # noqa: E731
    found = findings(right, lambda v: (-v * y, -v * x, 2 * v * z), [x], [x, y, z])
    assert [(one.kind, one.fields["blocks"]) for one in found] == [("sign", [[0, 0], [0, 1]]), ("factor", [[0, 2]])]
    assert len(findings(right, lambda v: (2 * v * y, 3 * v * x, v * z), [x], [x, y, z])) == 2
    assert found[0].text.startswith("output 0 with respect to input 0, output 0 with respect to input 1: ")


def test_empty_outputs_and_leaves_have_no_findings():
    empty, x = torch.zeros(0).double(), real(2)
    assert diagnose(pair(torch.zeros(2, 2), torch.zeros(2, 2), [empty, x], [x, empty], DOUBLE), DOUBLE) == []


# any matrices

shapes = st.sampled_from([(2,), (3,), (2, 2), (2, 3), (4, 1)])
parts = st.sampled_from([torch.float64, torch.complex128])


def random_block(shape, dtype, others, other_dtype, seed):
    output, leaf = torch.zeros(shape, dtype=dtype), torch.zeros(others, dtype=other_dtype)
    size = (len(to_real(output)), len(to_real(leaf)))
    generator = torch.Generator().manual_seed(seed)
    make = lambda: torch.randn(size, dtype=torch.float64, generator=generator)  # noqa: E731
    return output, leaf, make


@given(shapes, parts, shapes, parts, st.integers(0, 10**6), st.sampled_from([DOUBLE, SINGLE]))
@settings(deadline=None)
def test_what_agrees_within_tolerance_has_no_findings(shape, dtype, others, other_dtype, seed, numbers):
    output, leaf, make = random_block(shape, dtype, others, other_dtype, seed)
    n, off = make(), make().clamp(-1, 1)
    a = n + 0.7 * off * (numbers.atol + numbers.rtol * n.abs())
    assert diagnose(pair(n, a, [output], [leaf], numbers), numbers) == []
    assert pair(n, a, [output], [leaf], numbers).worst() == []


@given(shapes, parts, shapes, parts, st.integers(0, 10**6))
@settings(deadline=None)
def test_unrelated_matrices_are_unlike(shape, dtype, others, other_dtype, seed):
    output, leaf, make = random_block(shape, dtype, others, other_dtype, seed)
    (found,) = diagnose(pair(make(), make(), [output], [leaf], DOUBLE), DOUBLE)
    assert found.kind == "unlike"


MADE = {
    "sign": lambda n: -n,
    "factor": lambda n: 2.345 * n,
    "zero": torch.zeros_like,
    "transposed": lambda n: n.mT,
}


@given(st.sampled_from(sorted(MADE)), st.integers(3, 5), st.integers(0, 10**6))  # 2 x 2 may be symmetric by chance
@settings(deadline=None)
def test_a_mistake_is_recognised_through_noise(kind, size, seed):
    output, leaf, make = random_block((size,), torch.float64, (size,), torch.float64, seed)
    n = make()
    found = diagnose(pair(n + 1e-6 * make(), MADE[kind](n), [output], [leaf], DOUBLE), DOUBLE)
    assert [one.kind for one in found] == [kind]


# the worst entries


def test_the_worst_entries_over_all_blocks_come_first():
    n, a = torch.zeros(3, 4).double(), torch.zeros(3, 4).double()
    a[0, 1], a[2, 3], a[1, 0] = 1.0, -5.0, 2.0
    outputs, leaves = [torch.zeros(1), torch.zeros(2, 1)], [torch.zeros(()), torch.zeros(1, 3)]
    worst = pair(n, a, outputs, leaves).worst(2)
    assert [(entry.output, entry.leaf, entry.output_index, entry.leaf_index, entry.analytical) for entry in worst] == [
        (1, 1, (1, 0), (0, 2), -5.0),
        (1, 0, (0, 0), (), 2.0),
    ]
    assert len(pair(n, a, outputs, leaves).worst()) == 3


def test_of_a_complex_element_the_worse_part_is_listed():
    n, a = torch.zeros(2, 6).double(), torch.zeros(2, 6).double()
    n[1, 5], a[1, 5], a[1, 4] = 0.5, 1.0, 0.1
    worst = pair(n, a, [torch.zeros(1, dtype=torch.complex128)], [torch.zeros(3, dtype=torch.cfloat)]).worst()
    assert [entry.describe() for entry in worst] == [
        "d output 0[0].imag / d input 0[2].imag = 0.5 numerically, 1 analytically"
    ]


def test_the_modulus_of_a_complex_element_sets_its_tolerance():
    leaf, n = torch.zeros(1, dtype=torch.complex128), torch.tensor([[1000.0, 0.0]]).double()
    assert diagnose(pair(n, n + torch.tensor([[0.0, 0.5]]), [torch.zeros(1)], [leaf], DOUBLE), DOUBLE) == []
    assert diagnose(pair(n, n + torch.tensor([[0.0, 0.5]]), [torch.zeros(1)], [torch.zeros(2)], DOUBLE), DOUBLE) != []
    assert diagnose(pair(n, n + torch.tensor([[0.8, 0.8]]), [torch.zeros(1)], [leaf], DOUBLE), DOUBLE) != []


def test_nan_is_the_worst():
    n, a = [[1.0, 1.0]], [[9.0, float("nan")]]
    worst = pair(torch.tensor(n), torch.tensor(a), [torch.zeros(1)], [torch.zeros(2)]).worst()
    assert [entry.leaf_index for entry in worst] == [(1,), (0,)]
    assert worst[0].describe() == "d output 0[0] / d input 0[1] = 1 numerically, nan analytically"


# exchanged


def test_gradients_of_two_inputs_in_the_wrong_order():
    leaves = [torch.zeros(3, dtype=torch.float64) for _ in range(2)]
    first, second = dense(3, 3), dense(3, 3, seed=1)
    n, a = torch.cat([first, second], 1), torch.cat([second, first], 1)
    found = diagnose(pair(n, a, leaves[:1], leaves, DOUBLE), DOUBLE)
    assert [(one.kind, one.text) for one in found] == [
        ("exchanged", "output 0 with respect to input 0: the gradient is that of input 1"),
        ("exchanged", "output 0 with respect to input 1: the gradient is that of input 0"),
    ]


def test_cotangents_of_two_outputs_in_the_wrong_order():
    outputs = [torch.zeros(3, dtype=torch.float64) for _ in range(2)]
    first, second = dense(3, 4), dense(3, 4, seed=1)
    leaf = torch.zeros(4, dtype=torch.float64)
    found = diagnose(pair(torch.cat([first, second]), torch.cat([second, first]), outputs, [leaf], DOUBLE), DOUBLE)
    assert [one.text for one in found] == [
        "output 0 with respect to input 0: the gradient is that of output 1",
        "output 1 with respect to input 0: the gradient is that of output 0",
    ]


def test_a_zero_gradient_is_not_that_of_an_input_without_influence():
    leaves = [torch.zeros(3, dtype=torch.float64) for _ in range(2)]
    n = torch.cat([dense(3, 3), torch.zeros(3, 3, dtype=torch.float64)], 1)
    (found,) = diagnose(pair(n, 0 * n, leaves[:1], leaves, DOUBLE), DOUBLE)
    assert (found.kind, found.fields["also"]) == ("zero", [])


# words


def test_one_element_is_wrong_not_are():
    n = dense(6, 4)
    a = n.clone()
    a[5] += dense(1, 4, seed=1)[0]
    assert "only 1 of 6 elements of the output is wrong: [1, 2]" in of_matrices(n, a, torch.zeros(2, 3)).text


@pytest.mark.parametrize(
    ("wrong", "in_reverse", "in_forward"),
    [
        (lambda n: -n, "the gradient has the wrong sign", "the tangent has the wrong sign"),
        (lambda n: 2 * n, "the gradient is 2 times", "the tangent is 2 times"),
        (lambda n: n.mT, "the gradient is J v where it should be J^T v", "the tangent is J^T v where it should be J v"),
    ],
)
def test_forward_mode_gives_tangents_not_gradients(wrong, in_reverse, in_forward):
    n = dense(4, 4)
    assert in_reverse in of_matrices(n, wrong(n)).text
    assert in_forward in of_matrices(n, wrong(n), seen=Seen("forward")).text
