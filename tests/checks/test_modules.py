"""Modules: wrong gradients of parameters, changed buffers and hidden state are found; right twins pass all checks."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from operators import modules

import opcheck

BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])
FAULTS = [(check, module) for check, found in modules.FAULTS.items() for module in found]
KEPT = (modules.KeepsItsFirstScale, modules.KeptSinceTraining)
OF_INSTANCES = [(check, module) for check, module in FAULTS if module not in KEPT]
"""What an instance has kept of its first call, it keeps: opcheck cannot construct another."""
CUSTOM = "supports = { forward_ad = false, vmap = false }"
"""What autograd functions without further rules do not have."""


def spec(module, keys="module = {}", args="{ shape = [2, 3], low = 0.5 }", supports=CUSTOM):
    return f"""
[[operator]]
name = "operators.modules.{module.__name__}"
{supports}
{keys}
samples = [{{ args = [{args}] }}]
"""


def plain(module):
    """Whether torch differentiates it without custom functions, in every way."""
    return (
        issubclass(module, (modules.Centered, modules.Constant, modules.KeepsItsFirstScale))
        and module is not modules.BehindAFunction
    )


@BOTH
@pytest.mark.parametrize(("check", "module"), FAULTS, ids=[f"{check}-{module.__name__}" for check, module in FAULTS])
def test_a_faulty_module_fails_under_its_check(outcomes, check, module, dtype):
    (outcome,) = outcomes(spec(module), checks=(check,), dtypes=(dtype,)).values()
    assert outcome.outcome == "failed", f"{outcome.outcome}: {outcome.reason}"
    assert outcome.reason.startswith(check)


@BOTH
@pytest.mark.parametrize("train", ["true", "false"])
@pytest.mark.parametrize("module", modules.TWINS, ids=lambda module: module.__name__)
def test_a_right_twin_passes_every_check(outcomes, module, train, dtype):
    supports = "" if plain(module) else CUSTOM
    found = outcomes(spec(module, f"module = {{ train = {train} }}", supports=supports), dtypes=(dtype,))
    wrong = {id: outcome.reason for id, outcome in found.items() if outcome.outcome not in ("passed", "skipped")}
    assert len(found) > 15
    assert "buffers" in {outcome.check for outcome in found.values()}
    # Running statistics that forward replaces do not mind a batch, and need no disclaimer.
    assert wrong == {}


@BOTH
def test_a_module_that_runs_again_in_backward_has_its_parameters_there(outcomes, dtype):
    keys = "supports = { forward_ad = false, vmap = false, second_order = false, batched_grad = false, saved = false }"
    found = outcomes(spec(modules.Recomputed, supports=keys), dtypes=(dtype,))
    wrong = {id: outcome.reason for id, outcome in found.items() if outcome.outcome not in ("passed", "skipped")}
    assert wrong == {}
    (outcome,) = outcomes(
        spec(modules.RecomputedWrongly, supports=keys), checks=("backward",), dtypes=(dtype,)
    ).values()
    assert outcome.outcome == "failed"
    assert "with respect to x: the gradient is 2 times what it should be" in outcome.message


@pytest.mark.parametrize("module", [modules.KeepsItsFirstScale, modules.KeepsItsTable])
def test_what_a_module_keeps_of_its_first_call_is_of_this_case_alone(outcomes, module):
    def of(*checks):
        found = outcomes(spec(module, supports=""), checks=checks, dtypes=("float64",))
        return next((one.outcome, one.reason) for one in found.values() if one.check == "context")

    assert of("context") == of("backward", "purity", "vmap", "context")


def test_a_module_that_keeps_state_has_the_same_verdict_alone_and_beside_other_checks(outcomes):
    def of(*checks):
        found = outcomes(spec(modules.Worn, supports=""), checks=checks, dtypes=("float64",))
        return {one.check: one.outcome for one in found.values()}

    checks = ("grad_dtypes", "detached", "nondeterminism")
    alone = {check: of(check)[check] for check in checks}
    assert alone["grad_dtypes"] == "passed"
    assert of(*checks) == of(*reversed(checks)) == alone


def test_a_complex_weight_shows_a_missing_conjugate(outcomes):
    def outcome(dtype):
        (found,) = outcomes(spec(modules.WrongForComplexWeights), checks=("backward",), dtypes=(dtype,)).values()
        return found

    assert outcome("float64").outcome == "passed"
    assert outcome("complex128").outcome == "failed"
    assert "with respect to x" in outcome("complex128").message


@pytest.mark.parametrize(
    ("module", "name"), [(modules.WrongWeight, "weight"), (modules.WrongInside, "layers.1.weight")]
)
def test_parameters_are_called_by_their_names(outcomes, module, name):
    (outcome,) = outcomes(spec(module), checks=("backward",), dtypes=("float64",)).values()
    assert f"output 0 with respect to {name}: the gradient is 2 times what it should be" in outcome.message
    assert f"{name}=float64[2, 3]" in outcome.message


def test_what_is_hidden_is_called_by_its_name(outcomes):
    def reason(module):
        (outcome,) = outcomes(spec(module), checks=("needs_input_grad",), dtypes=("float64",)).values()
        return outcome.reason

    told = "requires grad, but is no argument: its gradient is not tested"
    assert reason(modules.Unregistered) == f"needs_input_grad: the attribute factors[0] {told}"
    assert reason(modules.BehindAFunction) == f"needs_input_grad: the attribute factors[0] {told}"
    assert reason(modules.Elsewhere) == f"needs_input_grad: a tensor of shape [] {told}"


def test_who_creates_parameters_in_forward_is_told_of_lazy_modules(outcomes):
    (outcome,) = outcomes(spec(modules.CreatedInForward), checks=("needs_input_grad",), dtypes=("float64",)).values()
    assert "a tensor of shape [3] requires grad, but is no argument" in outcome.reason
    assert "parameters that forward creates have to be those of a lazy module" in outcome.message


def test_forward_may_take_an_argument_with_the_name_of_a_parameter(outcomes):
    text = """
