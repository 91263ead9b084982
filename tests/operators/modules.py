"""Modules with one mistake each, and right twins: in gradients of parameters, in buffers, in state that is hidden.

`FAULTS` has, for each check, the modules that must fail under it; `TWINS` those that pass every check. All are
constructed without arguments, and take a tensor of shape (N, 3).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import Module, Parameter, init


class Linear(torch.autograd.Function):
    """x W^T, without a fault. Its subclasses have one each."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.mT

    @staticmethod
    def backward(ctx, v):
        x, weight = ctx.saved_tensors
        return v @ weight.conj(), v.mT @ x.conj()


class DoubledForTheWeight(Linear):
    @staticmethod
    def backward(ctx, v):
        x, weight = ctx.saved_tensors
        return v @ weight.conj(), 2 * v.mT @ x.conj()


class NotConjugatedForTheInput(Linear):
    """Wrong for complex weights only, as parameters are complex only if somebody converts the module."""

    @staticmethod
    def backward(ctx, v):
        x, weight = ctx.saved_tensors
        return v @ weight, v.mT @ x.conj()


class Scaled(torch.autograd.Function):
    """x w, without a fault."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, v):
        x, weight = ctx.saved_tensors
        return v * weight.conj(), (v * x.conj()).sum(0)


class WithoutTheWeight(Scaled):
    """Right as long as the weight is 1."""

    @staticmethod
    def backward(ctx, v):
        x, _ = ctx.saved_tensors
        return v, (v * x.conj()).sum(0)


class Layer(Module):
    """A linear map by `Linear`, or by a faulty one."""

    apply_to = Linear

    def __init__(self, rows: int = 2):
        super().__init__()
        self.weight = Parameter(torch.empty(rows, 3))
        self.bias = Parameter(torch.zeros(rows))
        init.kaiming_uniform_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.apply_to.apply(x, self.weight) + self.bias


class WrongWeight(Layer):
    apply_to = DoubledForTheWeight


class WrongForComplexWeights(Layer):
    apply_to = NotConjugatedForTheInput


class LazyLayer(torch.nn.modules.lazy.LazyModuleMixin, Module):
    """A linear map that gets its number of columns from the first input, and counts calls in training mode."""

    apply_to = Linear

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.UninitializedParameter()
        self.total = torch.nn.UninitializedBuffer()
        self.register_buffer("calls", torch.tensor(0))

    def initialize_parameters(self, x: Tensor) -> None:
        if self.has_uninitialized_params():
            with torch.no_grad():
                self.weight.materialize((2, x.shape[-1]))
                init.kaiming_uniform_(self.weight)
                self.total.materialize((x.shape[-1],))
                self.total.zero_()

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
            with torch.no_grad():
                self.total = self.total + x.sum(0)
        return self.apply_to.apply(x, self.weight)


class WrongLazyLayer(LazyLayer):
    apply_to = DoubledForTheWeight


class Net(Module):
    """Modules in a list: their parameters are `layers.0.weight` and so on."""

    layer = Layer

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(3), self.layer(2)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x) ** 2
        return x


class WrongInside(Net):
    layer = WrongWeight


class Scale(Module):
    """A weight that is constructed as ones."""

    apply_to = Scaled

    def __init__(self):
        super().__init__()
        self.weight = Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.apply_to.apply(x, self.weight)


class WrongUnlessOne(Scale):
    apply_to = WithoutTheWeight


class TakesAWeight(Scale):
    """Forward has an argument with the name of the parameter."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return Scaled.apply(x, self.weight) * weight**2


class Centered(Module):
    """Subtracts a running mean, which forward changes in training mode only."""

    def __init__(self):
        super().__init__()
        self.shift = Parameter(torch.randn(3))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        y = x * x - self.mean + self.shift
        if self.training:
            self.update(x.detach())
        return y

    def update(self, x: Tensor) -> None:
        with torch.no_grad():
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)


class KeepsItsGraph(Centered):
    """Its running mean has the graph of all inputs so far."""

    def forward(self, x: Tensor) -> Tensor:
        y = x * x - self.mean.detach() + self.shift
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return y


class ReplacesInEvaluation(Centered):
    def forward(self, x: Tensor) -> Tensor:
        y = x * x - self.mean + self.shift
        self.update(x.detach())
        return y


class WritesInEvaluation(ReplacesInEvaluation):
    def update(self, x: Tensor) -> None:
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)


class CountsInBackward(Centered):
    """Its backward pass counts, in evaluation mode, too."""

    def forward(self, x: Tensor) -> Tensor:
        return Counting.apply(super().forward(x), self.mean)


