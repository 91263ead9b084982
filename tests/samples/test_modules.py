"""A module as a function: its state is among the keyword arguments, with the values that a spec asks for."""

from __future__ import annotations

import inspect
import math
from pathlib import Path

import pytest
import torch
from operators import modules
from torch import nn
from torch.utils.checkpoint import checkpoint

from opcheck.planning.loading import load
from opcheck.samples.captured import module_call
from opcheck.samples.modules import VARIED, ModuleRecipe, initial, initialize, uninitialized
from opcheck.samples.realize import construct, parameter_elements, realize, realize_module
from opcheck.samples.resolve import resolve_module
from opcheck.spec.document import Document
from opcheck.spec.library import Sample
from opcheck.spec.operator import Construction, Init
from opcheck.spec.values import Tensor


def values(module, init=None, imaginary=None):
    torch.manual_seed(0)
    return {name: value for name, value, _ in initial(module, imaginary, init or {})}


class Checkpointed(nn.Module):
    """Its parameter has two names."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3, bias=False)
        self.other = self.linear.weight

    def forward(self, x):
        return checkpoint(lambda x: self.linear(x).sin() * self.other.sum(), x, use_reentrant=False)


class TestCalls:
    def test_state_is_taken_from_the_arguments(self):
        call = module_call(nn.Linear(3, 2))
        x, weight, bias = torch.randn(4, 3), torch.randn(2, 3), torch.randn(2)
        assert torch.equal(call(x, weight=weight, bias=bias), x @ weight.T + bias)
        assert torch.equal(call(input=x, bias=bias), x @ call.module.weight.T + bias)

    def test_gradients_reach_the_arguments_and_not_the_module(self):
        call = module_call(modules.Net())
        state = {name: tensor.detach().clone().requires_grad_() for name, tensor in call.state.items()}
        call(torch.randn(2, 3), **state).sum().backward()
        assert all(tensor.grad is not None for tensor in state.values())
        assert all(parameter.grad is None for parameter in call.module.parameters())

    def test_a_backward_pass_that_calls_forward_again_has_the_tensors_of_its_own_call(self):
        module = Checkpointed()
        call = module_call(module)
        x, weights = torch.rand(2, 3), [torch.rand(3, 3, requires_grad=True) for _ in range(2)]
        outputs = [call(x, other=weight) for weight in weights]
        for output, weight in reversed([*zip(outputs, weights, strict=True)]):
            (got,) = torch.autograd.grad(output.sum(), weight)
            (expected,) = torch.autograd.grad((x @ weight.mT).sin().mul(weight.sum()).sum(), weight)
            torch.testing.assert_close(got, expected)
        assert module.linear.weight is module.other is weights[0]
        assert call.module is module
        assert isinstance(module.linear.weight, nn.Parameter)
        assert module.linear.weight is module.other

    def test_each_call_starts_from_the_same_running_statistics(self):
        call = module_call(nn.BatchNorm1d(2))
        mean = torch.zeros(2)
        call(torch.randn(4, 2), running_mean=mean)
        assert torch.equal(mean, torch.zeros(2))
        assert torch.equal(call.module.running_mean, torch.zeros(2))
        assert int(call.module.num_batches_tracked) == 0

    def test_where_forward_takes_the_name_of_a_parameter_it_has_a_longer_one(self):
        call = module_call(modules.TakesAWeight())
        assert call.keys({"weight": 1}) == {"weight": "module.weight"}
        assert call.keys({}) == {"weight": "weight"}
        x, own = torch.ones(2, 3), torch.full((3,), 2.0)
        assert torch.equal(call(x, weight=torch.full((3,), 3.0), **{"module.weight": own}), x * 18)

    def test_its_signature_is_that_of_forward(self):
        assert list(inspect.signature(module_call(nn.Linear(3, 2))).parameters) == ["input"]


class TestConstruction:
    def test_the_mode_and_the_dtype(self):
        for train in (True, False):
            recipe = ModuleRecipe(nn.BatchNorm1d, Construction(args=[2], train=train))
            module = construct(recipe, "float64", ("torch",))
            assert module.training is train
            assert module.weight.dtype is module.running_mean.dtype is torch.float64
            assert module.num_batches_tracked.dtype is torch.int64

    def test_integral_dtypes_leave_it_as_it_is(self):
        recipe = ModuleRecipe(nn.Embedding, Construction(args=[3, 2]))
        assert construct(recipe, "int64", ("torch",)).weight.dtype is torch.float32

    def test_lazy_modules_are_called_once_in_the_dtype_that_they_are_constructed_in(self):
        asked = []

        class Asks(nn.LazyLinear):
            def forward(self, x):
                asked.append(x.dtype)
                return super().forward(x)

        recipe = ModuleRecipe(Asks, Construction(args=[3]))
        module = construct(recipe, "complex128", ("torch",), sample(2, 5))
        assert asked == [torch.float32]
        assert (module.weight.shape, module.weight.dtype) == ((3, 5), torch.complex128)
        assert type(module) is nn.Linear

    def test_lazy_modules_stay_lazy_without_a_call(self):
        module = construct(ModuleRecipe(nn.LazyLinear, Construction(args=[3])), "float64", ("torch",))
        assert module_call(module).is_lazy
        assert not module_call(nn.Linear(2, 3)).is_lazy


class ReadsWhatItHasMade(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.norm = float(self.weight.norm())


@pytest.mark.parametrize(
    ("make", "args", "elements"),
    [
        (nn.Linear, [3, 4], 16),
        (nn.Conv3d, [1 << 20, 1 << 20, 100], 10**6 * 2**40 + 2**20),  # more than any machine has memory for
        (nn.LazyLinear, [4], math.inf),
        (ReadsWhatItHasMade, [3, 4], 0),
    ],
)
def test_the_elements_of_parameters_are_counted_without_memory(make, args, elements):
    assert parameter_elements(ModuleRecipe(make, Construction(args=args)), "float64", ()) == elements


@pytest.mark.skipif(torch.__version__ < "2.13", reason="not all of them are there")
def test_the_library_has_modules_of_torch_with_parameters():
    library = load([Path(__file__).resolve().parents[2] / "specs" / "modules"])
    found = set()
    for operator in library:
        recipe = ModuleRecipe(resolve_module(operator.spec.name, ("torch",)), operator.spec.module)
        if list(realize_module(recipe, "float32", "cpu", "", ("torch",)).module.parameters()):
            found.add(operator.spec.name)
    assert len(found) == 49


class TestValues:
    def test_are_those_of_the_constructor(self):
        module = nn.Linear(3, 2)
        found = values(module)
        assert torch.equal(found["weight"], module.weight)
        assert torch.equal(found["bias"], module.bias)

    def test_parameters_that_are_all_equal_are_varied_and_buffers_are_not(self):
        found = values(nn.BatchNorm1d(5))
        for name, center in (("weight", 1), ("bias", 0)):
            assert found[name].unique().numel() == 5
            assert float((found[name] - center).abs().max()) <= VARIED
        assert torch.equal(found["running_var"], torch.ones(5))

    def test_a_single_number_is_varied_and_keeps_its_shape(self):
        found = values(nn.PReLU())["weight"]
        assert found.shape == (1,)
        assert 0 < float((found - 0.25).abs()) <= VARIED

    @pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
    def test_so_is_a_single_number_of_rank_0(self, dtype):
        module = torch.nn.Module()
        module.scale = torch.nn.Parameter(torch.ones((), dtype=dtype))
        ((_, found, _),) = initial(module, None, {})
        assert found.shape == ()
        assert 0 < float((found - 1).abs()) <= VARIED * 2**0.5

    def test_complex_ones_have_the_values_of_two_modules(self):
        def made(make, *args):
            return construct(ModuleRecipe(make, Construction(args=[*args])), "complex128", ("torch",))

        first, second = made(nn.Linear, 3, 2), made(nn.Linear, 3, 2)
        found = values(first, imaginary=second)["weight"]
        assert torch.equal(found.real, first.weight.real)
        assert torch.equal(found.imag, second.weight.real)
        norm = values(made(nn.LayerNorm, 4), imaginary=made(nn.LayerNorm, 4))["bias"]
        assert norm.real.unique().numel() == norm.imag.unique().numel() == 4

    def test_normal_uniform_and_explicit_ones(self):
        module = nn.Linear(200, 50)
        normal = values(module, {"weight": Init(mean=3.0, std=0.5)})["weight"]
        assert float(normal.mean()) == pytest.approx(3, abs=0.02)
        assert float(normal.std()) == pytest.approx(0.5, abs=0.02)
        uniform = values(module, {"weight": Init(low=1.0, high=1.5)})["weight"]
        assert 1 <= float(uniform.min()) < float(uniform.max()) < 1.5
        assert torch.equal(values(module, {"bias": Init(values=0.5)})["bias"], torch.full((50,), 0.5))

    def test_names_with_wildcards_are_for_parameters_and_the_first_one_counts(self):
        init = {"bias": Init(values=2), "*": Init(values=3), "running_var": Init(values=4)}
        found = values(nn.BatchNorm1d(1), init)
        assert [float(found[name]) for name in ("weight", "bias", "running_mean", "running_var")] == [3, 2, 0, 4]

    def test_names_that_do_not_exist_are_refused(self):
        with pytest.raises(ValueError, match=r'called "wight"; expected one of weight, bias; did you mean "weight"'):
            values(nn.Linear(2, 2), {"wight": Init(std=1)})
        with pytest.raises(ValueError, match=r'called "\*"; expected a module with parameters'):
            values(nn.ReLU(), {"*": Init(std=1)})

    def test_values_that_do_not_fit_are_refused(self):
        with pytest.raises(ValueError, match=r"values of shape \[3\] do not fit the shape \[2\]"):
            values(nn.Linear(2, 2), {"bias": Init(values=(1, 2, 3))})

    def test_what_is_differentiated(self):
        module = nn.BatchNorm1d(2)
        module.bias.requires_grad_(False)

        def chosen(init):
            return {name for name, _, grad in initial(module, None, init) if grad}

        assert chosen({}) == {"weight"}
        assert chosen({"*": Init(grad=True), "running_mean": Init(grad=True)}) == {"weight", "bias", "running_mean"}
        assert chosen({"weight": Init(grad=False)}) == set()


def sample(*shape):
    return Sample("0", (Tensor(shape=shape),), {}, Document("", "", {}), ())


class TestTheFirstCall:
    def test_gives_shapes_and_leaves_statistics_as_constructed(self):
        module = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d(), nn.BatchNorm1d(3))
        assert uninitialized(module).keys() == {
            "0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var"
        }  # fmt: skip
        initialize(module, [torch.randn(4, 2)], {})
        assert uninitialized(module) == {}
        assert module[0].weight.shape == (3, 2)
        for norm in module[1:]:
            assert torch.equal(norm.running_mean, torch.zeros(3))
            assert torch.equal(norm.running_var, torch.ones(3))
            assert int(norm.num_batches_tracked) == 0

    def test_buffers_that_forward_replaces_are_put_back(self):
        module = modules.LazyLayer()
        initialize(module, [torch.ones(4, 3)], {})
        assert int(module.calls) == 0
        assert torch.equal(module.total, torch.zeros(3))
        assert not module._forward_pre_hooks

    def test_parameters_have_the_values_that_the_module_gives_them(self):
        torch.manual_seed(0)
        expected = nn.LazyLinear(3)
        expected(torch.ones(4, 2))
        torch.manual_seed(0)
        module = nn.LazyLinear(3)
        initialize(module, [torch.ones(4, 2)], {})
        assert torch.equal(module.weight, expected.weight)
        assert module.weight.requires_grad
        assert module.weight.grad is None

    def test_an_exception_after_it_does_not_matter(self):
        module = nn.LazyLinear(3)
        initialize(module, [torch.ones(4, 2, dtype=torch.int64)], {})
        assert module.weight.shape == (3, 2)

    def test_an_exception_before_it_is_told(self):
        with pytest.raises(ValueError, match=r"^0\.weight is lazy, and has no shape after a call .*: TypeError: "):
            initialize(nn.Sequential(nn.LazyLinear(3)), [], {})

    def test_what_forward_does_not_use_is_told(self):
        module = modules.Layer()
        module.spare = nn.LazyLinear(2)
        with pytest.raises(ValueError, match=r"spare.weight is lazy, .*: forward does not use it"):
            initialize(module, [torch.ones(1, 3)], {})


class TestRealized:
    recipe = ModuleRecipe(nn.LazyLinear, Construction(args=[2]))

    @pytest.mark.parametrize("dtype", ["float64", "float16", "complex128"])
    @pytest.mark.parametrize("columns", [3, 5])
    def test_each_sample_has_parameters_of_its_own_shapes(self, dtype, columns):
        inputs = realize(sample(4, columns), dtype, "cpu", "seed", module=self.recipe)
        assert [leaf.shape for leaf in inputs.leaves] == [(4, columns), (2, columns), (2,)]
        assert {leaf.dtype for leaf in inputs.leaves} == {getattr(torch, dtype)}
        call = realize_module(self.recipe, dtype, "cpu", "seed", ("torch",), sample(4, columns))
        args, kwargs = inputs.fill()
        assert call(*args, **kwargs).shape == (4, 2)
        assert not call.is_lazy

    def test_a_seed_tells_the_values(self):
        def weight(seed):
            return realize(sample(4, 3), "float64", "cpu", seed, module=self.recipe).leaves[1]

        first, again, other = map(weight, ("a", "a", "b"))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    def test_without_a_sample_it_stays_lazy(self):
        assert realize_module(self.recipe, "float64", "cpu", "seed", ("torch",)).is_lazy
