"""`opcheck schema --install`: what it writes, and what it leaves alone."""

from __future__ import annotations

import json

import tomli

from opcheck.planning.vocabulary import vocabulary
from opcheck.settings import Settings
from opcheck.spec.schema import json_schema

CODE = ".vscode/settings.json"
WANTED = {
    "evenBetterToml.schema.enabled": True,
    "evenBetterToml.taplo.configFile.enabled": True,
    "evenBetterToml.taplo.configFile.path": ".taplo.toml",
}


def rule(project, name=".taplo.toml"):
    return tomli.loads((project.folder / name).read_text())["rule"][-1]


def test_it_writes_the_schema_and_settings_for_editors(cli, project):
    run = cli("schema", "--install")
    assert (run.code, run.err) == (0, "")
    assert run.out == "wrote opcheck.schema.json, .taplo.toml, .vscode/settings.json\n"
    settings = Settings.find(project.folder)
    assert json.loads((project.folder / "opcheck.schema.json").read_text()) == json_schema(vocabulary(settings))
    assert rule(project)["include"] == ["specs/**/*.toml"]
    assert rule(project)["exclude"] == ["**/pyproject.toml", "**/.taplo.toml", "**/taplo.toml"]
    assert rule(project)["schema"] == {"path": "opcheck.schema.json"}
    assert json.loads((project.folder / CODE).read_text()) == WANTED


def test_a_second_time_it_changes_nothing(cli, project):
    cli("schema", "--install")
    before = {path: path.stat().st_mtime_ns for path in project.folder.rglob("*") if path.is_file()}
    assert cli("schema", "--install").out == "nothing has changed\n"
    assert {path: path.stat().st_mtime_ns for path in project.folder.rglob("*") if path.is_file()} == before


def test_it_is_the_schema_of_the_project_wherever_it_is_called(cli, project, monkeypatch):
    monkeypatch.chdir(project.folder / "specs")
    assert cli("schema", "--install").code == 0
    assert (project.folder / "opcheck.schema.json").is_file()
    assert not (project.folder / "specs" / "opcheck.schema.json").exists()


def test_files_and_devices_are_covered_and_special_characters_are_escaped(cli, project):
    project.write("one.toml", (project.folder / "specs/good.toml").read_text())
    project.write("more [new]/two.toml", "")
    project.write("devices/npu.toml", '[device]\nname = "npu"\n')
    table = '[tool.opcheck]\nspecs = ["one.toml", "more [new]"]\ndevices = ["devices"]\n'
    project.write("pyproject.toml", table)
    assert cli("schema", "--install").code == 0
    assert rule(project)["include"] == ["one.toml", "more [[]new]/**/*.toml", "devices/*.toml"]


def test_settings_that_exist_are_added_to(cli, project):
    project.write("taplo.toml", "# ours\ninclude = ['**/*.toml']\n\n[[rule]]\nkeys = ['a']\n")
    project.write(CODE, '{"editor.tabSize": 2}')
    assert cli("schema", "--install").code == 0
    assert not (project.folder / ".taplo.toml").exists()
    text = (project.folder / "taplo.toml").read_text()
    assert text.startswith("# ours\n")
    assert len(tomli.loads(text)["rule"]) == 2
    given = json.loads((project.folder / CODE).read_text())
    assert given == {"editor.tabSize": 2, **WANTED, "evenBetterToml.taplo.configFile.path": "taplo.toml"}


def test_what_it_wrote_before_is_replaced_in_its_place(cli, project):
    cli("schema", "--install")
    path = project.folder / ".taplo.toml"
    path.write_text("# before\n" + path.read_text() + "# after\n")
    (project.folder / "specs").rename(project.folder / "claims")
    project.write("pyproject.toml", '[tool.opcheck]\nspecs = ["claims"]\nmodules = ["torch", "demo"]\n')
    assert cli("schema", "--install").out == "wrote .taplo.toml\n"
    text = path.read_text()
    assert len(tomli.loads(text)["rule"]) == 1
    assert rule(project)["include"] == ["claims/**/*.toml"]
    assert text.startswith("# before\n")
    assert text.endswith("# after\n")


def test_settings_that_cannot_be_added_to_are_left_alone_and_told(cli, project):
    for name, text, told in (
        (".taplo.toml", "rule = []\n", "add a rule like this yourself:\n[[rule]]\ninclude = "),
        (CODE, "{ // comment\n}\n", 'add this yourself:\n{\n    "evenBetterToml.schema.enabled": true'),
    ):
        path = project.write(name, text)
        run = cli("schema", "--install")
        assert (run.code, run.out) == (2, "")
        assert run.err.startswith(f"opcheck: {path}: cannot be added to")
        assert told in run.err
        assert path.read_text() == text
        assert not (project.folder / "opcheck.schema.json").exists()
        path.unlink()


def test_comments_are_no_hindrance_once_the_settings_are_there(cli, project):
    lines = json.dumps(WANTED, indent=4).replace("{", "{ // ours")
    project.write(CODE, lines)
    assert cli("schema", "--install").code == 0
    assert (project.folder / CODE).read_text() == lines


def test_a_project_without_specs_is_told(cli, project):
    (project.folder / "specs").rename(project.folder / "other")
    project.write("pyproject.toml", "")
    run = cli("schema", "--install")
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("opcheck: no specs here: ")


def test_a_mistake_in_a_template_of_the_project_is_told(cli, project):
    project.write("specs/own.toml", '[template]\nabout = "own"\n[[samples]]\nargs = ["$width"]\n')
    run = cli("schema", "--install")
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith('specs/own.toml:4:9: unknown parameter "$width"')


def test_taplos_settings_are_no_spec(cli, project):
    project.write("pyproject.toml", '[tool.opcheck]\nspecs = ["."]\nmodules = ["torch", "demo"]\n')
    assert cli("schema", "--install").code == 0
    assert rule(project)["include"] == ["**/*.toml"]
    assert cli("validate").code == 0
