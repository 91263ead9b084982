"""Lazy modules get shapes from a first call, which leaves no other trace."""

from __future__ import annotations

import pytest
import torch
from operators import modules
from torch import nn

from opcheck.samples.modules import ModuleRecipe, initialize, uninitialized
from opcheck.samples.realize import realize, realize_module
from opcheck.spec.document import Document
from opcheck.spec.library import Sample
from opcheck.spec.modules import Construction
from opcheck.spec.values import Tensor


def sample(*shape):
    return Sample("0", (Tensor(shape=shape),), {}, None, None, Document("", "", {}), ())


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
