"""Fixtures that write specs, and run them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

pytest_plugins = ["pytester"]

os.environ.setdefault("OMP_NUM_THREADS", "1")  # pytest-xdist uses the cores: more threads only wait for each other

Outcomes = Callable[..., "dict"]
Write = Callable[..., Path]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="run the tests that are marked as nightly, too")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one more than there are cores, for `-n auto`: tests often wait for processes that they start."""
    return 1 + (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is for the night; pytest counts it as deselected."""
    if config.getoption("nightly"):
        return
    later = [item for item in items if item.get_closest_marker("nightly")]
    if later:
        config.hook.pytest_deselected(items=later)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> Iterator[None]:
    """Heed SIGINT, here and in the processes that tests start: a shell has its jobs in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file into the current folder, which is an empty one."""
    monkeypatch.chdir(tmp_path)

    def write_file(text: str, name: str = "spec.toml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
        return path

    return write_file


@pytest.fixture
def torch_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Pretend that a version of torch is installed ("": that none is)."""

    from opcheck.spec import versions

    def pretend(version: str) -> None:
        monkeypatch.setattr(versions, "torch_version", lambda: version)

    return pretend


@pytest.fixture
def outcomes(tmp_path: Path) -> Outcomes:
    """Return a function that runs a spec on the CPU and gives outcomes by case id. Keywords select, as in Selection."""
    from opcheck.planning import Selection, load, plan
    from opcheck.running.runner import run
    from opcheck.running.session import RunSession
    from opcheck.settings import Settings
    from opcheck.spec.device_profile import profiles

    def run_spec(text: str, *, seed: int = 0, overrides: dict | None = None, **selection: tuple[str, ...]) -> dict:
        path = tmp_path / "spec.toml"
        path.write_text(text)
        settings = Settings(modules=("torch", "operators"))
        session = RunSession(settings, **(overrides or {}))
        wanted = Selection(**selection, engine=session.engine)
        cases = plan(load([path], settings), [profiles()["cpu"]], wanted, seed)
        return {case.id: run(case, session) for case in cases}

    return run_spec


@pytest.fixture
def verdict_of(outcomes: Outcomes) -> Callable[..., object]:
    """Return a function that runs one check of one operator in one dtype, and gives the outcome."""

    def run_check(operator: str, check: str, dtype: str = "float64", keys: str = "", samples: str = "") -> object:
        given = samples or "samples = [{ args = [{ shape = [2, 3], low = 0.5 }] }]"
        text = f'[[operator]]\nname = "{operator}"\n{keys}\n{given}\n'
        found = outcomes(text, checks=(check,), dtypes=(dtype,))
        own = [outcome for outcome in found.values() if outcome.variant == "function"]
        assert len(own) == 1, f"{len(own)} cases of {check} in {dtype}: {list(found)}"
        return own[0]

    return run_check