class Counting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, count):
        ctx.count = count
        return x.clone()

    @staticmethod
    def backward(ctx, v):
        ctx.count.add_(1)
        return v, None


class Constant(Module):
    """A plain tensor as an attribute, which is no state to differentiate with respect to."""

    def __init__(self):
        super().__init__()
        self.weight = Parameter(torch.randn(3))
        self.factors = [torch.tensor(2.0)]

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight * self.factors[0]


class Unregistered(Constant):
    """The same, but it requires grad: a parameter that somebody has put into a list."""

    def __init__(self):
        super().__init__()
        self.factors = [Parameter(torch.tensor(2.0))]


class CreatedInForward(Constant):
    """A parameter that forward creates once it knows the size, though the module is none that torch knows as lazy."""

    def __init__(self):
        super().__init__()
        self.scale = None

    def forward(self, x: Tensor) -> Tensor:
        if self.scale is None:
            self.scale = Parameter(x.new_full(x.shape[-1:], 0.5))
        return super().forward(x) * self.scale


class BehindAFunction(Unregistered):
    """An autograd function that reads the tensor, so that the graph does not show it."""

    def forward(self, x: Tensor) -> Tensor:
        return Scaled.apply(x * self.weight, self.factors[0].detach().expand(3))


OUT_OF_THE_GRAPH = Parameter(torch.tensor(1.0))


class Elsewhere(Constant):
    """What requires grad is neither of the module nor of its forward: a function that forward calls has it."""

    def forward(self, x: Tensor) -> Tensor:
        return _times_a_global(x) * self.weight


def _times_a_global(x: Tensor) -> Tensor:
    return x * OUT_OF_THE_GRAPH


