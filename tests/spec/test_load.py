"""Loading files and folders: which mistakes are found, and where they are said to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from opcheck.planning import load
from opcheck.settings import Settings
from opcheck.spec import Library, SpecError
from opcheck.spec.load import BUILTIN, Catalogue, Loader, builtin_folder

Write = Callable[..., Path]
Load = Callable[..., Library]
Mistakes = Callable[..., list[str]]

SIN = """[[operator]]
name = "torch.sin"
samples = [{ use = "unary" }]
"""


def lines_of(*paths: Path | str, settings: Settings | None = None) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(paths, settings)
    return str(caught.value).splitlines()


class TestFiles:
    def test_a_missing_file_is_named_with_the_nearest_one(self, write: Write) -> None:
        write(SIN, "unary.toml")
        assert lines_of("unari.toml") == [
            "unari.toml:1:1: no such file or folder; expected a TOML file, a folder of them, or builtin; "
            'did you mean "unary.toml"?'
        ]

    def test_a_file_that_pytest_would_not_take_for_a_spec_is_a_mistake(self, write: Write) -> None:
        write(SIN, "unary")
        assert lines_of("unary") == [
            "unary:1:1: the name of a spec ends in .toml; expected a TOML file, a folder of them, or builtin"
        ]

    def test_an_empty_file_lacks_operators(self, mistakes: Mistakes) -> None:
        assert mistakes("") == ['spec.toml:1:1: missing key "operator"; expected at least one [[operator]]']

    def test_broken_toml_is_placed_where_it_breaks(self, mistakes: Mistakes) -> None:
        assert mistakes('[[operator]]\nname = "torch.sin\n') == [
            "spec.toml:2:18: invalid TOML: Illegal character '\\n'"
        ]

    @pytest.mark.parametrize(
        ("python", "toml"), [("True", "true"), ("False", "false"), ("None", "{ none = true }")], ids=str
    )
    def test_a_constant_of_python_comes_with_that_of_toml(self, mistakes: Mistakes, python: str, toml: str) -> None:
        assert mistakes(f"[[operator]]\nreseed = {python}\n") == [
            f'spec.toml:2:10: invalid TOML: Invalid value; did you mean "{toml}"?'
        ]

    @pytest.mark.parametrize(
        ("text", "place"),
        [
            ("reseed = true\nnotes = ''\nreseed = false\nnotes = ''", "4:1"),
            ('tolerance = { "reseed" = 1, "reseed" = 2 }', "2:29"),
            ("tolerance.reseed = 1\ntolerance.reseed = { a = 2 }", "3:11"),
        ],
    )
    def test_a_key_that_is_written_twice_is_named_at_its_second_place(
        self, mistakes: Mistakes, text: str, place: str
    ) -> None:
        (line,) = mistakes(f"[[operator]]\n{text}\n")
        key = '"reseed"' if '"' in text else "reseed"
        assert line == f"spec.toml:{place}: the key {key} is assigned a second time; expected each key once"

    def test_a_key_that_is_written_twice_after_another_mistake_is_not(self, mistakes: Mistakes) -> None:
        (line,) = mistakes("[[operator]]\nreseed = yes\nnotes = 1\nnotes = 2\n")
        assert line == "spec.toml:2:10: invalid TOML: Invalid value"

    def test_inline_tables_may_go_over_several_lines_as_in_toml_1_1(self, mistakes: Mistakes) -> None:
        text = '[[operator]]\nname = "torch.sin"\nsamples = [{\n  use = "unary",\n  lo = 1,\n}]\n'
        (line,) = mistakes(text)
        assert line.startswith('spec.toml:5:3: unknown key "lo"')

    def test_bytes_that_are_not_utf8_are_placed_at_the_first_of_them(self, write: Write) -> None:
        write("", "spec.toml").write_bytes(b'# \xc3\xa9\nname = "\xc3\xa9\xff"\n')
        assert lines_of("spec.toml") == ["spec.toml:2:10: is not UTF-8 text; expected a TOML file"]

    def test_a_byte_order_mark_is_called_by_its_name(self, write: Write) -> None:
        write("", "spec.toml").write_bytes(b"\xef\xbb\xbf" + SIN.encode())
        assert lines_of("spec.toml") == ["spec.toml:1:1: begins with a byte order mark; expected UTF-8 without one"]

    @pytest.mark.parametrize("number", ["-" + "9" * 400, "0x" + "f" * 5000, str(2**63)])
    def test_an_integer_beyond_64_bits_is_a_mistake_like_any_other(self, mistakes: Mistakes, number: str) -> None:
        said = "an integer beyond 64 bits; expected -2^63 to 2^63 - 1"
        assert mistakes(f"y = 1\n  x = [1, {number}]") == [f"spec.toml:2:11: {said}"]

    def test_a_folder_without_specs_is_a_mistake(self, write: Write, tmp_path: Path) -> None:
        write(SIN)
        (tmp_path / "empty").mkdir()
        assert lines_of("empty") == ["empty:1:1: a folder without spec files; expected at least one TOML file"]

    def test_windows_line_ends_do_not_move_the_columns(self, write: Write) -> None:
        write("").write_bytes(b'[[operator]]\r\nname = "torch.sin"\r\n  reseed = 1\r\nsamples = [{ use = "unary" }]')
        assert lines_of("spec.toml") == [
            "spec.toml:3:12: wrong type for reseed: an integer (1); expected true or false"
        ]

    def test_a_file_named_twice_is_loaded_once(self, write: Write) -> None:
        write(SIN, "specs/sin.toml")
        assert [operator.id for operator in load(["specs", "specs/sin.toml"])] == ["torch.sin"]

    def test_operators_come_in_the_order_of_files_and_lines(self, write: Write) -> None:
        write(SIN + SIN.replace("sin", "cos"), "specs/b.toml")
        write(SIN.replace("sin", "tan"), "specs/a.toml")
        assert [operator.id for operator in load(["specs"])] == ["torch.tan", "torch.sin", "torch.cos"]

    def test_the_family_is_the_folder_else_the_file(self, write: Write) -> None:
        write(SIN, "specs/unary/trigonometric.toml")
        write(SIN.replace("sin", "cos"), "specs/waves.toml")
        assert [operator.family for operator in load(["specs"])] == ["unary", "waves"]
        settings = Settings.model_validate({"specs": ["specs"]})
        assert [operator.family for operator in load(["specs/unary/trigonometric.toml"], settings)] == ["unary"]

    def test_builtin_is_the_shipped_library(self, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        assert builtin_folder().is_dir()
        shipped = write(SIN, "shipped/unary/waves.toml").parent.parent
        monkeypatch.setattr(import_module("opcheck.spec.load"), "builtin_folder", lambda: shipped)
        assert [operator.family for operator in load([BUILTIN])] == ["unary"]
        assert [operator.family for operator in load([f"{BUILTIN}/unary/waves.toml"])] == ["unary"]

    def test_the_mistakes_of_all_files_come_at_once_in_the_order_of_files_and_lines(self, write: Write) -> None:
        write(SIN + "reseed = 1\n" + SIN + "tags = 1\n", "specs/b.toml")
        write("x = [", "specs/a.toml")
        assert lines_of("specs", "nowhere") == [
            "nowhere:1:1: no such file or folder; expected a TOML file, a folder of them, or builtin",
            "specs/a.toml:1:6: invalid TOML: Invalid value",
            "specs/b.toml:4:10: wrong type for reseed: an integer (1); expected true or false",
            "specs/b.toml:8:8: wrong type for tags: an integer (1); expected an array",
        ]


class TestTopLevel:
    def test_an_unknown_key_of_the_file_has_the_nearest_name(self, mistakes: Mistakes) -> None:
        assert mistakes(SIN + "[default]\n") == [
            'spec.toml:4:2: unknown key "default"; expected one of defaults, operator; did you mean "defaults"?'
        ]

    def test_a_misspelt_array_of_operators_is_not_also_called_missing(self, mistakes: Mistakes) -> None:
        assert mistakes('[[operators]]\nname = "torch.sin"\n') == [
            'spec.toml:1:3: unknown key "operators"; expected one of defaults, operator; did you mean "operator"?'
        ]

    def test_a_single_table_is_no_array_of_operators(self, mistakes: Mistakes) -> None:
        assert mistakes('[operator]\nname = "torch.sin"\n') == [
            "spec.toml:1:1: operator is not an array of tables; expected [[operator]], in double brackets"
        ]

    def test_defaults_must_be_a_table(self, mistakes: Mistakes) -> None:
        told = "spec.toml:1:12: wrong type for defaults: an integer (3); expected a table"
        assert mistakes("defaults = 3\n" + SIN) == [told]


class TestDefaults:
    def test_an_unknown_key_is_reported_at_its_place_in_the_defaults(self, mistakes: Mistakes) -> None:
        (line,) = mistakes("[defaults]\n  reseeds = true\n" + SIN)
        assert line.startswith(
            'spec.toml:2:3: unknown key "reseeds"; expected one of dtypes, supports, tolerance, imports, variants, '
        )
        assert line.endswith('; did you mean "reseed"?')

    def test_what_only_an_operator_can_say_is_unknown_in_the_defaults(self, mistakes: Mistakes) -> None:
        (line,) = mistakes('[defaults]\nname = "torch.cos"\n' + SIN)
        assert line.startswith(
            'spec.toml:2:1: unknown key "name"; expected one of dtypes, supports, tolerance, imports, variants, '
        )

    def test_expectations_of_an_operator_replace_those_of_the_defaults(self, loaded: Load) -> None:
        entry = '{{ when = {{ check = "{}" }}, outcome = "fail", reason = "known" }}'
        text = f"[defaults]\nexpect = [{entry.format('vmap')}]\n{SIN}"
        text += f"{SIN.replace('sin', 'cos')}expect = [{entry.format('backward')}]\n"
        text += f"{SIN.replace('sin', 'tan')}expect = []\n"
        found = [[expect.when.check for expect in operator.spec.expect] for operator in loaded(text)]
        assert found == [["vmap"], ["backward"], []]

    def test_modules_to_import_are_those_of_the_project(self, mistakes: Mistakes, loaded: Load) -> None:
        assert loaded(f'{SIN}imports = ["mylib.ops"]\n', modules=("torch", "mylib")).operators[0].spec.imports == (
            "mylib.ops",
        )
        assert mistakes(f'{SIN}imports = ["mylib.ops", "os"]\n', modules=("torch", "mylib")) == [
            'spec.toml:4:25: "os" is outside the modules of the project; '
            "expected a module inside mylib (modules of [tool.opcheck])"
        ]
        assert mistakes(f'{SIN}imports = ["a b"]\n') == [
            'spec.toml:4:12: "a b" is not the name of a module; expected a name such as mylib.ops'
        ]

    def test_a_mistake_that_all_operators_inherit_is_reported_once(self, mistakes: Mistakes) -> None:
        text = '[defaults]\nsupports = { backwards = false }\nsamples = [{ use = "unry" }]\n'
        text += '[[operator]]\nname = "torch.sin"\n[[operator]]\nname = "torch.cos"\n'
        key, template = mistakes(text)
        assert key.startswith('spec.toml:2:14: unknown key "backwards"; expected one of backward, forward_ad, ')
        assert key.endswith('; did you mean "backward"?')
        assert template.startswith('spec.toml:3:20: unknown template "unry"; expected one of ')
        assert template.endswith('; did you mean "unary"?')

    def test_a_mistake_that_all_operators_replace_is_reported_too(self, mistakes: Mistakes) -> None:
        assert mistakes("[defaults]\nreseed = 1\n" + SIN + "reseed = true\n") == [
            "spec.toml:2:10: wrong type for reseed: an integer (1); expected true or false"
        ]

    def test_mistakes_of_the_defaults_do_not_hide_those_of_the_operators(self, mistakes: Mistakes) -> None:
        lines = mistakes('[defaults]\nsample = []\n[[operator]]\nname = "torch.sin"\nreseed = 1\n')
        assert [line.split(";")[0] for line in lines] == [
            'spec.toml:2:1: unknown key "sample"',
            "spec.toml:5:10: wrong type for reseed: an integer (1)",
        ]

    def test_tables_are_merged_and_each_part_keeps_its_place(self, mistakes: Mistakes) -> None:
        text = '[defaults]\ndtypes = { forward = ["floatin"] }\n' + SIN + 'dtypes = { backward = ["complx"] }\n'
        forward, backward = mistakes(text)
        assert forward.startswith('spec.toml:2:23: unknown dtype "floatin"; expected a dtype or a group (all, ')
        assert forward.endswith('; did you mean "floating"?')
        assert backward.startswith('spec.toml:6:24: unknown dtype "complx"')

    def test_arrays_are_replaced(self, loaded: Load) -> None:
        (operator,) = loaded('[defaults]\nvariants = ["method", "inplace"]\n' + SIN + 'variants = ["method"]\n')
        assert [variant.kind for variant in operator.variants] == ["function", "method"]


class TestOperators:
    def test_the_second_operator_of_an_id_is_refused(self, mistakes: Mistakes) -> None:
        assert mistakes(SIN + SIN) == [
            'spec.toml:5:8: operator "torch.sin" is described twice; first at spec.toml:2; '
            "expected another name, or a key variant"
        ]

    def test_variants_of_one_name_have_ids_of_their_own(self, loaded: Load) -> None:
        library = loaded(SIN + SIN + 'variant = "slow"\n')
        assert [operator.id for operator in library] == ["torch.sin", "torch.sin[slow]"]
        assert [operator.id for operator in library.find("torch.sin")] == ["torch.sin", "torch.sin[slow]"]
        assert [operator.id for operator in library.find("torch.sin[slow]")] == ["torch.sin[slow]"]

    def test_an_operator_needs_samples(self, mistakes: Mistakes) -> None:
        assert mistakes(SIN + '[[operator]]\nname = "torch.cos"\n') == [
            'spec.toml:4:1: operator "torch.cos" has no samples; expected samples = [...]'
        ]

    def test_an_operator_whose_samples_are_all_left_out_is_refused(self, mistakes: Mistakes) -> None:
        assert mistakes(SIN.replace('use = "unary"', "grid = { a = [1] }, skip = [{ a = 1 }]")) == [
            'spec.toml:3:11: operator "torch.sin" has no samples left; '
            "expected a skip, dtypes or layouts that leave at least one"
        ]

    def test_a_sample_that_runs_in_no_dtype_is_refused(self, mistakes: Mistakes) -> None:
        (line,) = mistakes(
            '[[operator]]\nname = "torch.sin"\nsamples = [{ use = "unary" }, { args = [1], dtypes = [] }]'
        )
        assert line == "spec.toml:3:54: dtypes is empty; expected at least one element"

    def test_a_missing_name_is_reported_at_the_table(self, mistakes: Mistakes) -> None:
        assert mistakes('[[operator]]\nsamples = [{ use = "unary" }]\n') == [
            'spec.toml:1:1: missing key "name"; expected a dotted path such as torch.sin; also the target by default'
        ]

    def test_a_mistake_in_one_key_does_not_hide_those_of_other_stages(self, mistakes: Mistakes) -> None:
        text = """
            [[operator]]
            name = "os.system"
            reseed = 1
            devices = ["cdua"]
            samples = [
              3,
              { use = "unry" },
              { args = [{ shape = [1000, 1000] }] },
            ]
            """
        assert [line.split(";")[0] for line in mistakes(text)] == [
            'spec.toml:2:8: "os.system" is outside the allowed modules',
            "spec.toml:3:10: wrong type for reseed: an integer (1)",
            'spec.toml:4:12: unknown device "cdua"',
            "spec.toml:6:3: wrong type for an element of samples: an integer (3)",
            'spec.toml:7:11: unknown template "unry"',
            "spec.toml:8:13: a tensor of 1000000 elements is too large",
        ]


class TestModules:
    @pytest.mark.parametrize(
        ("line", "column", "path"),
        [
            ('target = "os.path:join"', 10, "os.path:join"),
            ('aliases = ["torch.sine", "os.system"]', 26, "os.system"),
            ('variants = [{ kind = "method", target = "os.system" }]', 41, "os.system"),
            ('errors = [{ args = [{ object = "os.system" }], match = "x" }]', 32, "os.system"),
            ('errors = [{ kwargs = { f = { object = "os.system" } }, match = "x" }]', 39, "os.system"),
        ],
    )
    def test_paths_outside_the_allowed_modules_are_refused(
        self, mistakes: Mistakes, line: str, column: int, path: str
    ) -> None:
        assert mistakes(SIN + line) == [
            f'spec.toml:4:{column}: "{path}" is outside the allowed modules; '
            "expected a path inside torch (modules of [tool.opcheck])"
        ]

    @pytest.mark.parametrize(
        "sample",
        [
            'args = [{ object = "os.system" }]',
            'args = [[1, { tuple = [{ object = "os.system" }] }]]',
            'kwargs = { f = { object = "os.system" } }',
            'grid = { f = [1, { object = "os.system" }] }',
        ],
    )
    def test_objects_anywhere_in_a_sample_are_held_to_the_same_rule(self, mistakes: Mistakes, sample: str) -> None:
        column = f"samples = [{{ {sample}".index('"os.system"') + 1
        assert mistakes(SIN.replace('use = "unary"', sample)) == [
            f'spec.toml:3:{column}: "os.system" is outside the allowed modules; '
            "expected a path inside torch (modules of [tool.opcheck])"
        ]

    def test_the_project_adds_modules_and_their_names_are_suggested(self, mistakes: Mistakes, loaded: Load) -> None:
        text = SIN.replace("torch.sin", "mylib.op")
        assert loaded(text, modules=["torch", "mylib"]).find("mylib.op")
        assert mistakes(text.replace("mylib", "mylob"), modules=["torch", "mylib"]) == [
            'spec.toml:2:8: "mylob.op" is outside the allowed modules; expected a path inside torch, mylib '
            '(modules of [tool.opcheck]); did you mean "mylib"?'
        ]

    def test_a_module_whose_name_only_begins_like_an_allowed_one_is_refused(self, mistakes: Mistakes) -> None:
        (line,) = mistakes(SIN.replace("torch.sin", "torchx.sin"))
        assert line.startswith('spec.toml:2:8: "torchx.sin" is outside the allowed modules')

    def test_references_may_also_come_from_numpy_and_scipy(self, loaded: Load, mistakes: Mistakes) -> None:
        assert loaded(SIN + 'reference = "scipy.special.i0"\n')
        assert mistakes(SIN + 'reference = { target = "os.system" }\n') == [
            'spec.toml:4:24: "os.system" is outside the allowed modules; '
            "expected a path inside torch, numpy, scipy, math, torch._refs (modules of [tool.opcheck])"
        ]


class TestDevices:
    def test_an_unknown_device_has_the_nearest_name(self, mistakes: Mistakes) -> None:
        assert mistakes(SIN + 'devices = ["cpu", "cudaa"]\n') == [
            'spec.toml:4:19: unknown device "cudaa"; expected one of cpu, cuda, mps, xpu; did you mean "cuda"?'
        ]

    @pytest.mark.parametrize(
        ("text", "column"), [("devices = []", 11), ('errors = [{ args = [1], match = "x", devices = [] }]', 48)]
    )
    def test_an_empty_list_would_test_nothing(self, mistakes: Mistakes, text: str, column: int) -> None:
        assert mistakes(SIN + text) == [f"spec.toml:4:{column}: devices is empty; expected at least one element"]

    def test_a_device_that_is_to_refuse_an_input_has_to_be_one(self, mistakes: Mistakes) -> None:
        assert mistakes(SIN + 'errors = [{ args = [1], match = "x", devices = ["cpu", "cudaa"] }]\n') == [
            'spec.toml:4:56: unknown device "cudaa"; expected one of cpu, cuda, mps, xpu; did you mean "cuda"?'
        ]

    def test_overrides_for_an_unknown_device_are_refused_at_its_name(self, mistakes: Mistakes) -> None:
        assert mistakes(SIN + "[operator.per_device.cdua]\nsupports = {}\n") == [
            'spec.toml:4:22: unknown device "cdua"; expected one of cpu, cuda, mps, xpu; did you mean "cuda"?'
        ]

    def test_unknown_support_on_a_device_is_refused(self, mistakes: Mistakes) -> None:
        (line,) = mistakes(SIN + "per_device.cuda.supports.vmapp = false\n")
        assert line.startswith('spec.toml:4:26: unknown key "vmapp"; expected one of backward, forward_ad, ')
        assert line.endswith('; did you mean "vmap"?')

    def test_what_a_device_has_from_the_operator_is_one_mistake_where_it_is_written(self, mistakes: Mistakes) -> None:
        text = SIN + 'supports.vmapp = false\ndtypes = ["flot32"]\ntolerance.atol = -1\n'
        found = mistakes(text)
        assert [line.split(": ")[0] for line in found] == ["spec.toml:4:10", "spec.toml:5:11", "spec.toml:6:18"]
        device = '[operator.per_device.cuda]\nsupports.out = false\ndtypes.backward = "single"\ntolerance.rtol = 1\n'
        assert [line.split(": ")[0] for line in mistakes(text + device)] == [
            "spec.toml:4:10", "spec.toml:5:11", "spec.toml:6:18", "spec.toml:9:19",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("written", "column"), [('"flot32"', 26), ('["flot32"]', 27), ('{ forward = ["flot32"] }', 39)]
    )
    def test_dtypes_of_a_device_are_wrong_where_they_are_written(
        self, written: str, column: int, mistakes: Mistakes
    ) -> None:
        (line,) = mistakes(SIN + f'dtypes = ["floating"]\nper_device.cuda.dtypes = {written}\n')
        assert line.startswith(f'spec.toml:5:{column}: unknown dtype "flot32"; ')


MINE = '[[operator]]\nname = "torch.sin"\nsamples = [{ use = "mine" }]\n'
TEMPLATE = '[template]\nabout = "nothing"\n[[samples]]\nargs = []\n'


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file was read."""
    module = import_module("opcheck.spec.load")
    counted: Counter[str] = Counter()
    read = module.read_bytes

    def counting(path: Path) -> bytes:
        counted[path.name] += 1
        return read(path)

    monkeypatch.setattr(module, "read_bytes", counting)
    return counted


