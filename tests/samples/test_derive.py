"""The samples that a written one stands for: what varies, what is the author's word, and how one is made small."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from opcheck.planning import load
from opcheck.samples.derive import (
    LARGEST,
    SIZES,
    Keywords,
    Scope,
    derived,
    in_turn,
    smallest,
)
from opcheck.samples.derive.alike import has_same_pattern, keeps_ties
from opcheck.samples.derive.values import ELEMENTS
from opcheck.settings import Settings
from opcheck.spec.operator import Construction


@pytest.fixture
def sample_of(tmp_path):
    def sample(text, keys=""):
        path = tmp_path / "spec.toml"
        path.write_text(f'[[operator]]\nname = "torch.sin"\n{keys}\nsamples = [{text}]\n')
        (operator,) = load([path], Settings())
        return operator.samples[0]

    return sample


BOTH_SIGNS = "tensor 0 = 1000, but for an element of -1000"


def shapes(one):
    return [recipe.sizes for recipe in one.sample.tensors]


def varied(sample, defaults=None, **more):
    return {one.what: one for one in derived(sample, Scope(Keywords(defaults or {}), **more))}


def test_a_size_is_one_symbol_wherever_it_occurs(sample_of):
    sample = sample_of("{ args = [{ shape = [4, 3] }, { shape = [3, 5] }], vary = ['size'] }")
    found = varied(sample)
    assert [shapes(found[f"size 3 -> {size}"]) for size in (1, 1031)] == [[(4, n), (n, 5)] for n in (1, 1031)]
    together = found["sizes 3 -> 17, 4 -> 18, 5 -> 19"]
    assert shapes(together) == [(18, 17), (17, 19)]
    assert {one.what: shapes(one) for one in together.apart()} == {
        "size 3 -> 17": [(4, 17), (17, 5)],
        "size 4 -> 18": [(18, 3), (3, 5)],
        "size 5 -> 19": [(4, 3), (3, 19)],
        "sizes 3 -> 51, 4 -> 68, 5 -> 85": [(68, 51), (51, 85)],
    }
    more = varied(sample, is_thorough=True)
    assert {f"size 4 -> {size}" for size in SIZES} <= set(more)
    (multiplied,) = more["sizes 3 -> 17, 4 -> 18, 5 -> 19"].apart()  # single sizes are tried anyway
    assert multiplied.what == "sizes 3 -> 51, 4 -> 68, 5 -> 85"


def test_changes_of_several_samples_are_shared_out(sample_of):
    samples = [sample_of(f"{{ args = [{{ shape = {own} }}], vary = ['size'] }}") for own in ([2, 3], [3, 2], [5])]
    each = [[(sample, one) for one in derived(sample, Scope())] for sample in samples]
    turns = in_turn(each)
    made = [one.what for own in turns for (_, one), *_ in own]
    assert sorted(made) == sorted({one.what for own in each for _, one in own})  # each of them once
    for sample, own in zip(samples, turns, strict=True):
        for (first, one), *others in own:
            assert first is sample
            assert all(other.what == one.what and written is not sample for written, other in others)
    assert all(len(own) < len(each[0]) for own in turns[:2])
    assert turns[2] == [[change] for change in each[2]]  # no other one has such a size
    shared = [own[0][1].what for own in turns[0] if len(own) > 1]
    assert [own[0][1].what for own in in_turn(each, start=1)[1] if len(own) > 1] == shared


def test_sizes_that_are_too_large_together_change_one_by_one(sample_of):
    found = varied(sample_of("{ args = [{ shape = [2, 3, 4, 5] }], vary = ['size'] }"))
    assert shapes(found["size 2 -> 17"]) == [(17, 3, 4, 5)]
    assert shapes(found["size 5 -> 20"]) == [(2, 3, 4, 20)]
    assert not any(what.startswith("sizes 2 -> 17") for what in found)


def test_explicit_values_stay_and_where_there_are_indices_nothing_gets_smaller(sample_of):
    sample = sample_of(
        "{ args = [{ shape = [4, 3] }, { values = [0, 3], dtype = 'int64' }], vary = ['size', 'rank', 'broadcast'] }"
    )
    for one in varied(sample, is_thorough=True).values():
        shape, indices = shapes(one)
        assert indices == (2,)
        if "size" in one.what and "dim" not in one.what:
            assert all(now >= before for now, before in zip(shape[-2:], (4, 3), strict=True))


def test_random_whole_numbers_may_be_indices_too(sample_of):
    sample = sample_of("{ args = [{ shape = [20, 3] }, { shape = [2], dtype = 'int64', high = 3 }], vary = ['size'] }")
    assert all(
        now >= before for one in varied(sample).values() for now, before in zip(shapes(one)[0], (20, 3), strict=True)
    )


@pytest.mark.parametrize(
    ("what", "keeps"),
    [
        ("size 3 -> 1031", True),
        ("leading dims of 2, 1", True),
        ("memory transposed", True),
        ("sizes 3 -> 17, 4 -> 18, 5 -> 19", True),
        ("dim 1 of tensor 0 -> 1", False),
        ("rank 0", False),
    ],
)
def test_some_changes_leave_equal_sizes_equal(sample_of, what, keeps):
    sample = sample_of("{ args = [{ shape = [4, 3] }, { shape = [3, 5] }, { shape = [3] }] }")
    one = varied(sample)[what]
    assert keeps_ties(sample, one.sample) is keeps
    assert not any(keeps_ties(sample, other.sample) for other in one.apart() if "tensor" in other.what)


def test_sizes_of_explicit_values_count_among_those_that_are_equal(sample_of):
    sample = sample_of("{ args = [{ shape = [2, 3] }, { values = [2, 0], dtype = 'int64' }] }")
    found = varied(sample)
    assert keeps_ties(sample, found["size 3 -> 1031"].sample)
    assert not keeps_ties(sample, found["size 2 -> 1031"].sample)


@pytest.mark.parametrize(
    "text",
    [
        "{ args = [{ shape = [2] }] }",
        "{ args = [{ shape = [2, 3] }, { shape = [3] }], kwargs = { p = 0.5, dim = 1, flag = true } }",
        "{ args = [{ shape = [2, 3, 4] }, 2], kwargs = { how = 'sum' } }",
        "{ args = [{ shape = [5] }, { values = [0, 3], dtype = 'int64' }] }",
    ],
)
def test_what_is_tried_as_a_standard_is_tried_if_thorough(sample_of, text):
    assert varied(sample_of(text)).keys() <= varied(sample_of(text), is_thorough=True).keys()


def test_a_size_that_is_there_is_not_tried_again(sample_of):
    found = varied(sample_of("{ args = [{ shape = [17, 3] }], vary = ['size'] }"))
    assert "size 17 -> 17" not in found
    assert "size 17 -> 1031" in found


def test_the_largest_size_is_allowed(sample_of):
    found = varied(sample_of("{ args = [{ shape = [64, 1, 128] }], large = true, vary = ['rank'] }"))
    assert sum(recipe.numel for recipe in found["a leading dim of 2"].sample.tensors) == LARGEST
    found = varied(sample_of("{ args = [{ shape = [65, 1, 128] }], large = true, vary = ['rank'] }"))
    assert "a leading dim of 2" not in found


def test_ranks_broadcast_dims_and_memory(sample_of):
    found = varied(
        sample_of("{ args = [{ shape = [2, 3] }, { shape = [3] }], vary = ['rank', 'broadcast', 'layout'] }")
    )
    assert {what: shapes(one) for what, one in found.items() if "memory" not in what} == {
        "leading dims of 2, 1": [(2, 1, 2, 3), (2, 1, 3)],
        "leading dims of 2, 1 of tensor 0": [(2, 1, 2, 3), (3,)],
        "rank 0": [(), ()],
        "dim 0 of tensor 0 -> 1": [(1, 3), (3,)],
        "dim 1 of tensor 0 -> 1": [(2, 1), (3,)],
        "dim 0 of tensor 1 -> 1": [(2, 3), (1,)],
        "size 3 -> 4 in dim 0 of tensor 1": [(2, 3), (4,)],
    }
    assert [*found][-5:] == [
        "memory noncontiguous", "memory transposed", "memory offset", "memory expanded",
        "memory lazily conjugated and negated",
    ]  # fmt: skip
    assert [recipe.memory for recipe in found["memory noncontiguous"].sample.tensors] == ["noncontiguous"] * 2
    assert [recipe.memory for recipe in found["memory transposed"].sample.tensors] == ["transposed", "contiguous"]


def test_square_tensors_become_oblong(sample_of):
    text = "{ args = [{ shape = [1, 2, 4, 4] }, { shape = [3, 3, 3] }, { shape = [4] }], vary = ['size'] }"
    found = varied(sample_of(text))
    wider = {what: shapes(one) for what, one in found.items() if "in dim" in what}
    assert wider == {
        "size 3 -> 4 in dim -1": [(1, 2, 4, 4), (3, 3, 4), (4,)],
        "size 4 -> 5 in dim -1": [(1, 2, 4, 5), (3, 3, 3), (5,)],
    }
    alone = [(one.what, shapes(one)) for one in found["size 4 -> 5 in dim -1"].apart()]
    assert alone == [("size 4 -> 5 in dim -1 of tensor 0", [(1, 2, 4, 5), (3, 3, 3), (4,)])]
    assert not [*found["size 3 -> 4 in dim -1"].apart()]
    assert not any(
        "in dim" in what for what in varied(sample_of("{ args = [{ shape = [0, 4, 4] }, { shape = [4] }] }"))
    )


def test_where_a_rank_is_refused_there_are_less_and_one_tensor_alone(sample_of):
    found = varied(sample_of("{ args = [{ shape = [2, 3] }, { shape = [3] }], vary = ['rank'] }"))
    apart = {what: [(one.what, shapes(one)) for one in one.apart()] for what, one in found.items()}
    assert apart == {
        "leading dims of 2, 1": [
            ("a leading dim of 1", [(1, 2, 3), (1, 3)]),
            ("a leading dim of 2", [(2, 2, 3), (2, 3)]),
        ],
        "leading dims of 2, 1 of tensor 0": [("a leading dim of 2 of tensor 0", [(2, 2, 3), (3,)])],
        "rank 0": [
            ("a dim less", [(3,), ()]),
            ("rank 0 of tensor 0", [(), (3,)]),
            ("rank 0 of tensor 1", [(2, 3), ()]),
        ],
    }
    *_, one, two = found["leading dims of 2, 1"].apart()
    assert [(one.what, shapes(one)) for one in one.apart()] == [("trailing dims of 2, 1", [(2, 3, 2, 1), (3,)])]
    assert not [*two.apart()]
    assert {"a leading dim of 1", "a leading dim of 2"} <= set(
        varied(sample_of("{ args = [{ shape = [1, 2, 1, 2] }] }"))
    )


def test_a_sample_without_elements_has_no_other_sizes(sample_of):
    found = varied(sample_of("{ args = [{ shape = [0, 3] }], vary = ['size', 'empty', 'broadcast', 'value'] }"))
    assert found == {}


TOGETHER = "flag = false, other = true, beta = 6.0, dim = 1"


def test_keywords_of_the_sample_and_defaults_of_the_signature(sample_of):
    sample = sample_of(
        "{ args = [{ shape = [2] }], kwargs = { flag = true, beta = 2.0, dim = 0 }, vary = ['keyword'] }"
    )
    found = varied(sample, {"flag": False, "other": False, "inplace": False, "name": "x"})
    assert {what: one.sample.kwargs for what, one in found.items()} == {
        "flag = false": {"flag": False, "beta": 2.0, "dim": 0},
        "flag = false, elements 0, 12, -13": {"flag": False, "beta": 2.0, "dim": 0},
        "beta = 6.0": {"flag": True, "beta": 6.0, "dim": 0},
        "beta = 6.0, elements 0, 12, -13": {"flag": True, "beta": 6.0, "dim": 0},
        "dim = 1": {"flag": True, "beta": 2.0, "dim": 1},
        "dim = -1": {"flag": True, "beta": 2.0, "dim": -1},
        "other = true": {"flag": True, "beta": 2.0, "dim": 0, "other": True},
        "other = true, elements 0, 12, -13": {"flag": True, "beta": 2.0, "dim": 0, "other": True},
        TOGETHER: {"flag": False, "beta": 6.0, "dim": 1, "other": True},
    }
    apart = {one.what: one.sample.kwargs for one in found[TOGETHER].apart()}
    assert apart == {
        "flag = false, other = true": {"flag": False, "beta": 2.0, "dim": 0, "other": True},
        "flag = false, beta = 6.0": {"flag": False, "beta": 6.0, "dim": 0},
        "flag = false, dim = 1": {"flag": False, "beta": 2.0, "dim": 1},
        "other = true, beta = 6.0": {"flag": True, "beta": 6.0, "dim": 0, "other": True},
        "other = true, dim = 1": {"flag": True, "beta": 2.0, "dim": 1, "other": True},
        "beta = 6.0, dim = 1": {"flag": True, "beta": 6.0, "dim": 1},
    }
    assert apart.keys() == {one.what for one in found[TOGETHER].smaller()}


def test_keywords_have_the_values_that_others_pass(sample_of):
    sample = sample_of("{ args = [{ shape = [2] }], kwargs = { how = 'sum' }, vary = ['keyword'] }")
    call = Keywords(choices={"how": ["sum", "mean"], "p": [2]})
    found = {one.what: one.sample.kwargs for one in derived(sample, Scope(call))}
    assert found == {
        'how = "mean"': {"how": "mean"},
        "p = 2": {"how": "sum", "p": 2},
        "p = 2, elements 0, 12, -13": {"how": "sum", "p": 2},
        'how = "mean", p = 2': {"how": "mean", "p": 2},
    }


def test_what_is_optional_is_left_out(sample_of):
    sample = sample_of(
        "{ args = [{ shape = [2] }, { shape = [3] }, 1], kwargs = { scale = 2, p = 1 }, vary = ['keyword'] }"
    )
    call = Keywords({"bias": None, "scale": None}, positional=("x", "bias", "n", "more"))
    found = {one.what: one.sample.toml() for one in derived(sample, Scope(call))}
    tensors = "args = [{ shape = [2] }, { shape = [3] }, 1]"
    assert {what: toml for what, toml in found.items() if "none" in what and "," not in what} == {
        "scale = { none = true }": f"{{ {tensors}, kwargs = {{ scale = {{ none = true }}, p = 1 }} }}",
        "bias = { none = true }": "{ args = [{ shape = [2] }, { none = true }, 1], kwargs = { scale = 2, p = 1 } }",
    }


def test_what_is_passed_by_position_varies_like_a_keyword(sample_of):
    sample = sample_of("{ args = [{ shape = [2] }, 1.5, false], kwargs = { p = 2 }, vary = ['keyword'] }")
    call = Keywords({"flag": True, "p": 1}, positional=("x", "scale", "flag", "p"))
    found = {one.what: (one.sample.args[1:], one.sample.kwargs) for one in derived(sample, Scope(call))}
    assert {what: one for what, one in found.items() if "elements" not in what} == {
        "scale = 4.5": ((4.5, False), {"p": 2}),
        "flag = true": ((1.5, True), {"p": 2}),
        "p = 3": ((1.5, False), {"p": 3}),
        "p = 1": ((1.5, False), {"p": 1}),
        "flag = true, p = 3, scale = 4.5": ((4.5, True), {"p": 3}),
    }


def test_a_keyword_that_means_an_index_is_one_that_a_tensor_holds(sample_of):
    sample = sample_of("{ args = [{ shape = [2] }, { values = [3, 1], dtype = 'int64' }], vary = ['keyword'] }")
    call = Keywords({"padding_idx": None, "p": None})
    found = {one.what: one.sample.kwargs for one in derived(sample, Scope(call))}
    assert found == {"padding_idx = 1": {"padding_idx": 1}}


def test_indices_have_32_bits_if_thorough(sample_of):
    sample = sample_of("{ args = [{ values = [3, 1], dtype = 'int64' }], vary = ['integer'] }")
    assert "tensor 0 in int32" not in varied(sample)
    assert varied(sample, is_thorough=True)["tensor 0 in int32"].sample.tensors[0].dtype == "int32"


def test_of_a_module_the_keywords_of_its_constructor_vary_too(sample_of):
    sample = sample_of("{ args = [{ shape = [2] }], vary = ['keyword'] }")
    written = Construction(args=[3], kwargs={"how": "sum"}, train=False)
    constructor = Keywords({"bias": True, "how": "mean"}, {"how": ["sum", "mean"]})
    call = Keywords({"bias": False})
    found = {one.what: one.sample.module for one in derived(sample, Scope(call, written, constructor))}
    assert {what: module and module.kwargs for what, module in found.items()} == {
        "bias = true": None,
        "bias = true, elements 0, 12, -13": None,
        "module.bias = false": {"how": "sum", "bias": False},
        "module.bias = false, elements 0, 12, -13": {"how": "sum", "bias": False},
        'module.how = "mean"': {"how": "mean"},
        'module.bias = false, module.how = "mean"': {"how": "mean", "bias": False},
    }
    assert {(*module.args, module.train) for module in found.values() if module} == {(3, False)}


def test_a_reference_means_the_same_where_a_constructor_gets_other_sizes_but_nothing_else(sample_of):
    written = Construction(args=[3], kwargs={"scale": 0.5})
    sample = replace(sample_of("{ args = [{ shape = [2, 3] }], vary = ['size', 'keyword'] }"), module=written)
    every = [*derived(sample, Scope(Keywords({}), written, Keywords({"scale": 1.0, "bias": True})))]
    found = {one.what: has_same_pattern(sample, one.sample) for one in every}
    assert found["size 2 -> 1031"]
    assert found["sizes 2 -> 17, 3 -> 18, in the module too"]
    assert {what: same for what, same in found.items() if "module." in what} == dict.fromkeys(
        (what for what in found if "module." in what), False
    )
    assert {"module.bias = false", "module.train = false"} <= {*found}


def test_numbers_vary_where_nothing_is_said_of_them(sample_of):
    sample = sample_of("{ args = [{ shape = [2] }, { shape = [3], low = 0 }], vary = ['value'] }")
    found = varied(sample)
    assert [*found] == ["tensor 0 = 0", BOTH_SIGNS, "elements 0, 12, -13"]
    together = found["elements 0, 12, -13"]
    assert together.sample.toml() == "{ args = [{ shape = [2], contains = [0.0, 12.0] }, { shape = [3], low = 0.0 }] }"
    alone = [one.what for one in together.apart()]
    assert alone == [f"an element of tensor 0 = {number:g}" for number in ELEMENTS]
    assert [one.what for one in together.smaller()] == alone
    large = [*found[BOTH_SIGNS].smaller()]
    assert [one.what for one in large] == ["tensor 0 = 1000", "tensor 0 = -1000"]
    assert [one.what for one in found[BOTH_SIGNS].apart()] == ["tensor 0 = 1000", "tensor 0 = -1000"]
    (smaller,) = large[1].smaller()
    assert smaller.sample.toml() == "{ args = [{ shape = [2], mean = -30.0, std = 0.0 }, { shape = [3], low = 0.0 }] }"
    assert len(varied(sample, is_thorough=True)) > len(found)


def test_elements_are_in_other_places_of_each_tensor(sample_of):
    sample = sample_of("{ args = [{ shape = [2] }, { shape = [3] }, { shape = [] }], vary = ['value'] }")
    assert "an element of tensor 2 = 12" in varied(sample)  # there is room for one only
    assert varied(sample)["elements 0, 12, -13"].sample.toml() == (
        "{ args = [{ shape = [2], contains = [0.0, 12.0] }, { shape = [3], contains = [12.0, -13.0, 0.0] }, "
        "{ shape = [] }] }"
    )
    scalar = varied(sample_of("{ args = [{ shape = [] }], vary = ['value'] }"))
    alone = [f"an element of tensor 0 = {number}" for number in (12, -13)]
    assert [*scalar] == [*(f"tensor 0 = {number}" for number in (0, 1000, -1000)), *alone]


def test_numbers_move_across_a_half_unless_they_are_tiny(sample_of):
    sample = sample_of("{ args = [{ shape = [2] }], vary = ['keyword'] }")
    alone = [what for what in varied(sample, {"eps": 2**-12, "beta": 0.5, "shift": 0.0}) if "," not in what]
    assert alone == ["eps = 0.000732421875", "beta = 0.75", "shift = 0.5"]


def test_whole_numbers_are_those_that_are_written(sample_of):
    sample = sample_of(
        "{ args = [{ shape = [4] }, { values = [0, 3, 1], dtype = 'int64' }, { values = 2, dtype = 'int64' }], "
        "vary = ['integer'] }"
    )
    assert {what: one.sample.tensors[1].values for what, one in varied(sample).items()} == {
        "tensor 1 = 0": (0, 0, 0),
        "tensor 1 = 3": (3, 3, 3),
        "tensor 1 reversed": (1, 3, 0),
        "tensor 1 with its first repeated": (0, 0, 1),
        "tensor 1 11 times": (0, 3, 1) * 11,
    }


def test_additive_masks_too(sample_of):
    sample = sample_of("{ args = [{ shape = [2, 1], grad = false }, { shape = [2] }], vary = ['mask'] }")
    assert {what: one.sample.tensors[0].values for what, one in varied(sample).items()} == {
        "tensor 0 = 0": ((0.0,), (0.0,)),
        "tensor 0 = -inf": ((-inf,), (-inf,)),
        "tensor 0 = 0, but for a row": ((-inf,), (0.0,)),
    }


def test_masks_are_full_empty_and_without_a_row(sample_of):
    sample = sample_of("{ args = [{ shape = [2, 2], dtype = 'bool' }], vary = ['mask'] }")
    found = varied(sample)
    assert {what: one.sample.tensors[0].values for what, one in found.items()} == {
        "tensor 0 = true": ((True, True), (True, True)),
        "tensor 0 = false": ((False, False), (False, False)),
        "tensor 0 = true, but for a row": ((False, False), (True, True)),
    }
    assert "shape" not in found["tensor 0 = true"].sample.toml()


def test_sizes_are_empty_and_a_place_alone_where_all_are_refused(sample_of):
    sample = sample_of("{ args = [{ shape = [4, 3] }, { shape = [3] }], vary = ['empty'] }")
    found = varied(sample)
    assert {what: shapes(one) for what, one in found.items()} == {
        "size 3 -> 0": [(4, 0), (0,)],
        "size 4 -> 0": [(0, 3), (3,)],
    }
    assert [(one.what, shapes(one)) for one in found["size 3 -> 0"].apart()] == [
        ("size 3 -> 0 in dim 1 of tensor 0", [(4, 0), (3,)]),
        ("size 3 -> 0 in dim 0 of tensor 1", [(4, 3), (0,)]),
    ]
    assert all(one.sample.name.startswith("0~size 3 -> 0 in") for one in found["size 3 -> 0"].apart())
    assert not [*found["size 4 -> 0"].apart()]


def test_a_size_beyond_all_that_are_tried_gets_smaller_too(sample_of):
    found = varied(sample_of("{ args = [{ shape = [30000] }], large = true, vary = ['size'] }"))
    assert {"size 30000 -> 29999", "size 30000 -> 15000", "size 30000 -> 1"} <= set(found)


def test_values_become_simple_and_go_where_they_do_not_matter(sample_of):
    sample = sample_of("{ args = [{ shape = [2] }, { shape = [2] }] }")
    one = varied(sample)[BOTH_SIGNS]

    def look(other):
        return "backward" if (other.tensors[0].mean or 0) > 10 else "hold"

    found, words = smallest(one, sample, look, "backward")
    assert found.toml() == "{ args = [{ shape = [1], mean = 11.0, std = 0.0 }, { shape = [1] }] }"
    assert words == ["passes with the number 10, fails with 11"]
    found, _ = smallest(one, sample, lambda other: "backward", "backward")
    assert found.toml() == "{ args = [{ shape = [1] }, { shape = [1] }] }"


def test_an_element_becomes_simple_and_goes_where_it_does_not_matter(sample_of):
    sample = sample_of("{ args = [{ shape = [2] }] }")
    one = varied(sample)["elements 0, 12, -13"]

    def look(other):
        return "backward" if max(other.tensors[0].contains or (0,)) > 10 else "hold"

    found, words = smallest(one, sample, look, "backward")
    assert found.toml() == "{ args = [{ shape = [1], contains = [11.0] }] }"
    assert words == ["passes with the number 10, fails with 11"]
    found, _ = smallest(one, sample, lambda other: "backward", "backward")
    assert found.toml() == "{ args = [{ shape = [1] }] }"


def test_tensors_inside_lists_tuples_mappings_and_calls_vary_too(sample_of):
    sample = sample_of(
        "{ args = [[{ shape = [3] }], { tuple = [{ shape = [3] }] }, { mapping = { a = { shape = [3] } } }], "
        "vary = ['size'] }"
    )
    assert shapes(varied(sample)["size 3 -> 17"]) == [(17,)] * 3


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("sparse_coo", ["coalesced = false", "dense_dim = 1", "nnz = 0", "nnz = 24"]),
        ("sparse_csr", ["nnz = 0", "nnz = 24"]),
        ("sparse_bsr", ["blocksize = [2, 6]", "nnz = 0", "nnz = 24"]),
        ("sparse_bsc', blocksize = [2, 2], nnz = 0, grad = true, dtype = 'real", ["nnz = 6"]),
    ],
)
def test_the_pattern_of_a_sparse_tensor_varies(sample_of, layout, expected):
    sample = sample_of(f"{{ args = [{{ shape = [4, 6], layout = '{layout}' }}], vary = ['layout'] }}")
    assert [*varied(sample)] == [f"{what} of tensor 0" for what in expected]


def test_neither_the_values_nor_the_memory_of_a_sparse_tensor_vary(sample_of):
    sample = "{ args = [{ values = [[0, 2], [3, 0]], layout = 'sparse_csr' }], vary = ['value', 'layout'] }"
    assert not varied(sample_of(sample), is_thorough=True)


def test_jagged_samples_are_not_varied_and_large_ones_left_out(sample_of):
    assert not varied(sample_of("{ args = [{ shape = [3, 3], layout = 'jagged' }] }"), is_thorough=True)
    sample = sample_of("{ args = [{ shape = [3, 60] }], vary = ['size'] }")
    found = varied(sample, is_thorough=True)
    assert all(sum(recipe.numel for recipe in one.sample.tensors) <= LARGEST for one in found.values())
    assert "size 3 -> 520" not in found
    assert "size 3 -> 257" in found


def test_they_are_the_same_each_time_and_have_names_of_their_own(sample_of):
    text = "{ args = [{ shape = [2, 3] }], kwargs = { flag = true } }"
    one, other = (list(derived(sample_of(text), Scope(is_thorough=True))) for _ in range(2))
    assert [(item.what, item.sample.name, item.sample.toml()) for item in one] == [
        (item.what, item.sample.name, item.sample.toml()) for item in other
    ]
    assert len(one) > 100
    assert all(item.sample.name.startswith("0~") for item in one)


def test_those_of_some_ways_are_among_those_of_all(sample_of):
    sample = sample_of("{ args = [{ shape = [2, 3] }, { shape = [3] }], kwargs = { flag = true } }")
    scope = Scope(is_thorough=True)
    whole = {one.what: one.sample.toml() for one in derived(sample, scope)}
    some = {one.what: one.sample.toml() for one in derived(sample, scope, ways=("keyword", "rank"))}
    assert some.items() <= whole.items()
    assert {"flag = false", "rank 0"} < set(some)
    assert any(what.endswith(", flag = false") for what in some)
    assert not any(what.startswith("size") and "," not in what for what in some)


def test_a_wrong_sample_becomes_as_small_as_it_stays_wrong(sample_of):
    sample = sample_of("{ args = [{ shape = [4, 3] }], kwargs = { flag = true, needed = true } }")
    one = varied(sample)["size 3 -> 1031"]

    def look(other):
        return "backward" if max(other.tensors[0].sizes) > 20 and "needed" in other.kwargs else "hold"

    found, words = smallest(one, sample, look, "backward")
    assert found.tensors[0].sizes == (1, 21)
    assert found.kwargs == {"needed": True}
    assert words == ["passes with size 20, fails with size 21"]
    _, words = smallest(one, sample, lambda other: look(other).replace("hold", "refused"), "backward")
    assert words == []  # whether smaller ones hold, nobody knows


def test_a_large_size_is_found_by_halves(sample_of):
    sample = sample_of("{ args = [{ shape = [4, 3] }] }")
    one = varied(sample)["size 3 -> 1031"]
    tried = []

    def look(other):
        tried.append(other.tensors[0].sizes)
        return "backward" if other.tensors[0].sizes[1] > 777 else "hold"

    found, words = smallest(one, sample, look, "backward")
    assert found.tensors[0].sizes == (1, 778)
    assert words == ["passes with size 777, fails with size 778"]
    assert len(tried) < 300


def test_where_there_are_indices_it_stays_as_large_as_it_was_written(sample_of):
    sample = sample_of("{ args = [{ shape = [4, 3] }, { values = [3], dtype = 'int64' }] }")
    one = varied(sample)["size 4 -> 1031"]
    tried = []

    def look(other):
        tried.append(other.tensors[0].sizes)
        return "backward" if other.tensors[0].sizes[0] > 9 else "hold"

    found, _ = smallest(one, sample, look, "backward")
    assert found.tensors[0].sizes == (10, 3)
    assert all(rows >= 3 and columns >= 3 for rows, columns in tried)


def test_as_many_special_elements_stay_as_fit(sample_of):
    from opcheck.samples.derive.sizes import resized

    sample = sample_of("{ args = [{ shape = [3], contains = [1.0, 2.0] }] }")
    texts = [resized(sample, {3: size}).toml() for size in (2, 1, 0)]
    assert texts == [
        "{ args = [{ shape = [2], contains = [1.0, 2.0] }] }",
        "{ args = [{ shape = [1], contains = [1.0] }] }",
        "{ args = [{ shape = [0] }] }",
    ]
