"""The wheel and the source distribution: built, installed into an environment of their own, and used there."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST"))}
ENVIRONMENT |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


def sources(folder: Path) -> set[str]:
    """Return the files below a folder of the project, relative to it, but for what tools leave there."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    tools = ("__pycache__", "node_modules")
    return {path.as_posix() for path in found if not any(part[0] == "." or part in tools for part in path.parts)}


def ran(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)


def well(*command: str | Path, cwd: Path) -> str:
    """Run a command that must succeed, and return what it prints."""
    done = ran(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """Return a function that fills a folder, once for all processes of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder(name, fill):
        path = root / f"packaging_{name}"
        with FileLock(f"{path}.lock"):
            if not path.exists():
                fill(path)
        return path

    return folder


@pytest.fixture(scope="session")
def built(once):
    """The folder with the wheel and the source distribution, each built from the checkout."""

    def build(path):
        well(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--sdist", "--outdir", path, ROOT, cwd=ROOT)

    return once("dist", build)


@pytest.fixture(scope="session")
def wheel(built):
    return zipfile.ZipFile(*built.glob("*.whl"))


@pytest.fixture(scope="session")
def sdist(built):
    return tarfile.open(*built.glob("*.tar.gz"))


class Installed:
    """A virtual environment with nothing of its own but opcheck: the rest it sees in the environment of these tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python, self.opcheck = folder / "bin" / "python", folder / "bin" / "opcheck"
        (self.site,) = (folder / "lib").glob("python*/site-packages")

    def files(self) -> dict[str, str]:
        """Return what was installed, with checksums, but for what tells how it was."""
        (record,) = self.site.glob("opcheck-*.dist-info/RECORD")
        rows = {name: checksum for name, checksum, _ in csv.reader(record.read_text().splitlines())}
        how = ("direct_url.json", "RECORD", ".pyc")
        return {name: rows[name] for name in rows if not name.startswith("../") and not name.endswith(how)}


def install(archive: Path, folder: Path) -> None:
    """Install an archive into a new environment, whose other packages are links to those beside this interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    others = folder / "others"
    others.mkdir()
    for site in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for path in Path(site).iterdir():
            if path.suffix != ".pth" and not path.name.startswith(("opcheck", "__pycache__")):
                (others / path.name).symlink_to(path)
    (Installed(folder).site / "others.pth").write_text(f"{others}\n")
    # Without an index and with all requirements: pip itself finds that those there are in the declared ranges.
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python")
    well(*pip, "install", "--no-index", "--no-build-isolation", f"{archive}[reference]", cwd=folder)


@pytest.fixture(scope="session")
def installed(built, once):
    """Return a function that gives an environment with the wheel or the source distribution, by its suffix."""

    def environment(suffix):
        (archive,) = built.glob(f"*.{suffix}")
        return Installed(once(f"installed_{suffix}", lambda folder: install(archive, folder)))

    return environment


both = pytest.mark.parametrize("suffix", ["whl", "tar.gz"])


@pytest.fixture
def example(tmp_path):
    """A small project, away from the checkout."""
    return shutil.copytree(ROOT / "examples" / "custom_op", tmp_path / "example", ignore=lambda *_: ["__pycache__"])


def test_the_wheel_holds_the_package_the_library_and_its_findings_and_nothing_else(wheel):
    own = {name.removeprefix("opcheck/") for name in wheel.namelist() if ".dist-info/" not in name}
    library = {f"library/{name}" for name in sources(ROOT / "specs")}
    assert own == sources(ROOT / "opcheck") | library | {f"findings/{name}" for name in sources(ROOT / "findings")}
    template, profile = "spec/builtin/templates/unary.toml", "spec/builtin/devices/cpu.toml"
    assert {"py.typed", template, profile, "library/unary/powers.toml"} <= own


def test_the_source_distribution_holds_what_is_needed_to_test_and_document_it(sdist):
    own = {name.partition("/")[2] for name in sdist.getnames()}
    for folder in ("opcheck", "specs", "findings", "tests", "docs", "examples", "tools", "action", ".ci", ".github"):
        assert {f"{folder}/{name}" for name in sources(ROOT / folder)} <= own
    assert {
        ".pre-commit-hooks.yaml",
        "Makefile",
        "action.yml",
        "constraints.txt",
        "mkdocs.yml",
        "pyproject.toml",
        *(path.name for path in ROOT.glob("*.md")),
    } <= own


@pytest.mark.nightly
def test_both_install_the_same_files(installed):
    files = installed("whl").files()
    assert files == installed("tar.gz").files()
    assert len(files) > 100


@both
@pytest.mark.nightly
def test_it_is_used_from_where_it_was_installed(installed, suffix, example):
    there = installed(suffix)
    code = "import opcheck, importlib.metadata as m; print(opcheck.__file__, m.version('opcheck'), opcheck.__version__)"
    path, version, own = well(there.python, "-c", code, cwd=example).split()
    assert Path(path).parent == there.site / "opcheck"
    assert version == own
    assert well(there.opcheck, "--version", cwd=example) == f"opcheck {version}\n"


@both
@pytest.mark.nightly
def test_the_library_is_inside(installed, suffix, example):
    opcheck = installed(suffix).opcheck
    assert "no mistakes" in well(opcheck, "validate", "builtin", cwd=example)
    assert "logical-inplace-gradient: " in well(opcheck, "report", "finding", cwd=example)
    listed = well(opcheck, "list", "builtin", "--device", "cpu", cwd=example)
    assert listed == well(sys.executable, "-m", "opcheck", "list", "specs", "--device", "cpu", cwd=ROOT)


@both
@pytest.mark.nightly
def test_the_schema_is_printed(installed, suffix, example):
    from opcheck.planning.vocabulary import vocabulary
    from opcheck.spec.schema import json_schema

    assert json.loads(well(installed(suffix).opcheck, "schema", cwd=example)) == json_schema(vocabulary())


@pytest.mark.nightly
def test_opcheck_runs_a_project(installed, example):
    request = ("--operator", "softops.squareplus", "--check", "backward", "--device", "cpu")
    assert "passed" in well(installed("whl").opcheck, "run", *request, cwd=example)


@pytest.mark.nightly
def test_pytest_finds_the_plugin(installed, example):
    request = ("specs", "-n", "1", "-m", "backward and float64 and cpu", "-k", "wrong_logcosh")
    done = ran(installed("whl").python, "-m", "pytest", *request, cwd=example)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "softops.wrong_logcosh::backward[cpu-float64]" in done.stdout
