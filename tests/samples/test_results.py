"""What an operator returns is taken apart, with names; what no tensor can be found in is refused."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch
from operators import results
from operators.results import Opaque, Pair, Result, Slotted, WithLogits

from opcheck.samples.results import Untestable, flatten, leaves_of, named, names_among

X, Y = torch.ones(1), torch.zeros(2)


class TestFlatten:
    def test_a_tensor_is_one_output(self) -> None:
        assert flatten(X) == (X,)

    def test_tensors_come_in_the_order_of_nested_tuples_lists_and_dicts(self) -> None:
        a, b, c, d = (torch.tensor(float(i)) for i in range(4))
        assert [x.item() for x in flatten((a, [b, {"x": c, "y": (d,)}]))] == [0, 1, 2, 3]

    def test_what_holds_no_tensor_for_certain_is_left_out(self) -> None:
        plain = (None, 3, 2.5, 1j, True, "text", b"x", torch.float64, torch.device("cpu"), torch.Size([2]), [], {})
        assert flatten((*plain, X)) == (X,)

    def test_named_tuples_are_tuples(self) -> None:
        assert flatten(namedtuple("pair", "x y")(X, Y)) == (X, Y)
        assert len(flatten(torch.linalg.slogdet(torch.eye(2)))) == 2


class TestNames:
    @pytest.mark.parametrize(
        ("result", "names"),
        [
            (X, ()),
            ((X, [Y]), ()),
            ({0: X, 1: Y}, ()),
            ({"a": X, "b b": Y}, ("['a']", "['b b']")),
            (Pair(X, 3), (".loss",)),
            (Result(X, {"parts": [Y, None]}), (".loss", ".aux['parts'][0]")),
            (Slotted(X), (".loss",)),
            (WithLogits(X, Y), ("['loss']", "['logits']")),
            ((X, Pair(Y, 1)), ("[0]", "[1].loss")),
            (torch.linalg.slogdet(torch.eye(2)), (".sign", ".logabsdet")),
            ({"a" * 60: X}, (f"['{'a' * 39}...]",)),
            ({"\x1b[31m": X}, ("['\\x1b[31m']",)),
        ],
    )
    def test_names_are_paths_where_there_are_any(self, result: Any, names: tuple[str, ...]) -> None:
        assert names_among([path for path, _ in named(result)]) == names

    def test_what_is_no_tensor_has_a_path_too(self) -> None:
        assert list(leaves_of((1, {"a": None}))) == [("[0]", 1), ("[1]['a']", None)]


class TestUntestable:
    @pytest.mark.parametrize(
        ("result", "what"),
        [
            (None, "None; it contains no tensor"),
            (3, "3 (int); it contains no tensor"),
            ("text", "'text' (str); it contains no tensor"),
            ([], "an empty list; it contains no tensor"),
            (({}, [None, 1]), "a tuple; it contains no tensor"),
            (Result(None), "an object of operators.results.Result; it contains no tensor"),
            ((x for x in [X]), "a generator; opcheck cannot look for tensors in it"),
            ({X}, "a set; opcheck cannot look for tensors in it"),
            (Opaque(X), "an object of operators.results.Opaque; opcheck cannot look for tensors in it"),
            ((X, {"rest": Opaque(Y)}), "an object of operators.results.Opaque at output[1]['rest']; "
             "opcheck cannot look for tensors in it"),
            (Result, "a type; opcheck cannot look for tensors in it"),
        ],
    )  # fmt: skip
    def test_what_was_returned_is_said(self, result: Any, what: str) -> None:
        with pytest.raises(Untestable) as caught:
            flatten(result)
        assert str(caught.value) == f"the operator returned {what}"

    @pytest.mark.parametrize("name", ["in_dict", "in_mapping", "in_dataclass", "in_attrs", "in_model_output"])
    def test_containers_of_tensors_are_taken_apart(self, name: str) -> None:
        assert flatten(getattr(results, name)(X))[-1].item() == 1
