"""Classes of modules are constructed by guesses, and called like functions; both modes are drafted if they differ."""

from __future__ import annotations

import functools

import pytest
import torch
from operators import modules

from opcheck.draft.attempt import OUT_OF_SIGHT, Refused
from opcheck.draft.data import INDICES
from opcheck.draft.guess import MOST_CONSTRUCTIONS, constructions
from opcheck.draft.search import MOST_UNTESTABLE, RETURNS_NO_TENSOR, TAKES_NO_TENSOR, Search
from opcheck.draft.workplace import Deadline, Trial, Workplace
from opcheck.settings import Settings
from opcheck.spec.operator import Construction

OURS = ("torch", "operators")


def search(path, given=(), module=None):
    return Search(Trial(path, given, module), Workplace(Settings(modules=OURS), 60.0), Deadline(60.0))


def draft(*arguments, **keys):
    """Return the draft."""
    own = search(*arguments, **keys).draft()
    assert own is not None
    return own


def refusal(path):
    own = search(path)
    assert own.draft() is None
    return own.refusal()


class Strange(torch.nn.Module):
    """Constructed from what cannot be guessed."""

    def __init__(self, config: dict):
        super().__init__()


class TestConstructions:
    def test_the_likeliest_come_first(self):
        assert next(constructions(torch.nn.Linear)) == {"args": [3, 2]}
        assert next(constructions(torch.nn.Conv2d)) == {"args": [3, 2, 2]}
        assert list(constructions(modules.Layer)) == [{}]

    def test_all_are_valid_and_not_too_many(self):
        found = list(constructions(torch.nn.Bilinear))
        assert len(found) == MOST_CONSTRUCTIONS
        for construction in found:
            Construction.model_validate(construction)

    def test_what_cannot_be_guessed_is_not(self):
        assert list(constructions(Strange)) == []

    def test_a_constructor_that_leaves_a_parameter_as_it_was_allocated_is_refused(self, monkeypatch):
        class Transform(torch.nn.Module):
            """The identity, if that is what is asked for."""

            def __init__(self, kind):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.empty(3, 3))
                if kind == "identity":
                    torch.nn.init.eye_(self.weight)

            def forward(self, x):
                return x @ self.weight

        monkeypatch.setattr(modules, "Transform", Transform, raising=False)
        monkeypatch.setattr(Transform, "__module__", "operators.modules")
        assert "[2] } }: the constructor gives weight no values; pass" in refusal("operators.modules.Transform")
        own = search("operators.modules.Transform", module={"args": ["identity"]}).draft()
        assert own is not None
        assert not torch.are_deterministic_algorithms_enabled()

    @pytest.mark.parametrize("annotations", [{}, {"count": int}])
    def test_a_module_may_take_numbers_only(self, monkeypatch, annotations):
        class Slopes(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.slope = torch.nn.Parameter(torch.ones(()))

            def forward(self, count):
                return torch.arange(count) * self.slope

        Slopes.forward.__annotations__ = annotations
        monkeypatch.setattr(modules, "Slopes", Slopes, raising=False)
        monkeypatch.setattr(Slopes, "__module__", "operators.modules")
        assert draft("operators.modules.Slopes").samples[0]["args"] == [2]


class TestDrafts:
    def test_samples_beyond_a_clamp_are_avoided(self, monkeypatch):
        def distance(x):
            return torch.asin(torch.clamp_max(torch.linalg.vector_norm(x), 1.0))

        monkeypatch.setattr(modules, "distance", distance, raising=False)
        monkeypatch.setattr(distance, "__module__", "operators.modules")
        (sample, *_) = draft("operators.modules.distance").samples
        (tensor,) = sample["args"]
        assert tensor["high"] < 1

    def test_a_domain_without_a_clamp_is_preferred_to_an_argument_of_integers(self, monkeypatch):
        def conformal(x, curvature):
            return x / (1 + curvature * x * x).clamp_min(1e-15)

        monkeypatch.setattr(modules, "conformal", conformal, raising=False)
        monkeypatch.setattr(conformal, "__module__", "operators.modules")
        found = search("operators.modules.conformal")
        unit_interval = {"shape": [2, 3], "low": 0.1, "high": 0.9}
        assert found.draft().samples == [{"args": [unit_interval, unit_interval]}]
        assert found.caller.count < 5

    def test_a_call_whose_result_is_not_finite_got_further_than_one_that_raises(self, monkeypatch):
        def logged(x, y, *, k):
            assert x.shape == y.shape, "shapes differ"
            return (x * y - 2).log() * k.sqrt()

        monkeypatch.setattr(modules, "logged", logged, raising=False)
        monkeypatch.setattr(logged, "__module__", "operators.modules")
        said = refusal("operators.modules.logged")
        assert said.endswith("kwargs = { k = { shape = [] } } }: the result is not finite; pass arguments with --args")

    def test_a_sample_whose_result_is_empty_is_none(self, monkeypatch):
        def rest(x, scale):
            return x[..., 1:] / (x[..., :1] + scale.sqrt())

        monkeypatch.setattr(modules, "rest", rest, raising=False)
        monkeypatch.setattr(rest, "__module__", "operators.modules")
        for sample in draft("operators.modules.rest").samples:
            assert sample["args"][0]["shape"][-1] > 1

    def test_no_guess_follows_one_that_misses_a_gpu(self, monkeypatch):
        calls = []

        def launched(x):
            calls.append(x)
            raise RuntimeError("0 active drivers ([]). There should only be one.")

        monkeypatch.setattr(modules, "launched", launched, raising=False)
        monkeypatch.setattr(launched, "__module__", "operators.modules")
        assert refusal("operators.modules.launched").endswith(
            "or, if its kernels are in Triton, set TRITON_INTERPRET=1"
        )
        assert len(calls) == 1
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        assert refusal("operators.modules.launched").endswith("it needs a GPU; where there is one, add --device cuda")

    @pytest.mark.parametrize("known", ["float32", "float16", "bfloat16"])
    @pytest.mark.parametrize("said", ["unsupported dtype", ""])
    def test_an_operator_is_called_in_a_dtype_that_it_knows(self, monkeypatch, known, said):
        def kernel(x, y):
            assert x.dtype == getattr(torch, known), said
            return x * y

        monkeypatch.setattr(modules, "kernel", kernel, raising=False)
        monkeypatch.setattr(kernel, "__module__", "operators.modules")
        found = search("operators.modules.kernel")
        assert found.draft().samples
        assert found.caller.dtype == known

    def test_an_argument_that_every_floating_dtype_is_wrong_for_chooses_none(self, monkeypatch):
        def name_of(x):
            return str(x.dtype).removeprefix("torch.")

        def looked_up(x, table):
            return x * {"int64": 2.0}[name_of(table)]

        monkeypatch.setattr(modules, "looked_up", looked_up, raising=False)
        monkeypatch.setattr(looked_up, "__module__", "operators.modules")
        found = search("operators.modules.looked_up")
        assert found.draft().samples
        assert found.caller.dtype == "float64"

    def test_a_dtype_that_backward_alone_refuses_is_none_that_it_knows(self, monkeypatch):
        class Half(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, v):
                return v * {torch.float32: 2.0}[v.dtype]

        monkeypatch.setattr(modules, "halved", lambda x: Half.apply(x), raising=False)
        monkeypatch.setattr(modules.halved, "__module__", "operators.modules")
        found = search("operators.modules.halved")
        assert "backward" not in found.draft().supports
        assert found.caller.dtype == "float32"

    @pytest.mark.parametrize(
        ("path", "module", "sample"),
        [
            ("torch.nn.Linear", {"args": [3, 2]}, {"args": [{"shape": [2, 3]}]}),
            ("torch.nn.Conv1d", {"args": [3, 2, 2]}, {"args": [{"shape": [2, 3, 2]}]}),
            ("torch.nn.LazyLinear", {"args": [2]}, {"args": [{"shape": [2, 3]}]}),
            ("operators.modules.Net", {}, {"args": [{"shape": [2, 3]}]}),
            (
                "torch.nn.Embedding",
                {"args": [2, 3]},
                {"args": [{"shape": [2, 3], "dtype": "int64", "low": 0, "high": 2}]},
            ),
        ],
    )
    def test_modules_are_constructed_and_called(self, path, module, sample):
        found = draft(path)
        assert (found.module, found.samples[0]) == (module, sample)
        assert "out" not in found.supports  # which modules do not claim anyway

    @pytest.mark.parametrize("name", ["Dropout", "BatchNorm1d"])
    def test_modes_that_differ_have_a_sample_each(self, name):
        found = draft(f"torch.nn.{name}")
        training, *_, evaluation = found.samples
        assert evaluation == {**training, "module": {"train": False}}
        assert "train" not in found.module
        assert not any("module" in sample for sample in draft("torch.nn.Linear").samples)

    def test_modes_are_compared_without_a_derivative_too(self, monkeypatch):
        class Noise(torch.nn.Dropout):
            def forward(self, x):
                return super().forward(torch.from_numpy(x.numpy()))

        monkeypatch.setattr(modules, "Noise", Noise, raising=False)
        monkeypatch.setattr(Noise, "__module__", "operators.modules")
        assert draft("operators.modules.Noise").samples[-1]["module"] == {"train": False}

    def test_a_mode_that_is_given_is_the_only_one(self):
        assert draft("torch.nn.Dropout", module={"train": False}).module == {"train": False}

    def test_samples_and_construction_may_be_given(self):
        sample = {"args": [{"shape": [5, 7]}]}
        found = draft("torch.nn.Linear", [[sample]], {"args": [7, 1]})
        assert (found.samples, found.module) == ([sample], {"args": [7, 1]})

    def test_a_parameter_that_forward_does_not_use_is_told_apart(self, monkeypatch):
        made = modules.Layer.__init__

        def construct(self):
            made(self)
            self.spare = torch.nn.Parameter(torch.ones(1))

        assert "backward" not in draft("operators.modules.Layer").supports
        monkeypatch.setattr(modules.Layer, "__init__", construct)
        arguments, reason = draft("operators.modules.Layer").supports["backward"]
        assert (set(arguments), reason) == ({0, "weight", "bias"}, "no output requires grad")

    def test_what_cannot_be_constructed_says_how_to_go_on(self, monkeypatch):
        monkeypatch.setattr(modules, "Strange", Strange, raising=False)
        monkeypatch.setattr(Strange, "__module__", "operators.modules")
        monkeypatch.setattr(Strange, "forward", lambda self, x: x)
        why = refusal("operators.modules.Strange")
        assert why.startswith("no guess for the parameter config: dict; pass constructor arguments with --module")

    def test_a_module_that_is_called_got_further_than_one_that_is_constructed(self, monkeypatch):
        def init(self, first, second):
            torch.nn.Module.__init__(self)
            sum(one.numel() for one in [first])

        def forward(self, x):
            raise NotImplementedError("use a subclass")

        monkeypatch.setattr(modules, "Strange", Strange, raising=False)
        monkeypatch.setattr(Strange, "__module__", "operators.modules")
        monkeypatch.setattr(Strange, "__init__", init)
        monkeypatch.setattr(Strange, "forward", forward)
        assert "raised NotImplementedError: use a subclass; pass" in refusal("operators.modules.Strange")

    def test_a_parameter_without_a_guess_is_named(self, monkeypatch):
        def read(x: torch.Tensor, config: Strange, path, kind): ...

        def forward(self, x, kind: str): ...

        monkeypatch.setattr(modules, "read", read, raising=False)
        monkeypatch.setattr(read, "__module__", "operators.modules")
        assert refusal("operators.modules.read") == (
            "no guess for the parameter config: Strange; pass arguments with --args"
        )
        monkeypatch.setattr(modules, "Strange", Strange, raising=False)
        monkeypatch.setattr(Strange, "__module__", "operators.modules")
        monkeypatch.setattr(Strange, "__init__", torch.nn.Module.__init__)
        monkeypatch.setattr(Strange, "forward", forward)
        assert refusal("operators.modules.Strange").startswith("no guess for the parameter kind: str; pass")


def test_an_optional_argument_that_is_required_has_to_meet_what_is_checked_next(monkeypatch):
    def contrast(x, labels=None, mask=None):
        if mask is None:
            raise ValueError("labels without a mask cannot be used: mask is required")
        if mask.shape != (len(x), len(x)):
            raise ValueError("mask must have shape (batch_size, batch_size)")
        return mask @ x

    monkeypatch.setattr(modules, "contrast", contrast, raising=False)
    monkeypatch.setattr(contrast, "__module__", "operators.modules")
    assert draft("operators.modules.contrast").samples[0] == {
        "args": [{"shape": [2, 3]}],
        "kwargs": {"mask": {"shape": [2, 2]}},
    }


class Classes(torch.nn.Module):
    """A loss of classes, which are an optional argument."""

    def __init__(self, classes, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(classes, size))

    def forward(self, x, labels=None, mask=None):
        if labels is None:
            raise ValueError("labels are required")
        assert x.dim() == 2
        return torch.nn.functional.nll_loss(torch.log_softmax(x @ self.weight.T, -1), labels)


class WithPower(Classes):
    """The same, with a keyword of its own: it passes on all others."""

    def __init__(self, *args, power=2, **kwargs):
        super().__init__(*args, **kwargs)


class Binary(Classes):
    """The same, for two classes: it gives one of the arguments itself."""

    def __init__(self, factor, **kwargs):
        super().__init__(classes=2, **kwargs)


class Read(Classes):
    """The same, which reads its arguments."""

    def __init__(self, **kwargs):
        super().__init__(classes=kwargs["classes"], size=kwargs["size"])


class Grouped(Classes):
    """The same, which passes its arguments on to another module."""

    def __init__(self, *, factor=1, **kwargs):
        torch.nn.Module.__init__(self)
        self.weight = Classes(**kwargs).weight


@pytest.mark.parametrize("make", [Classes, WithPower, Binary, Read, Grouped])
def test_labels_are_classes_and_arguments_are_passed_on(make, monkeypatch):
    monkeypatch.setattr(modules, make.__name__, make, raising=False)
    monkeypatch.setattr(make, "__module__", "operators.modules")
    found = draft(f"operators.modules.{make.__name__}")
    (x,), kwargs = found.samples[0]["args"], found.samples[0]["kwargs"]
    assert kwargs == {"labels": {"shape": x["shape"][:1], **INDICES}}
    assert (found.module, make) in [
        ({"args": [2, 2]}, Classes),
        *(({"kwargs": {"classes": 2, "size": 2}}, one) for one in (WithPower, Read, Grouped)),
        ({"args": [2], "kwargs": {"size": 2}}, Binary),
    ]


def test_an_image_may_have_to_be_larger_than_a_window(monkeypatch):
    def blur(image):
        _, _, _, _ = image.shape
        return image[:, :, 10:, 10:] * image[:, :, :-10, :-10]

    monkeypatch.setattr(modules, "blur", blur, raising=False)
    monkeypatch.setattr(blur, "__module__", "operators.modules")
    assert draft("operators.modules.blur").samples[0] == {"args": [{"shape": [1, 1, 16, 16]}]}


def test_an_example_helps_where_guesses_do_not(monkeypatch):
    def needs_seven(x, *, how):
        """Take rows of seven.

        >>> needs_seven(torch.rand(2, 7), how="fast")
        """
        if x.shape != (2, 7) or how != "fast":
            raise ValueError("no")
        return x * x

    monkeypatch.setattr(modules, "needs_seven", needs_seven, raising=False)
    monkeypatch.setattr(needs_seven, "__module__", "operators.modules")
    (sample, *_) = draft("operators.modules.needs_seven").samples
    (tensor,) = sample["args"]
    assert (tensor["shape"], sample["kwargs"]) == ([2, 7], {"how": "fast"})


def test_what_writes_to_its_argument_is_not_random(monkeypatch):
    def overwriting(x):
        y = 2 * x
        x.data.copy_(y.detach())
        return y

    monkeypatch.setattr(modules, "overwriting", overwriting, raising=False)
    monkeypatch.setattr(overwriting, "__module__", "operators.modules")
    assert draft("operators.modules.overwriting").reseed is False
    assert draft("torch.bernoulli", [[{"args": [{"shape": [40], "low": 0.1, "high": 0.9}]}]]).reseed is True


def test_lines_below_a_wrapper_tell_how_far_a_call_got(monkeypatch):
    def attention(q, k, v):
        if q.dim() != 4:
            raise ValueError("queries need 4 dimensions")
        if k.dim() != 4:
            raise ValueError("keys need 4 dimensions")
        if v.dim() != 3:
            raise ValueError("values need 3 dimensions")
        return q.sum() * k.sum() * v.sum()

    @functools.wraps(attention)
    def wrapped(*args):
        return attention(*args)

    monkeypatch.setattr(modules, "attention", wrapped, raising=False)
    monkeypatch.setattr(wrapped, "__module__", "operators.modules")
    own = search("operators.modules.attention")
    found = own.draft()
    assert [len(arg["shape"]) for arg in found.samples[0]["args"]] == [4, 4, 3]
    assert own.caller.count < 150


def test_a_call_gets_further_than_its_arguments_on_later_lines():
    def called(x, y):
        raise ValueError("the last thing that happens")

    def calls(x, y):
        return called(
            x,
            y.stride(0),
        )

    refused = []
    for y in (2, torch.ones(3)):
        try:
            calls(torch.ones(3), y)
        except Exception as error:
            refused.append(Refused.by(error))
    of_arguments, of_call = refused
    assert "no attribute 'stride'" in of_arguments.why
    assert of_call.depth > of_arguments.depth > OUT_OF_SIGHT


def test_calls_of_modules_are_tried_with_how_they_were_constructed():
    call = {"module": {"args": [5, 1]}, "args": [{"shape": [2, 5]}]}
    found = draft("torch.nn.Linear", [[{**call, "module": {"args": ["no", 1]}}], [call]])
    assert (found.module, found.samples) == ({"args": [5, 1]}, [{"args": [{"shape": [2, 5]}]}])


@pytest.mark.parametrize("returns", [True, False])
def test_what_changes_its_first_argument_is_tried_with_a_clone(monkeypatch, returns):
    def accumulate(x, y):
        x.add_(y.exp())
        return x if returns else None

    monkeypatch.setattr(modules, "accumulate", accumulate, raising=False)
    monkeypatch.setattr(accumulate, "__module__", "operators.modules")
    found = draft("operators.modules.accumulate")
    assert found.inplace
    assert "inplace = true" in found.toml()
    assert not draft("torch.sin").inplace


@pytest.mark.parametrize(("name", "listed"), [("add_signs_", '["x", "residual"]'), ("cleared_", "true")])
def test_what_a_schema_marks_as_changed_is_listed(name, listed):
    found = draft(f"operators.written.{name}")
    assert f"\ninplace = {listed}\n" in found.toml()


def test_what_refuses_tensors_that_require_grad_is_drafted_without_a_derivative(monkeypatch):
    def by_numpy(x):
        return torch.from_numpy(x.numpy() * 2)

    monkeypatch.setattr(modules, "by_numpy", by_numpy, raising=False)
    monkeypatch.setattr(by_numpy, "__module__", "operators.modules")
    found = draft("operators.modules.by_numpy")
    assert found.backward is False
    assert "forward_ad" in found.supports


def test_what_writes_to_its_second_argument_is_not_taken_for_that(monkeypatch):
    def exchanged(x, y):
        y.mul_(2)
        return x * y

    monkeypatch.setattr(modules, "exchanged", exchanged, raising=False)
    monkeypatch.setattr(exchanged, "__module__", "operators.modules")
    assert draft("operators.modules.exchanged").backward is not False  # with a second argument that has no gradient


class TestWhatHasNothingToDifferentiate:
    def test_it_is_said_at_once_where_the_schema_shows_it(self):
        own = search("torch.arange")
        assert own.draft() is None
        assert (own.refusal(), own.caller.count) == (TAKES_NO_TENSOR, 0)
        assert refusal("torch.allclose") == RETURNS_NO_TENSOR

    def test_arguments_of_a_constructor_are_for_classes(self):
        own = search("torch.tanh", [[{"args": [{"shape": [2]}]}]], {"args": [3]})
        assert own.draft() is None
        assert (own.refusal(), own.caller.count) == ("it is not a class of modules, which --module is for", 0)

    def test_what_is_given_is_tried_all_the_same(self):
        own = search("torch.allclose", [[{"args": [{"shape": [2]}, {"shape": [2]}]}]])
        assert own.draft() is None
        assert (own.hopeless, own.caller.count) == ("", 1)

    def test_what_returns_no_tensor_in_a_few_calls(self, monkeypatch):
        calls = []

        def count(x):
            calls.append(x)
            return x.numel()

        monkeypatch.setattr(modules, "count", count, raising=False)
        monkeypatch.setattr(count, "__module__", "operators.modules")
        assert refusal("operators.modules.count") == RETURNS_NO_TENSOR
        assert len(calls) == MOST_UNTESTABLE

    @pytest.mark.parametrize("product", [torch.mul, lambda x, y: x @ y.mT])
    def test_an_object_is_what_a_call_came_to_whatever_other_calls_raise(self, monkeypatch, product):
        def wrapped(x, y):
            return functools.partial(print, product(x, y))

        monkeypatch.setattr(modules, "wrapped", wrapped, raising=False)
        monkeypatch.setattr(wrapped, "__module__", "operators.modules")
        own = search("operators.modules.wrapped")
        assert own.draft() is None
        assert "[2, 3] }] }: the operator returned an object of functools.partial" in own.refusal()
        assert own.caller.untestable == MOST_UNTESTABLE

    def test_a_sample_of_integers_alone_has_raised_nothing(self):
        own = search("torch.bincount", [[{"args": [{"shape": [3], "dtype": "int64", "low": 0, "high": 3}]}]])
        assert own.draft() is None
        assert "high = 3 }] }: no tensor to differentiate with respect to; " in own.refusal()

    def test_what_returns_none_may_have_written_to_its_arguments(self, monkeypatch):
        def written(x):
            return None

        monkeypatch.setattr(modules, "written", written, raising=False)
        monkeypatch.setattr(written, "__module__", "operators.modules")
        assert "it contains no tensor; pass arguments" in refusal("operators.modules.written")


def test_who_draws_random_numbers_is_random_even_if_two_calls_agree(monkeypatch):
    def rarely(x):
        return x * (torch.rand(()) > 1e-6)

    monkeypatch.setattr(modules, "rarely", rarely, raising=False)
    monkeypatch.setattr(rarely, "__module__", "operators.modules")
    assert draft("operators.modules.rarely").reseed
    assert not draft("torch.sin").reseed


def test_a_module_that_is_an_object_is_called_like_a_function(monkeypatch):
    class Scaled(torch.nn.Module):
        def forward(self, x, factor=2.0):
            return x * factor

    monkeypatch.setattr(Scaled, "__module__", "operators.modules")
    monkeypatch.setattr(modules, "scaled", Scaled(), raising=False)
    assert draft("operators.modules.scaled").samples[0] == {"args": [{"shape": [2, 3]}]}


class TestBuiltinFunctions:
    def test_what_is_written_to_is_no_input(self):
        for path in ("torch.batch_norm_elemt", "torch.batch_norm_backward_reduce"):
            (parameters,) = search(path).parameters
            assert parameters
            assert not any(one.name.startswith("out") for one in parameters)

    def test_all_overloads_are_tried(self):
        assert draft("torch.as_tensor").samples[0] == {"args": [{"shape": [2, 3]}]}

    @pytest.mark.skipif(
        torch.__version__ < "2.13", reason="gru_cell ended the process for hidden states of other ranks"
    )
    def test_errors_are_read(self):
        (sample, *_) = draft("torch.gru_cell").samples
        assert [one["shape"] for one in sample["args"]] == [[2, 3], [2, 3], [9, 3], [9, 3]]


def test_an_operator_of_torch_library_is_drafted_as_registered():
    assert "registered = true" in draft("operators.registered.right_half").toml()
    assert "registered" not in draft("operators.varied.square").toml()
