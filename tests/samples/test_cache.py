"""Inputs are used again while nobody has written to them, by the group of cases that they belong to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from opcheck.samples.cache import Cache, Memo, once
from opcheck.samples.inputs import Inputs
from opcheck.samples.layouts import components

pytestmark = pytest.mark.filterwarnings("ignore:Sparse.*beta:UserWarning")

SAMPLE = "{ shape = [2, 3] }, [{ shape = [2], dtype = 'int64' }]"


def spoil_leaf(inputs: Inputs) -> None:
    inputs.leaves[0].data[0, 0] += 1e-6  # as finite differences do in place


def spoil_argument(inputs: Inputs) -> None:
    inputs.args[1][0][0] += 1


def leave_gradient(inputs: Inputs) -> None:
    inputs.leaves[0].sum().backward()


def cut_off(inputs: Inputs) -> None:
    inputs.leaves[0].requires_grad_(False)


def reshape(inputs: Inputs) -> None:
    inputs.args[1][0].unsqueeze_(0)


LAYOUTS = ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"]
SPARSE = pytest.mark.parametrize("recipe", [f"{{ shape = [2, 2], layout = '{layout}' }}" for layout in LAYOUTS])


def spoil_values(inputs: Inputs) -> None:
    (components(inputs.leaves[0].detach()) or ())[-1].view(-1)[0] += 1e-6


def spoil_indices(inputs: Inputs) -> None:
    (components(inputs.leaves[0].detach()) or ())[0].view(-1)[0] += 1


def spoil_other_indices(inputs: Inputs) -> None:
    (components(inputs.leaves[0].detach()) or ())[-2].view(-1)[-1] += 1


def leave_sparse_gradient(inputs: Inputs) -> None:
    inputs.leaves[0].grad = inputs.leaves[0].detach().clone()


class TestCache:
    def test_inputs_that_were_only_read_are_used_again(self, made: Callable[..., Inputs]) -> None:
        cache, first = Cache(), made(SAMPLE)
        torch.autograd.grad((first.leaves[0] * 2).sum(), first.leaves)
        assert cache.inputs(("group",), "a", lambda: first)[0] is first
        assert cache.inputs(("group",), "a", lambda: made(SAMPLE))[0] is first

    @pytest.mark.parametrize("write", [spoil_leaf, spoil_argument, leave_gradient, cut_off, reshape])
    def test_what_was_written_to_is_made_anew(
        self, made: Callable[..., Inputs], write: Callable[[Inputs], None]
    ) -> None:
        cache = Cache()
        first = cache.inputs(("group",), "a", lambda: made(SAMPLE))[0]
        write(first)
        again = cache.inputs(("group",), "a", lambda: made(SAMPLE))[0]
        assert again is not first
        assert torch.equal(again.leaves[0], made(SAMPLE).leaves[0])

    def test_another_sample_or_group_has_its_own(self, made: Callable[..., Inputs]) -> None:
        cache = Cache()
        found = [
            cache.inputs((group,), name, lambda: made(SAMPLE))[0] for group, name in [(1, "a"), (1, "b"), (2, "a")]
        ]
        assert len({id(inputs) for inputs in found}) == 3

    @SPARSE
    def test_sparse_tensors_that_were_only_read_are_used_again(self, made: Callable[..., Inputs], recipe: str) -> None:
        cache = Cache()
        first = cache.inputs((), "a", lambda: made(recipe))[0]
        first.leaves[0].to_dense()
        assert cache.inputs((), "a", lambda: made(recipe))[0] is first

    @SPARSE
    @pytest.mark.parametrize("write", [spoil_values, spoil_indices, spoil_other_indices, leave_sparse_gradient])
    def test_sparse_tensors_that_were_written_to_are_made_anew(
        self, made: Callable[..., Inputs], recipe: str, write: Callable[[Inputs], None]
    ) -> None:
        cache = Cache()
        first = cache.inputs((), "a", lambda: made(recipe))[0]
        write(first)
        again = cache.inputs((), "a", lambda: made(recipe))[0]
        assert again is not first
        assert torch.equal(again.leaves[0].to_dense(), made(recipe).leaves[0].to_dense())

    def test_a_tensor_that_is_no_longer_coalesced_is_made_anew(self, made: Callable[..., Inputs]) -> None:
        cache, recipe = Cache(), "{ shape = [2, 2], layout = 'sparse_coo' }"
        first = cache.inputs((), "a", lambda: made(recipe))[0]
        with torch.no_grad():
            first.leaves[0]._coalesced_(False)
        assert cache.inputs((), "a", lambda: made(recipe))[0] is not first

    def test_tensors_in_layouts_that_cannot_be_compared_are_made_each_time(self, made: Callable[..., Inputs]) -> None:
        cache, recipe = Cache(), "{ shape = [2, 2], layout = 'mkldnn', dtype = 'float32' }"
        first = cache.inputs((), "a", lambda: made(recipe))[0]
        assert cache.inputs((), "a", lambda: made(recipe))[0] is not first

    def test_dtypes_that_cannot_be_compared_are_made_each_time(self, made: Callable[..., Inputs], monkeypatch) -> None:
        def refuse(*_: object) -> bool:
            raise RuntimeError("not implemented")

        cache = Cache()
        first = cache.inputs((), "a", lambda: made(SAMPLE))[0]
        monkeypatch.setattr(torch, "equal", refuse)
        assert cache.inputs((), "a", lambda: made(SAMPLE))[0] is not first

    def test_what_was_made_of_inputs_goes_with_them(self, made: Callable[..., Inputs]) -> None:
        cache = Cache()
        first, memo = cache.inputs((), "a", lambda: made(SAMPLE))
        assert memo.once("answer", lambda: 1) == 1
        assert cache.inputs((), "a", lambda: made(SAMPLE))[1].once("answer", lambda: 2) == 1
        spoil_leaf(first)
        assert cache.inputs((), "a", lambda: made(SAMPLE))[1].once("answer", lambda: 3) == 3


class TestOnce:
    def test_what_is_made_for_a_group_is_made_once(self) -> None:
        cache, made = Cache(), []
        for _ in range(2):
            assert cache.memo(("group",)).once("a", lambda: made.append(1) or len(made)) == 1
        assert cache.memo(("group",)).once("b", lambda: "another") == "another"

    def test_another_group_has_its_own(self) -> None:
        cache = Cache()
        first = cache.memo(("x",)).once("a", object)
        assert cache.memo(("y",)).once("a", object) is not first
        assert cache.memo(("x",)).once("a", object) is not first  # nothing is kept of a group that is over

    def test_what_cannot_be_made_is_tried_again(self) -> None:
        cache = Cache()

        def fail() -> None:
            raise ValueError("not today")

        for _ in range(2):
            with pytest.raises(ValueError, match="not today"):
                cache.memo(("group",)).once("a", fail)
        assert cache.memo(("group",)).once("a", lambda: 1) == 1

    def test_what_a_function_makes_of_an_object_is_made_once_for_its_memo(self) -> None:
        class Owner:
            def __init__(self, memo: Memo) -> None:
                self.memo = memo

            @property
            @once
            def answer(self) -> object:
                return object()

            @property
            @once
            def other(self) -> object:
                return object()

        memo = Memo()
        assert Owner(memo).answer is Owner(memo).answer
        assert Owner(memo).answer is not Owner(memo).other
        assert Owner(memo).answer is not Owner(Memo()).answer
