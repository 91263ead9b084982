"""`opcheck matrix`: what GitHub, GitLab and others read, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from opcheck.cli import main

MATRIX = """
[tool.opcheck.matrix]
devices = ["cpu", "cuda"]
torch   = ["2.13.0", "2.14.1"]
shards  = { cpu = 2 }
runners = { cuda = ["self-hosted", "gpu"] }
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs `opcheck matrix` in a project, and returns what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(text: str, *options: str, code: int = 0) -> str:
        (tmp_path / "pyproject.toml").write_text(text)
        assert main(["matrix", *options]) == code
        out, err = capsys.readouterr()
        assert not (out and err)
        return out or err

    return run


Command = Callable[..., str]


def test_github_gets_the_value_of_a_matrix_on_one_line(command: Command) -> None:
    out = command(MATRIX, "--format", "github")
    assert out.count("\n") == 1
    jobs = json.loads(out)["include"]
    assert [(job["device"], job["torch"], job["shard"]) for job in jobs] == [
        ("cpu", "2.13.0", "1/2"), ("cpu", "2.13.0", "2/2"), ("cpu", "2.14.1", "1/2"), ("cpu", "2.14.1", "2/2"),
        ("cuda", "2.13.0", ""), ("cuda", "2.14.1", ""),
    ]  # fmt: skip
    assert jobs[0]["runner"] == "ubuntu-latest"
    assert jobs[-1]["runner"] == ["self-hosted", "gpu"]


def test_gitlab_gets_jobs_that_extend_one_of_the_project(command: Command) -> None:
    lines = command(MATRIX, "--format", "gitlab").splitlines()  # YAML, each of a name and a value in JSON
    jobs = json.loads("{" + ",".join(lines) + "}")
    assert jobs["cpu, torch 2.13.0, shard 1/2"] == {
        "extends": ".opcheck",
        "variables": {
            "OPCHECK_ID": "cpu-torch2.13.0-1of2", "OPCHECK_DEVICE": "cpu", "OPCHECK_TORCH": "2.13.0",
            "OPCHECK_SHARD": "1/2",
        },
    }  # fmt: skip
    assert jobs["cuda, torch 2.14.1"]["tags"] == ["self-hosted", "gpu"]
    assert len(jobs) == 6


def test_others_get_an_array_of_objects(command: Command) -> None:
    jobs = json.loads(command(MATRIX))
    assert jobs == json.loads(command(MATRIX, "--format=json"))
    assert jobs[-1] == {
        "id": "cuda-torch2.14.1", "name": "cuda, torch 2.14.1", "device": "cuda", "torch": "2.14.1", "python": "",
        "dtype": "", "shard": "", "runner": ["self-hosted", "gpu"],
    }  # fmt: skip


def test_a_device_of_the_project_may_be_named_and_its_dtypes(command: Command, tmp_path: Path) -> None:
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices/npu.toml").write_text('[device]\nname = "npu"\ndtypes = ["float8_e9"]\n')
    text = '[tool.opcheck]\ndevices = ["devices"]\n[tool.opcheck.matrix]\ndevices = ["npu"]\ndtypes = ["float8_e9"]\n'
    assert [job["id"] for job in json.loads(command(text))] == ["npu-float8_e9"]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('devices = ["cpu", "cud"]', 'pyproject.toml:2:19: unknown device "cud"; expected one of cpu, cuda, mps, xpu;'),
        ('devices = ["cpu", "cud"]', 'did you mean "cuda"?'),
        ('include = [{ device = "cud" }]', 'pyproject.toml:2:23: unknown device "cud"'),
        ('dtypes = ["doubel"]', 'pyproject.toml:2:11: unknown dtype "doubel"'),
        ('dtypes = ["half", ["single", "flaot64"]]', 'pyproject.toml:2:30: unknown dtype "flaot64"'),
        (
            'dtypes = ["double", ["float64", "half"]]',
            'pyproject.toml:2:21: "float64,half" and "double" both have float64; expected groups without common dtypes',
        ),
    ],
)
def test_a_mistake_that_only_the_command_can_see_has_its_place(command: Command, lines: str, told: str) -> None:
    assert told in command(f"[tool.opcheck.matrix]\n{lines}\n", code=2)


def test_more_jobs_than_github_makes_are_refused(command: Command) -> None:
    text = "[tool.opcheck.matrix]\nshards = {}\n"
    assert len(json.loads(command(text.format(256), "--format=github"))["include"]) == 256
    told = command(text.format(257), "--format=github", code=2)
    assert told == "opcheck: the matrix has 257 jobs; expected at most 256, which GitHub allows\n"
    assert len(json.loads(command(text.format(257)))) == 257


def test_a_project_without_a_matrix_is_told_how_to_write_one(command: Command) -> None:
    assert "no matrix here: write [tool.opcheck.matrix]" in command("", code=2)


def test_cases_in_dtypes_that_no_job_has_are_counted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "add.toml").write_text(
        '[[operator]]\nname = "torch.add"\ndtypes = ["all"]\nsamples = [{ args = [{ shape = [2] }, 2] }]\n'
    )

    def left_out(dtypes):
        settings = f'[tool.opcheck]\nspecs = ["add.toml"]\n[tool.opcheck.matrix]\n{dtypes}\n'
        (tmp_path / "pyproject.toml").write_text(settings)
        assert main(["matrix"]) == 0
        return capsys.readouterr().err

    def cases(*options):
        assert main(["list", "--json", *options]) == 0
        return len(json.loads(capsys.readouterr().out))

    assert left_out('dtypes = ["double", ["single", "half"], ["bool", "integral"]]') == ""
    assert left_out("") == ""
    told = left_out('dtypes = ["double", ["single", "half"]]')
    lost = "bool,uint8,int8,int16,int32,int64"
    assert f"{cases('--dtype', lost)} of {cases()} cases will not run; " in told
    assert told.startswith("opcheck: no job tests ")
    assert {"bool", "uint8", "int64"} <= set(told.partition("tests ")[2].partition(" on cpu")[0].split(", "))