[[operator]]
name     = "operators.modules.TakesAWeight"
module   = {}
supports = { forward_ad = false, vmap = false }
samples  = [{ args = [{ shape = [2, 3] }], kwargs = { weight = { shape = [3] } } }]
"""
    found = outcomes(text, dtypes=("float64",))
    assert {outcome.outcome for outcome in found.values()} == {"passed"}


def test_some_parameters_alone_may_have_a_derivative(outcomes):
    keys = 'module = {}\nsupports = { backward = ["weight"], forward_ad = false, vmap = false }'
    found = outcomes(spec(modules.Layer, keys, supports=""), checks=("backward", "unsupported"), dtypes=("float64",))
    backward, unsupported = sorted(found.values(), key=lambda outcome: outcome.check)
    assert backward.outcome == "passed"
    assert unsupported.outcome == "failed"  # the others have one, too
    assert "backward is disclaimed" in unsupported.reason


def test_a_module_has_no_ways_to_call_it_but_aliases(outcomes):
    def checks(keys):
        return {outcome.check for outcome in outcomes(spec(modules.Layer, keys), dtypes=("float64",)).values()}

    assert "variants" not in checks("module = {}")
    aliases = 'module = {}\naliases = ["operators.modules.WrongWeight"]'
    assert "variants" in checks(aliases)
    (outcome,) = outcomes(spec(modules.Layer, aliases), checks=("variants",), dtypes=("float64",)).values()
    assert outcome.outcome == "passed"  # the values are the same: it is the gradient that is wrong


def test_a_constructor_that_raises_is_an_error_with_a_place(outcomes):
    (outcome,) = outcomes(
        spec(modules.Net, "module = { args = [3] }"), checks=("backward",), dtypes=("float64",)
    ).values()
    assert outcome.outcome == "error"
    assert 'spec.toml:3:8: "operators.modules.Net" cannot be constructed: TypeError: ' in outcome.message


def test_init_names_a_parameter_that_exists(outcomes):
    keys = "module = { init = { wieght = { std = 1 } } }"
    (outcome,) = outcomes(spec(modules.Layer, keys), checks=("backward",), dtypes=("float64",)).values()
    assert outcome.outcome == "error"
    assert (
        'no parameter or buffer is called "wieght"; expected one of weight, bias; did you mean "weight"?'
        in outcome.message
    )


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("operators.right.square", "is not a class of modules, as the key module says, but function"),
        ("operators.modules.Linear", "is not a class of modules, as the key module says, but FunctionMeta"),
    ],
)
def test_what_is_no_class_of_modules_is_refused(outcomes, name, what):
    text = f'[[operator]]\nname = "{name}"\nmodule = {{}}\nsamples = [{{ args = [{{ shape = [2] }}] }}]'
    (outcome,) = outcomes(text, checks=("backward",), dtypes=("float64",)).values()
    assert outcome.outcome == "error"
    assert what in outcome.message


class TestInstances:
    """`opcheck.check(module, x)`: the parameters of the instance are leaves."""

    x = torch.linspace(0.5, 2, 6, dtype=torch.float64).reshape(2, 3)
    off: ClassVar[dict] = {"forward_ad": False, "vmap": False}

    def made(self, module):
        """Return a module in double precision; a lazy one has been called, as by a user."""
        found = module().double()
        found(self.x)
        return found

    @pytest.mark.parametrize(
        ("check", "module"), OF_INSTANCES, ids=[f"{check}-{m.__name__}" for check, m in OF_INSTANCES]
    )
    def test_a_faulty_one_fails(self, check, module):
        torch.manual_seed(0)
        made = self.made(module)
        if module is modules.WrongUnlessOne:  # an instance is tested as it is: somebody has trained it
            made.weight.data.mul_(0.5)
        report = opcheck.check(made, self.x, supports=self.off, checks=check, raise_exception=False)
        assert [outcome.outcome for outcome in report] == ["failed"]

    @pytest.mark.parametrize("module", modules.TWINS, ids=lambda module: module.__name__)
    def test_a_right_one_passes_and_is_left_as_it_was(self, module):
        made = self.made(module)
        before = {name: tensor.clone() for name, tensor in made.state_dict().items()}
        assert opcheck.check(made, self.x, supports={} if plain(module) else self.off).passed
        assert made.training
        assert all(torch.equal(before[name], tensor) for name, tensor in made.state_dict().items())
        assert all(parameter.grad is None and parameter.requires_grad for parameter in made.parameters())

    def test_parameters_that_are_frozen_are_constants(self):
        made = modules.WrongWeight().double()
        made.weight.requires_grad_(False)
        assert opcheck.check(made, self.x, supports=self.off, checks="backward").passed

    def test_a_lazy_one_has_to_be_called_before(self):
        with pytest.raises(ValueError, match="weight of LazyLinear has no shape yet: call the module once before"):
            opcheck.check(torch.nn.LazyLinear(2).double(), self.x)

    def test_inside_a_function_it_is_pointed_out(self):
        made = modules.Layer().double()
        report = opcheck.check(lambda x: made(x), self.x, supports=self.off, raise_exception=False)
        assert "the captured made.weight requires grad, but is no argument" in str(report.failures[0].reason)

    def test_integers_may_be_its_only_arguments(self):
        report = opcheck.check(torch.nn.Embedding(3, 2).double(), torch.tensor([1, 0, 2]))
        assert {outcome.dtype for outcome in report} == {"float64"}


@pytest.mark.parametrize(("name", "outcome"), [("KeepsItsMask", "failed"), ("KeepsEachMask", "passed")])
def test_what_a_module_keeps_may_not_depend_on_a_keyword_of_an_earlier_call(outcomes, name, outcome):
    text = f"""
