"""Inputs are used again while nobody has written to them, by the group of cases that they belong to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opcheck.samples import Inputs
from opcheck.samples.cache import Cache

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


class TestCache:
    def test_inputs_that_were_only_read_are_used_again(self, made: Callable[..., Inputs]) -> None:
        cache, first = Cache(), made(SAMPLE)
        torch.autograd.grad((first.leaves[0] * 2).sum(), first.leaves)
        assert cache.inputs(("group",), "a", lambda: first) is first
        assert cache.inputs(("group",), "a", lambda: made(SAMPLE)) is first

    @pytest.mark.parametrize("write", [spoil_leaf, spoil_argument, leave_gradient, cut_off, reshape])
    def test_what_was_written_to_is_made_anew(
        self, made: Callable[..., Inputs], write: Callable[[Inputs], None]
    ) -> None:
        cache = Cache()
        first = cache.inputs(("group",), "a", lambda: made(SAMPLE))
        write(first)
        again = cache.inputs(("group",), "a", lambda: made(SAMPLE))
        assert again is not first
        assert torch.equal(again.leaves[0], made(SAMPLE).leaves[0])

    def test_another_sample_or_group_has_its_own(self, made: Callable[..., Inputs]) -> None:
        cache = Cache()
        found = [cache.inputs((group,), name, lambda: made(SAMPLE)) for group, name in [(1, "a"), (1, "b"), (2, "a")]]
        assert len({id(inputs) for inputs in found}) == 3

    @pytest.mark.parametrize(
        "recipe", ["{ shape = [2, 2], layout = 'sparse_coo' }", "{ shape = [2, 2], layout = 'sparse_csr' }"]
    )
    def test_sparse_tensors_are_made_each_time(self, made: Callable[..., Inputs], recipe: Any) -> None:
        cache = Cache()
        first = cache.inputs((), "a", lambda: made(recipe))
        assert cache.inputs((), "a", lambda: made(recipe)) is not first

    def test_dtypes_that_cannot_be_compared_are_made_each_time(self, made: Callable[..., Inputs], monkeypatch) -> None:
        def refuse(*_: object) -> bool:
            raise RuntimeError("not implemented")

        cache = Cache()
        first = cache.inputs((), "a", lambda: made(SAMPLE))
        monkeypatch.setattr(torch, "equal", refuse)
        assert cache.inputs((), "a", lambda: made(SAMPLE)) is not first


class TestOnce:
    def test_what_is_made_for_a_group_is_made_once(self) -> None:
        cache, made = Cache(), []
        for _ in range(2):
            assert cache.once(("group",), "a", lambda: made.append(1) or len(made)) == 1
        assert cache.once(("group",), "b", lambda: "another") == "another"

    def test_another_group_has_its_own(self) -> None:
        cache = Cache()
        first = cache.once(("x",), "a", object)
        assert cache.once(("y",), "a", object) is not first
        assert cache.once(("x",), "a", object) is not first  # nothing is kept of a group that is over

    def test_what_cannot_be_made_is_tried_again(self) -> None:
        cache = Cache()

        def fail() -> None:
            raise ValueError("not today")

        for _ in range(2):
            with pytest.raises(ValueError, match="not today"):
                cache.once(("group",), "a", fail)
        assert cache.once(("group",), "a", lambda: 1) == 1
