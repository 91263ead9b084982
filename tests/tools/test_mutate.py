"""Mutants are small changes that a careless person might make; the tool tells those that a test notices from others."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parent.parent.parent / "tools" / "mutate.py"


@pytest.fixture(scope="module")
def mutate():
    spec = importlib.util.spec_from_file_location("mutate", PATH)
    module = sys.modules["mutate"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def changed(mutate, line):
    """Return what becomes of a line of a function."""
    source = f"def f(x, y):\n    {line}\n".encode()
    found = mutate.mutants("m.py", source)
    assert all(mutant.line == 2 for mutant in found)
    texts = [mutant.of(source).decode() for mutant in found]
    for text in texts:
        compile(text, "m.py", "exec")
    return {text.split("\n")[1].strip() for text in texts}


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("z = x and not y", {"z = (x)", "z = (not y)", "z = (x or not y)", "z = x and (y)"}),
        ("z = x <= 1e4", {"z = (x < 10000.0)", "z = (x > 10000.0)", "z = x <= 1000000000.0", "z = x <= 0.1"}),
        ("z = (x, 1, y)", {"z = ((1, y))", "z = ((x, y))", "z = ((x, 1))", "z = (x, 2, y)"}),
        ("z = f(x, loop=True)", {"z = (f(x))", "z = f(x, loop=False)"}),
        ("z = (x - y).abs()", {"z = (x - y)", "z = ((x + y)).abs()", "z = ((x)).abs()", "z = ((y)).abs()"}),
        ("z = any(zip(x, y, strict=True))", {"z = (all(zip(x, y, strict=True)))"}),
        ("z = x if y else 3", {"z = (x)", "z = (3)", "z = x if y else 4"}),
        ("x.sort(y)", {"pass"}),
        ("return x", {"return None"}),
        ("z = [a for a in x if a > y]", {"z = [a for a in x if (True)]"}),
    ],
)
def test_a_change_is_one_that_weakens_a_check(mutate, line, some):
    assert some <= changed(mutate, line)


@pytest.mark.parametrize(
    "line",
    [
        "z: int = x",
        "'what it does'",
        "import os",
        "z = f'{x} {1 + y}'",
        "return None",
        "z = zip(x, strict=True)",
        "Z = Literal['a', 'b']",
    ],
)
def test_annotations_texts_and_imports_are_left_alone(mutate, line):
    assert changed(mutate, line) == set()


def test_letters_beyond_ascii_move_no_change(mutate):
    assert changed(mutate, "z = 'ä', x < y") >= {"z = 'ä', (x <= y)"}


def test_tests_are_those_of_the_same_name_and_then_those_of_the_folder(mutate):
    near, all_of_them = mutate.stages("opcheck/derivatives/jacobians.py")
    assert near[0] == "tests/derivatives/test_jacobians.py"
    assert "tests/derivatives/test_projected.py" in near
    assert all_of_them[0] == "tests/derivatives"
    assert mutate.stages("opcheck/derivatives/jacobians.py", near=True) == [near]
    for stem, others in mutate.BESIDES.items():
        parts = ("derivatives", "checks", "running")
        (folder, *_) = [part for part in parts if [*(mutate.ROOT / "opcheck" / part).rglob(f"{stem}.py")]]
        for other in others:
            assert (mutate.ROOT / "tests" / folder / f"test_{other}.py").exists()


@pytest.fixture
def project(mutate, monkeypatch, tmp_path):
    """A package with one module, and tests that look at half of it."""
    (tmp_path / "opcheck" / "checks").mkdir(parents=True)
    (tmp_path / "tests" / "checks").mkdir(parents=True)
    (tmp_path / "opcheck" / "__init__.py").touch()
    (tmp_path / "opcheck" / "checks" / "__init__.py").touch()
    module = "def small(x):\n    return x < 3\n\n\nLARGE = 30\n"
    (tmp_path / "opcheck" / "checks" / "size.py").write_text(module)
    (tmp_path / "tests" / "checks" / "test_size.py").write_text(
        "import sys\nsys.modules.pop('opcheck', None)\n"
        "for name in [name for name in sys.modules if name.startswith('opcheck.')]:\n    del sys.modules[name]\n"
        "from opcheck.checks.size import small\n\n\n"
        "def test_small():\n    assert small(2) and not small(3) and not small(4)\n"
    )
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    monkeypatch.setattr(mutate, "KNOWN", tmp_path / "known.jsonl")
    monkeypatch.setattr(mutate, "EQUIVALENT", tmp_path / "equivalent.toml")
    return tmp_path


def run(mutate, minutes=5.0, **more):
    return mutate.run(["opcheck/checks/size.py"], 0, 0, minutes=minutes, seconds=60, near=True, **more)


@pytest.mark.nightly
def test_survivors_are_printed_with_their_places_and_tried_again_only_where_that_is_asked_for(mutate, project, capsys):
    survivors = run(mutate)
    out = capsys.readouterr().out
    assert "opcheck/checks/size.py:5: 30  ->  31" in out
    assert "opcheck/checks/size.py:2" not in out
    assert survivors == 1
    lines = mutate.KNOWN.read_text().splitlines()
    assert {json.loads(line)["line"] for line in lines} == {2, 5}
    assert run(mutate, minutes=0) == survivors
    assert "left" not in capsys.readouterr().out
    assert mutate.KNOWN.read_text().splitlines() == lines
    # With a test that notices them, too, they are tried again where that is asked for.
    test = project / "tests" / "checks" / "test_size.py"
    more = "from opcheck.checks.size import LARGE\n\n\ndef test_large():\n    assert LARGE == 30\n"
    test.write_text(test.read_text() + more)
    assert run(mutate) == 1
    assert run(mutate, again=True) == 0


def test_without_time_nothing_is_started(mutate, project, capsys):
    assert run(mutate, minutes=0) == 0
    assert "0 mutants, 0 survive, 5 left: run it again" in capsys.readouterr().out


def test_mutants_known_to_do_the_same_are_left_out(mutate, project):
    (project / "equivalent.toml").write_text(
        '[[equivalent]]\nmodule = "opcheck/checks/size.py"\nold = "30"\nnew = "31"\nreason = "large all the same"\n'
    )
    texts = [str(mutant) for mutant, _ in mutate.chosen(["opcheck/checks/size.py"], 0, 0)]
    assert not any("30  ->  31" in text for text in texts)
    assert len(texts) == 4


def test_the_same_seed_gives_the_same_sample(mutate, project):
    def sample(seed):
        return [str(mutant) for mutant, _ in mutate.chosen(["opcheck/checks/size.py"], 3, seed)]

    assert sample(1) == sample(1)
    assert len(sample(1)) == 3
    assert any(sample(1) != sample(seed) for seed in range(2, 9))


def test_the_mutants_listed_as_equivalent_exist_and_have_a_reason(mutate):
    import tomli

    for entry in tomli.loads(mutate.EQUIVALENT.read_text())["equivalent"]:
        assert entry["reason"]
        module = entry["module"]
        found = mutate.mutants(module, (mutate.ROOT / module).read_bytes())
        assert any((mutant.old, mutant.new) == (entry["old"], entry["new"]) for mutant in found), entry
