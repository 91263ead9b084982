"""What the documents claim: links lead somewhere, specs are valid, programs print what is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomli

from opcheck.planning import load
from opcheck.settings import Settings
from opcheck.spec.device_profile import ProfileFile
from opcheck.spec.operator import TemplateFile

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/*.md")])
PYTHON = re.compile(r"^```python\n(.*?)^```\n(?:\n```\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
TOML = re.compile(r"^```toml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROFILE = re.compile(r"^```toml\n# devices/(\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"# \S+\.py\n")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
OPERATOR = '[[operator]]\nname = "torch.add"\n'


def blocks(pattern, where=lambda block: True):
    """Return the blocks of all documents as parameters of a test, named by their lines."""
    found = []
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            if where(match[1]):
                found.append(pytest.param(*match.groups(), id=f"{path.relative_to(ROOT)}:{line}"))
    return found


def is_program(block):
    """Tell whether a block is to be run: those that name a file belong to projects, which have tests of their own."""
    return "gradcheck" in block and "import " in block and not NAMED.match(block)


def anchors(path):
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    for name, anchor in LINK.findall(CODE.sub("", path.read_text(encoding="utf-8"))):
        target = path.parent / name if name else path
        assert target.exists(), name
        assert not anchor or anchor in anchors(target), f"{name}#{anchor}"


@pytest.mark.parametrize(("program", "printed"), blocks(PYTHON, is_program))
def test_programs_print_what_is_shown(program, printed, capsys):
    exec(compile(program, "program", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == (printed or "")


@pytest.mark.parametrize("text", blocks(TOML))
def test_toml_is_valid(text, tmp_path, monkeypatch):
    data = tomli.loads(text)
    if "tool" in data:
        assert Settings.model_validate(data["tool"]["opcheck"]).modules
    elif "template" in data:
        assert TemplateFile.model_validate(data).samples
    elif "project" in data:
        assert data["project"]["entry-points"].keys() & {"opcheck.checks", "opcheck.devices"}
    elif "device" in data:
        assert ProfileFile.model_validate(data).device.name
    elif data:
        monkeypatch.chdir(tmp_path)
        samples = 'samples = [{ use = "unary" }, { name = "empty", args = [{ shape = [0] }] }]\n'
        if "name" not in str(data["operator"]):
            text = OPERATOR + ("" if "samples" in text else samples) + text
        elif "samples" not in text:
            text += samples
        (tmp_path / "spec.toml").write_text(text)
        (tmp_path / "devices").mkdir()
        for document in DOCUMENTS:
            for name, profile in PROFILE.findall(document.read_text(encoding="utf-8")):
                (tmp_path / "devices" / name).write_text(profile)
        settings = Settings(modules=("torch", "mylib", "kornia", "rotations"), devices=(str(tmp_path / "devices"),))
        assert len(load(["spec.toml"], settings)) > 0
    else:
        assert text.startswith("#:schema ")


def test_the_plugin_of_checks_md_adds_a_check(project):
    text = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```python\n(# (\S+).*?\n.*?)^```$", text, re.DOTALL | re.MULTILINE):
        project.write(block[1].rstrip(","), block[0])
    project.write("mylib/__init__.py", "")
    (entry,) = [tomli.loads(block) for block in TOML.findall(text) if "entry-points" in block]
    ((group, points),) = entry["project"]["entry-points"].items()
    listed = "".join(f"{name} = {value}\n" for name, value in points.items())
    project.write("mylib-1.0.dist-info/entry_points.txt", f"[{group}]\n{listed}")
    project.write("mylib-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: mylib\nVersion: 1.0\n")
    done = project.run("python", "-m", "pytest", "specs/good.toml", "-m", "finite", "-v")
    assert done.code == 0, done.out
    assert "demo.double::finite[cpu-float64] PASSED" in done.out
