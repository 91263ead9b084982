"""One test: what it is called, and what it draws its numbers from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from opcheck.planning import Case
from opcheck.spec.device_profile import profiles

Plan = Callable[..., list[Case]]

TEXT = """
[[operator]]
name = "torch.div"
variant = "floor"
variants = ["inplace"]
samples = [{ args = [{ shape = [2] }] }, { name = "complex", dtypes = ["complex"] }]
"""


def test_a_case_is_shown_by_its_id(planned: Plan) -> None:
    case = planned(TEXT)[0]
    assert str(case) == case.id == "torch.div[floor]::backward[cpu-float64]"
    assert (case.subject, case.check) == ("torch.div[floor]", "backward")


def test_the_subject_names_the_way_of_calling(planned: Plan) -> None:
    assert planned(TEXT)[-1].subject == "torch.div[floor][inplace]"


def test_samples_are_those_that_go_with_the_dtype(planned: Plan) -> None:
    by_dtype = {case.dtype: [sample.name for sample in case.samples] for case in planned(TEXT)}
    assert by_dtype["float64"] == ["0"]
    assert by_dtype["complex128"] == ["0", "complex"]


def test_checks_variants_and_devices_see_the_same_numbers(planned: Plan) -> None:
    cases = [case for case in planned(TEXT, *profiles().values()) if case.dtype == "complex128"]
    assert len(cases) > 10
    assert {tuple(map(case.seed, case.samples)) for case in cases} == {
        ("torch.div[floor][complex128]#0", "torch.div[floor][complex128]#complex")
    }


def test_another_base_seed_draws_other_numbers(planned: Plan) -> None:
    case = planned(TEXT)[0]
    (sample,) = case.samples
    assert case.base_seed == 0
    seeds = {replace(case, base_seed=number).seed(sample) for number in (0, 1, 2, 10)}
    assert len(seeds) == 4
    assert case.seed(sample) in seeds


def test_dtypes_and_samples_see_different_numbers(planned: Plan) -> None:
    seeds = {(case.dtype, sample.name): case.seed(sample) for case in planned(TEXT) for sample in case.samples}
    assert len(set(seeds.values())) == len(seeds)
