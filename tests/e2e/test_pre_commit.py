"""The hooks for pre-commit, as a project uses them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="pre-commit, of the extra `dev`, is not installed")
pytest.importorskip("pre_commit", reason="pre-commit, of the extra `dev`, is not installed")

MANIFEST = Path(__file__).resolve().parent.parent.parent / ".pre-commit-hooks.yaml"


@pytest.fixture
def commit(project, tmp_path):
    """Return a function that runs a hook of opcheck over a project in git, and gives its exit code and output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PRE_COMMIT_HOME": str(tmp_path / "cache"),
    }

    def call(*words):
        return subprocess.run(
            words, cwd=project.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False,
        )  # fmt: skip

    def run(hook, *files):
        assert call("git", "add", "--all").returncode == 0
        chosen = ["--files", *files] if files else ["--all-files"]
        done = call(sys.executable, "-m", "pre_commit", "run", hook, *chosen)
        return done.returncode, done.stdout

    assert call("git", "init", "--quiet").returncode == 0
    # As local hooks: pre-commit would clone a repository, and that has what was committed last.
    hooks = yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))
    project.write(".pre-commit-config.yaml", yaml.safe_dump({"repos": [{"repo": "local", "hooks": hooks}]}))
    return run


def test_the_manifest_is_valid():
    validate = (sys.executable, "-m", "pre_commit", "validate-manifest", str(MANIFEST))
    done = subprocess.run(validate, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_good_specs_pass_and_bad_ones_do_not(commit, project):
    code, shown = commit("opcheck-validate")
    assert (code, "Passed" in shown) == (0, True), shown
    project.write("specs/sub/wrong.toml", '[[operator]]\nname = "torch.sin"\nsamples = [{ use = "unari" }]\n')
    code, shown = commit("opcheck-validate", "specs/sub/wrong.toml")
    assert code == 1
    assert 'specs/sub/wrong.toml:3:20: unknown template "unari"' in shown


def test_a_change_of_the_settings_is_validated_and_one_of_the_code_is_not(commit):
    assert "Passed" in commit("opcheck-validate", "pyproject.toml")[1]
    assert "Skipped" in commit("opcheck-validate", "demo.py")[1]


def test_a_schema_that_is_out_of_date_is_told_and_written(commit, project):
    assert commit("opcheck-schema")[0] == 0
    assert (project.folder / "opcheck.schema.json").is_file()
    assert commit("opcheck-schema")[0] == 0
    project.write("specs/own.toml", '[template]\nabout = "own"\n[[samples]]\nargs = [1]\n')
    code, shown = commit("opcheck-schema", "specs/own.toml")
    assert (code, "files were modified by this hook" in shown) == (1, True), shown
    assert '"own"' in (project.folder / "opcheck.schema.json").read_text()