def test_each_file_is_read_once_for_all_loaders(write: Write, reads: Counter[str], tmp_path: Path) -> None:
    write(TEMPLATE, "specs/mine.toml")
    files = [write(MINE.replace("sin", f"sin{number}"), f"specs/{number}.toml") for number in range(20)]
    catalogue = Catalogue()
    for file in files:
        loader = Loader(catalogue=catalogue)
        loader.add(file, tmp_path / "specs")
        assert len(loader.library()) == 1
        assert not loader.problems
    assert reads == dict.fromkeys(["mine.toml", *(file.name for file in files)], 1)


def test_mistakes_are_told_to_everyone_who_meets_them(write: Write, reads: Counter[str], tmp_path: Path) -> None:
    write(TEMPLATE.replace("about", "abut"), "specs/mine.toml")
    files = [write(MINE.replace("sin", name), f"specs/{name}.toml") for name in ("sin", "cos")]
    catalogue = Catalogue()
    for file in files:
        loader = Loader(catalogue=catalogue)
        loader.add(file, tmp_path / "specs")
        assert [problem.file for problem in loader.problems] == ["specs/mine.toml"]
    assert reads["mine.toml"] == 1


def test_a_template_with_mistakes_concerns_the_specs_that_use_it(write: Write, tmp_path: Path) -> None:
    write(TEMPLATE.replace("about", "abut"), "specs/mine.toml")
    other = write(MINE.replace("mine", "unary"), "specs/other.toml")
    loader = Loader()
    loader.add(other, tmp_path / "specs")
    assert len(loader.library()) == 1
    assert not loader.problems
