"""`[tool.opcheck.matrix]` of pyproject.toml: its jobs, and its mistakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from opcheck.matrix import Job, Matrix
from opcheck.settings import Settings
from opcheck.spec import SpecError


@pytest.fixture
def matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Matrix]:
    """Return a function that reads the lines under `[tool.opcheck.matrix]`."""
    monkeypatch.chdir(tmp_path)

    def read(lines: str) -> Matrix:
        path = tmp_path / "pyproject.toml"
        path.write_text("[tool.opcheck.matrix]\n" + dedent(lines).lstrip("\n"))
        found = Settings.read(path).matrix
        assert found is not None
        return found

    return read


Read = Callable[[str], Matrix]


def ids(jobs: list[Job]) -> list[str]:
    return [job["id"] for job in jobs]


def test_a_project_may_have_none(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text("[tool.opcheck]\nseed = 1\n")
    assert Settings.read(path).matrix is None


def test_by_default_there_is_one_job_on_the_cpu_with_what_is_there(matrix: Read) -> None:
    assert matrix("").jobs("ubuntu-latest") == [
        {
            "id": "cpu", "name": "cpu", "device": "cpu", "torch": "", "python": "", "dtype": "", "shard": "",
            "runner": "ubuntu-latest",
        },
    ]  # fmt: skip


def test_each_value_meets_each_of_the_other_axes(matrix: Read) -> None:
    found = matrix(
        """
        devices = ["cpu", "cuda"]
        torch   = ["2.13.0", "2.14.1"]
        python  = ["3.10", "3.13t"]
        dtypes  = ["double", ["single", "half"]]
        """
    )
    assert len(found.jobs()) == 16
    assert found.jobs()[-1] == {
        "id": "cuda-torch2.14.1-py3.13t-single+half",
        "name": "cuda, torch 2.14.1, Python 3.13t, single half",
        "device": "cuda", "torch": "2.14.1", "python": "3.13t", "dtype": "single,half", "shard": "", "runner": "",
    }  # fmt: skip


def test_shards_are_for_all_devices_or_by_device(matrix: Read) -> None:
    assert ids(matrix('devices = ["cpu", "cuda"]\nshards = 2').jobs()) == [
        "cpu-1of2", "cpu-2of2", "cuda-1of2", "cuda-2of2",
    ]  # fmt: skip
    several = matrix('devices = ["cpu", "cuda"]\nshards = { cpu = 3 }').jobs()
    assert [job["shard"] for job in several] == ["1/3", "2/3", "3/3", ""]
    assert several[0]["name"] == "cpu, shard 1/3"


def test_what_is_excluded_is_left_out_and_what_is_included_added(matrix: Read) -> None:
    found = matrix(
        """
        devices = ["cpu", "cuda"]
        torch   = ["2.13.0", "2.14.1"]
        python  = ["3.10", "3.12"]
        exclude = [{ device = "cuda", python = "3.10" }, { torch = ["2.13.0"], python = ["3.10", "3.12"] }]
        include = [{ device = "mps", torch = "2.14.1", dtypes = "float32" }, { device = "cpu", torch = "2.13.0" }]
        """
    )
    assert ids(found.jobs()) == [
        "cpu-torch2.14.1-py3.10", "cpu-torch2.14.1-py3.12", "cuda-torch2.14.1-py3.12", "mps-torch2.14.1-float32",
        "cpu-torch2.13.0",
    ]  # fmt: skip


def test_runners_are_labels_by_device(matrix: Read) -> None:
    found = matrix(
        """
        devices = ["cpu", "cuda", "mps"]
        runners = { cuda = ["self-hosted", "gpu"], mps = "macos-latest" }
        """
    )
    assert [job["runner"] for job in found.jobs("ubuntu-latest")] == [
        "ubuntu-latest", ["self-hosted", "gpu"], "macos-latest",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('device = ["cpu"]', '2:1: unknown key "device"; expected one of devices, torch, python, dtypes, shards'),
        ("python = [3.10]", "2:11: wrong type for an element of python: a number (3.1); expected a string"),
        ('python = ["3"]', '2:11: "3" is not a version of Python; expected a version such as "3.12"'),
        ('torch = ["2.13.0", "latest"]', '2:20: "latest" is not a version of torch; expected a version such as'),
        ("devices = []", "2:11: an empty array; expected at least one element"),
        ("dtypes = [[]]", "2:11: an empty array; expected at least one element"),
        ("shards = 0", "2:10: shards is out of range: 0; expected a number of at least 1"),
        ('torch = ["2.13.0", "2.13.0"]', '2:20: "2.13.0" is listed twice in torch; expected each value once'),
        ("exclude = [{}]", "2:12: an exclusion without keys leaves out everything; expected one of device, torch"),
        (
            'torch = ["2.13.0", "2.14.1"]\nexclude = [{ torch = "2.13" }]',
            '3:22: this exclusion matches nothing: the matrix has no torch "2.13"; expected one of 2.13.0, 2.14.1; '
            'did you mean "2.13.0"?',
        ),
        ('exclude = [{ shard = "1/2" }]', '2:14: unknown key "shard"; expected one of device, torch, python, dtypes'),
        ('exclude = [{ device = "cpu" }]', "2:11: the matrix is empty: everything is excluded"),
        ('include = [{ device = "cpu" }]', "2:12: the matrix has this combination already; expected another one"),
        ('include = [{ torch = "2.13.0" }]', '2:12: missing key "device"; expected a device'),
        ('runners = { cua = "gpu" }', '2:19: the matrix has no device "cua"; expected cpu'),
        ('devices = ["cuda"]\nshards = { cuad = 2 }', 'did you mean "cuda"?'),
    ],
)
def test_a_mistake_is_told_with_its_place(matrix: Read, lines: str, told: str) -> None:
    with pytest.raises(SpecError) as caught:
        matrix(lines)
    assert told in str(caught.value)
    assert str(caught.value).startswith("pyproject.toml:")
    assert len(str(caught.value).splitlines()) == 1