[[operator]]
name    = "operators.modules.{name}"
module  = {{}}
samples = [{{ args = [{{ shape = [2, 3, 3] }}] }}]
"""
    said = outcomes(text, checks=("context", "derived"), dtypes=("float64",))
    context, derived = (one for check in ("context", "derived") for case, one in said.items() if check in case)
    assert (context.outcome, derived.outcome) == ("passed", outcome), derived.message
    if outcome == "failed":
        assert derived.reason.startswith(
            "derived: strict = true: context: the values of a module that was called before"
        )
        assert "realized: float64[2, 3, 3], strict=True" in derived.message


def test_buffers_are_those_that_a_reference_leaves(outcomes):
    keys = (
        'module = {}\ndtypes = ["float64"]\nsupports = { vmap = false }\n'
        'reference = { target = "torch.nn.functional.batch_norm", kwargs = { training = true } }\n'
        "samples = [{ args = [{ shape = [4, 3] }], vary = ['value'] }]\n"
    )
    right, *wrong = (
        outcomes(f'[[operator]]\nname = "operators.modules.{name}"\n{keys}')
        for name in ("BatchNorm", "BatchNormOfBiasedVariance", "BatchNormThatReplacesItsVariance")
    )
    assert {one.outcome for one in right.values()} == {"passed"}
    for found in wrong:
        (failed,) = (one for one in found.values() if one.outcome != "passed")
        assert failed.check == "reference"
        assert failed.reason == "reference: running_var is not that of torch.nn.functional.batch_norm after the call"


@BOTH
@pytest.mark.parametrize("made", [modules.Centered, modules.Weighted])
def test_a_buffer_that_the_spec_differentiates_by_has_no_graph_of_its_own(outcomes, dtype, made):
    text = """
[[operator]]
name    = "operators.modules.NAME"
module  = { init = { BUFFER = { std = 1, grad = true } } }
samples = [{ args = [{ shape = [2, 3] }] }]
""".replace("BUFFER", next(name for name, _ in made().named_buffers()))
    (found,) = outcomes(text.replace("NAME", made.__name__), checks=("buffers",), dtypes=(dtype,)).values()
    assert found.outcome == "passed", found.message
