"""What a draft says of failures: one line for each thing that goes wrong."""

from opcheck.draft.author import lines_of


def record(check, reason, operator="mylib.f", diagnosis=()):
    return {
        "operator": operator, "id": f"{operator}::{check}", "reason": reason,
        "fields": {"diagnosis": [{"text": text} for text in diagnosis]},
    }  # fmt: skip


def test_an_exception_that_several_checks_meet_is_one_line():
    error = "RuntimeError: shapes cannot be multiplied"
    records = [
        record("backward", f"backward: backward raised {error}"),
        record("dtypes", f"dtypes: backward is claimed for float64, but is refused: {error}"),
        record("dtypes", f"dtypes: backward is claimed for float64, but is refused: {error}", operator="mylib.g"),
        record("dtypes", "dtypes: backward is claimed for float64, but is refused: RuntimeError: another one"),
    ]
    assert [line.partition(": ")[0] for line in lines_of(records)] == [
        "mylib.f::backward",
        "mylib.g::dtypes",
        "mylib.f::dtypes",
    ]


def test_a_diagnosis_takes_the_place_of_a_reason():
    records = [record("backward", "a long story", diagnosis=["twice what it should be"]), record("purity", "x changes")]
    assert lines_of(records) == ["mylib.f::backward: twice what it should be", "mylib.f::purity: x changes"]