class Weighted(Module):
    """A factor in a buffer, which forward only reads."""

    factor: Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("factor", torch.full((3,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Warmed(Constant):
    """A factor that grows with each call in training mode."""

    decay: Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("decay", torch.full((3,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.grow()
        return x * self.weight * self.decay

    def grow(self) -> None:
        self.decay = 0.9 * self.decay + 0.1


class WarmedInPlace(Warmed):
    """The same, but it changes what the backward pass of the last call needs."""

    def grow(self) -> None:
        self.decay.mul_(0.9).add_(0.1)


class WarmedBehindAutograd(Warmed):
    """The same in a way that autograd does not notice."""

    def grow(self) -> None:
        self.decay.data.mul_(0.9).add_(0.1)


class Merged(Constant):
    """A weight that is computed from two parameters: anew in each call."""

    def __init__(self):
        super().__init__()
        self.scale = Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.merged()

    def merged(self) -> Tensor:
        return self.weight * self.scale


class KeptInEvaluation(Merged):
    """The same, but in evaluation mode it is computed once, whatever the parameters are by now."""

    kept: Tensor | None = None

    def merged(self) -> Tensor:
        if self.training:
            return super().merged()
        if self.kept is None:
            self.kept = super().merged()
        return self.kept


class KeptForInference(KeptInEvaluation):
    """The same, but only where no gradients are wanted."""

    def merged(self) -> Tensor:
        return Merged.merged(self) if torch.is_grad_enabled() else super().merged()


class KeptByAddress(Merged):
    """The same, but where no gradients are wanted it is computed once for each address, whatever is there by now."""

    kept: dict[int, Tensor]

    def __init__(self):
        super().__init__()
        self.kept = {}

    def merged(self) -> Tensor:
        merged = super().merged()
        return merged if torch.is_grad_enabled() else self.kept.setdefault(self.weight.data_ptr(), merged)


class KeptSinceTraining(Merged):
    """The same, but what it uses in evaluation mode, it has kept since its first call, whatever the mode was."""

    kept: Tensor | None = None

    def merged(self) -> Tensor:
        merged = super().merged()
        if self.kept is None:
            self.kept = merged.detach()
        return merged if self.training else self.kept


class SetByAHook(Constant):
    """A factor that a hook computes before each call: so do the older parametrizations of torch."""

    def __init__(self):
        super().__init__()
        self.factor = self.weight.exp()
        self.register_forward_pre_hook(lambda module, _: setattr(module, "factor", module.weight.exp()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Hooked(Merged):
    """A hook sees the gradient of the weight."""

    factor = 1.0

    def __init__(self):
        super().__init__()
        self.weight.register_hook(lambda gradient: self.factor * gradient)


class HalvedByItsHook(Hooked):
    """The same, with a hook that changes the gradient."""

    factor = -0.5


class CoarseWithoutGrad(Merged):
    """A fast path in evaluation mode where no gradients are wanted, with fewer digits."""

    def merged(self) -> Tensor:
        merged = super().merged()
        return merged if self.training or torch.is_grad_enabled() else merged + 1e-6


class Again(torch.autograd.Function):
    """Runs a module, and runs it again in backward, which saves memory."""

    @staticmethod
    def forward(ctx, module, x, *parameters):
        ctx.module = module
        ctx.save_for_backward(x)
        with torch.no_grad():
            return module.forward_once(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, v):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        inputs = x, *ctx.module.parameters()
        with torch.enable_grad():
            y = ctx.module.forward_once(x)
        wanted = iter(torch.autograd.grad(y, [one for one in inputs if one.requires_grad], v))
        gradient, *others = (next(wanted) if one.requires_grad else None for one in inputs)
        return None, ctx.module.times * gradient, *others


class Recomputed(Module):
    times = 1

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale = torch.nn.Linear(3, 2), Parameter(torch.ones(2))

    def forward_once(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x) * self.scale)

    def forward(self, x: Tensor) -> Tensor:
        return Again.apply(self, x, *self.parameters())


class RecomputedWrongly(Recomputed):
    times = 2


class Worn(Module):
    """Is right for a few calls."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x.sin() if self.calls <= 4 else x.sin().detach()


class KeepsItsFirstScale(Module):
    """Divides by the size of the numbers that it gets first, which it does not keep in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(torch.full((3,), 0.5))
        self.scale: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.scale is None:
            self.scale = self.scale_of(x)
        return x * self.weight / self.scale

    def scale_of(self, x: Tensor) -> Tensor:
        return x.detach().abs().max()


class KeepsItsTable(KeepsItsFirstScale):
    """A twin: what it keeps depends on the number of columns only."""

    def scale_of(self, x: Tensor) -> Tensor:
        return torch.arange(1, 1 + x.shape[-1]).to(x.dtype)


class KeepsItsMask(Module):
    """Keeps the mask of its first call of a length, whether the diagonal is masked or not."""

    masks: dict[object, Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.masks = {}

    def forward(self, x: Tensor, strict: bool = False) -> Tensor:
        mask = self.masks.setdefault(self.key(x, strict), torch.ones(x.shape[-2:]).triu(0 if strict else 1).bool())
        return x.masked_fill(mask, 0)

    def key(self, x: Tensor, strict: bool) -> object:
        return x.shape[-2:]


class KeepsEachMask(KeepsItsMask):
    """A twin."""

    def key(self, x: Tensor, strict: bool) -> object:
        return x.shape[-2:], strict


FAULTS: dict[str, tuple[type[Module], ...]] = {
    "backward": (WrongWeight, WrongInside, WrongUnlessOne, WrongLazyLayer, HalvedByItsHook),
    "buffers": (
        ReplacesInEvaluation,
        WritesInEvaluation,
        KeepsItsGraph,
        WarmedInPlace,
        WarmedBehindAutograd,
        CountsInBackward,
    ),
    "context": (
        KeptInEvaluation,
        KeptForInference,
        KeptByAddress,
        KeptSinceTraining,
        CoarseWithoutGrad,
        KeepsItsFirstScale,
    ),
    "needs_input_grad": (Unregistered, BehindAFunction, Elsewhere),
}
"""Modules with a mistake, by the check that must find it."""

TWINS = (Layer, LazyLayer, Net, Scale, Centered, Constant, Warmed, Merged, SetByAHook, Hooked, KeepsItsTable)
"""The same without the mistake."""


class BatchNorm(Module):
    """Batch normalization, which updates its running statistics as torch does."""

    unbiased = True

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(3))
        self.register_buffer("running_var", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return (x - self.running_mean) / (self.running_var + 1e-5).sqrt()
        mean, var = x.mean(0), x.var(0, unbiased=False)
        with torch.no_grad():
            self.running_mean.lerp_(mean, 0.1)
            self.running_var.lerp_(x.var(0, unbiased=self.unbiased), 0.1)
        return (x - mean) / (var + 1e-5).sqrt()


class BatchNormOfBiasedVariance(BatchNorm):
    """Its running variance is that of the batch, which is too small."""

    unbiased = False


class BatchNormThatReplacesItsVariance(BatchNorm):
    """It assigns a new tensor to the buffer, of twice the variance."""

    def forward(self, x: Tensor) -> Tensor:
        result = super().forward(x)
        if self.training:
            self.running_var = 2 * self.running_var
        return result
