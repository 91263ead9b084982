"""What says that it is not implemented is a refusal; every other exception is a mistake, which no draft hides."""

from __future__ import annotations

import pytest
import torch
from operators.mistaken import ELSEWHERE, MISTAKEN
from operators.refusing import REFUSING

from opcheck.draft.refusal import is_refusal, needs_gpu
from opcheck.draft.trial import drafted
from opcheck.draft.workplace import Trial, Workplace
from opcheck.settings import Settings
from opcheck.text import one_line


def backward(operator, *inputs):
    outputs = operator(*inputs)
    return torch.autograd.grad(outputs, inputs, torch.ones_like(outputs).requires_grad_(), create_graph=True)


def second_order(operator, *inputs):
    for gradient in backward(operator, *inputs):
        gradient.sum().backward()


def forward_ad(operator, *inputs):
    torch.func.jvp(operator, inputs, tuple(map(torch.ones_like, inputs)))


def vmap(operator, *inputs):
    torch.func.vmap(operator)(*(torch.stack([one.detach(), one.detach()]) for one in inputs))


WAYS = {"backward": backward, "second_order": second_order, "forward_ad": forward_ad, "vmap": vmap}
SAMPLES = {
    "transposed": [(2, 3), (3, 4)],
    "too_few": [(3,), (3,)],
    "igamma": [(3,), (3,)],
    "bags": [(2, 3)],
    "factors": [(3, 3)],
}


def raised(name, operator, way):
    """Return what an operator raises, as messages show it."""
    inputs = [torch.rand(shape, dtype=torch.float64, requires_grad=True) for shape in SAMPLES.get(name, [(3,)])]
    operator(*inputs)  # this works
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any
        WAYS[way](operator, *inputs)
    return one_line(caught.value)


def test_the_collections_are_large():
    assert len(MISTAKEN) + len(ELSEWHERE) >= 30
    assert len(REFUSING) >= 30


@pytest.mark.parametrize("name", MISTAKEN)
def test_mistakes_are_no_refusals(name):
    assert not is_refusal(raised(name, MISTAKEN[name], "backward"))


@pytest.mark.parametrize("name", ELSEWHERE)
def test_nor_are_those_in_other_derivatives(name):
    way, operator = ELSEWHERE[name]
    assert not is_refusal(raised(name, operator, way))


@pytest.mark.parametrize("name", [name for name, (way, _) in REFUSING.items() if way in WAYS])
def test_what_is_not_implemented_is_a_refusal(name):
    way, operator = REFUSING[name]
    assert is_refusal(raised(name, operator, way))


def test_a_parameter_may_be_unknown_where_it_is_the_question():
    what = "TypeError: f() got an unexpected keyword argument 'out'"
    assert is_refusal(what, "out")
    assert not is_refusal(what)


def test_a_table_without_a_dtype_refuses_it():
    assert is_refusal("KeyError: 'complex128'")
    assert is_refusal("KeyError: torch.bfloat16")
    assert not is_refusal("KeyError: 'float_values'")
    assert not is_refusal("KeyError: 'weight'")


@pytest.mark.skipif(torch.__version__ < "2.13", reason="the error was about a tensor that is modified in place")
def test_the_jvp_of_softmax_has_no_derivative():
    x = torch.rand(3, requires_grad=True)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones(3))
        tangent = torch.autograd.forward_ad.unpack_dual(torch.softmax(dual, -1)).tangent
    with pytest.raises(RuntimeError) as caught:
        tangent.sum().backward()
    what = one_line(caught.value)
    assert is_refusal(what, "rev_over_fwd")
    assert not is_refusal(what, "backward")


def draft(path):
    settings = Settings(modules=("torch", "operators"))
    return drafted(Trial(path), Workplace(settings, 60.0))


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*MISTAKEN, *ELSEWHERE])
def test_no_mistake_is_drafted_away(name):
    own = draft(f"operators.mistaken.{name}")
    way = "backward" if name in MISTAKEN else ELSEWHERE[name][0]
    one = own.draft
    assert way not in one.supports
    assert not one.refused["backward"]
    assert any(record["outcome"] == "failed" for record in own.records.values())


@pytest.mark.nightly
@pytest.mark.parametrize("name", REFUSING)
def test_nothing_that_refuses_is_accused(name):
    own = draft(f"operators.refusing.{name}")
    one = own.draft
    key = REFUSING[name][0]
    assert key in one.supports or key in one.refused["forward"]
    assert [record["reason"] for record in own.records.values() if record["outcome"] == "failed"] == []


@pytest.mark.parametrize(
    ("what", "source"),
    [
        ("RuntimeError: 0 active drivers ([]). There should only be one.", ""),
        ("ValueError: Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)", ""),
        ("AssertionError: Torch not compiled with CUDA enabled", ""),
        ("RuntimeError: No CUDA GPUs are available", ""),
        ("RuntimeError: x must be a CUDA tensor", ""),
        ("AssertionError", "assert x.is_cuda"),
    ],
)
def test_what_runs_on_a_gpu_only_says_so(what, source):
    assert needs_gpu(what, source)


@pytest.mark.parametrize(
    ("what", "source"),
    [
        ("AssertionError", "if x.is_cpu: assert x.dim() == 2"),
        ("RuntimeError: x must be a (*, 3) tensor", "x.cuda()"),
        ("AttributeError: 'float' object has no attribute 'to'", "x.to(y)"),
    ],
)
def test_what_misses_something_else_does_not(what, source):
    assert not needs_gpu(what, source)
