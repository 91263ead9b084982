"""Dotted paths: what they name, and that they never lead out of the allowed modules."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.nn import functional

from opcheck.samples import Unresolved, resolve

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a module that can be imported, in this test only."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    names: list[str] = []

    def make(name: str, text: str) -> None:
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        names.append(name.split("/")[0])

    yield make
    for name in set(sys.modules) - before:
        if name.split(".")[0] in names:
            del sys.modules[name]


def refusal(path: str, *modules: str) -> Unresolved:
    with pytest.raises(Unresolved) as caught:
        resolve(path, modules or ("torch",))
    return caught.value


class TestWhatPathsName:
    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            ("torch.sin", torch.sin),
            ("torch.nn.functional.relu", functional.relu),
            ("torch:sin", torch.sin),
            ("torch.nn:functional.relu", functional.relu),
            ("torch.Tensor.sin", torch.Tensor.sin),
            ("torch.Tensor.sin_", torch.Tensor.sin_),
            ("torch.Tensor:add", torch.Tensor.add),
            ("torch.Tensor.__add__", torch.Tensor.__add__),
            ("torch.Tensor.norm", torch.Tensor.norm),
            ("torch.ops.aten.sin", torch.ops.aten.sin),
            ("torch.ops.aten.sin.default", torch.ops.aten.sin.default),
            ("torch.special.erf", torch.special.erf),
            ("torch.linalg.eigh", torch.linalg.eigh),
            ("torch.fft.fft", torch.fft.fft),
            ("torch.nn.functional.max_pool2d", functional.max_pool2d),
            ("torch.nn.functional.gelu", functional.gelu),
            ("torch._foreach_sin", torch._foreach_sin),
            ("torch.nn.Linear", torch.nn.Linear),
            ("torch.strided", torch.strided),
            ("torch.float64", torch.float64),
            ("torch.pi", torch.pi),
        ],
    )
    def test_a_path_names_the_object_at_its_end(self, path: str, expected: object) -> None:
        found = resolve(path, ("torch",))
        assert found is expected or found == expected

    def test_modules_are_imported_on_the_way(self, write: Write) -> None:
        write("ops_package/__init__", "")
        write("ops_package/inner", "def double(x): return 2 * x")
        assert resolve("ops_package.inner.double", ("ops_package",))(4) == 8
        assert resolve("ops_package.inner:double", ("ops_package",))(4) == 8

    def test_an_attribute_comes_before_a_module_of_the_same_name(self, write: Write) -> None:
        write("named_package/__init__", "from named_package.double import double")
        write("named_package/double", "def double(x): return 2 * x")
        assert resolve("named_package.double", ("named_package",))(4) == 8

    def test_attributes_of_classes_and_instances_are_found(self, write: Write) -> None:
        write("ops_classes", "class Ops:\n    @staticmethod\n    def double(x): return 2 * x\nops = Ops()")
        assert resolve("ops_classes:Ops.double", ("ops_classes",))(4) == 8
        assert resolve("ops_classes:ops.double", ("ops_classes",))(4) == 8

    def test_a_custom_autograd_function_is_applied(self, write: Write) -> None:
        write(
            "ops_custom",
            "import torch\n"
            "class Double(torch.autograd.Function):\n"
            "    @staticmethod\n    def forward(ctx, x): return 2 * x\n",
        )
        assert resolve("ops_custom.Double.apply", ("ops_custom",))(torch.ones(1)).item() == 2

    def test_what_a_module_takes_from_torch_or_wraps_is_its_own(self, write: Write) -> None:
        write(
            "ops_wrapped",
            "import functools, torch\nfrom torch import sin\n"
            "def power(x, n): return x ** n\nsquare = functools.partial(power, n=2)\n"
            "cached = functools.lru_cache(power)\n",
        )
        assert resolve("ops_wrapped.sin", ("ops_wrapped",)) is torch.sin
        assert resolve("ops_wrapped.square", ("ops_wrapped",))(3) == 9
        assert resolve("ops_wrapped.cached", ("ops_wrapped",))(3, 2) == 9

    def test_references_come_from_numpy_scipy_and_math_where_allowed(self) -> None:
        import math

        import numpy as np
        import scipy.special

        modules = ("torch", "numpy", "scipy", "math")
        assert resolve("numpy.sin", modules) is np.sin
        assert resolve("numpy.linalg.eigh", modules) is np.linalg.eigh
        assert resolve("scipy.special.gammaln", modules) is scipy.special.gammaln
        assert resolve("math.sin", modules) is math.sin


class TestOutside:
    @pytest.mark.parametrize(
        "path",
        [
            "os.system",
            "os:system",
            "builtins.eval",
            "torch.os.system",
            "torch.serialization.os.system",
            "torch.serialization:os.system",
            "torch.nn.functional.math.sin",
            "torch.functional.itertools.chain",
            "torch.__builtins__.get",
            "torch.__loader__.get_data",
            "torch.__spec__.loader.exec_module",
            "torch.sin.__class__",
            "torch.sin.__class__.__base__.__subclasses__",
            "torch.nn.functional.relu.__globals__.get",
            "torch.nn.functional.relu.__code__.replace",
            "torch.nn.functional.Callable",
            "torch.__path__.append",
            "torchevil.run",
        ],
    )
    def test_nothing_outside_the_allowed_modules_is_reached(self, path: str) -> None:
        refusal(path)

    @pytest.mark.parametrize(
        "path",
        [
            "torch.utils.collect_env.run",
            "torch.utils.cpp_extension.load",
            "torch.hub.load",
            "torch.load",
            "torch.save",
            "torch.serialization.load",
            "torch.jit.load",
            "torch.multiprocessing.spawn",
            "torch.ops.load_library",
            "torch.classes.load_library",
            "torch.from_file",
            "torch.package.PackageImporter",
        ],
    )
    def test_nothing_of_torch_that_runs_programs_or_loads_code_is_reached(self, path: str) -> None:
        assert "runs programs, loads code or touches files" in str(refusal(path))

    def test_such_parts_of_torch_can_be_allowed_by_name(self) -> None:
        found = resolve("torch.utils.checkpoint.checkpoint", ("torch", "torch.utils.checkpoint"))
        assert callable(found)
        refusal("torch.utils.collect_env.run", "torch", "torch.utils.checkpoint")

    def test_no_dangerous_builtin_is_reached_through_any_module_of_torch(self) -> None:
        dangerous = {
            id(getattr(builtins, name)) for name in ("eval", "exec", "compile", "open", "__import__", "getattr")
        }
        reached = [
            f"{name}.{attribute}"
            for name, module in list(sys.modules.items())
            if name.split(".")[0] == "torch" and isinstance(module, ModuleType)
            for attribute, value in list(vars(module).items())
            if id(value) in dangerous and attribute.isidentifier()
        ]
        for path in reached:
            refusal(path)

    @pytest.mark.parametrize("path", ["torch.nn", "torch.nn.functional", "torch.ops", "torch.ops.aten", "torch"])
    def test_a_module_is_no_operator(self, path: str) -> None:
        assert str(refusal(path)) == f'"{path}" is a module'

    @pytest.mark.parametrize(
        "text",
        [
            "from os import system as run",
            "run = eval",
            "run = __import__",
            "from subprocess import Popen as run",
            "import os, functools\nrun = functools.partial(os.system)",
            "import os\nrun = os.system",
            "import subprocess\nrun = subprocess",
            "class Inner:\n    from subprocess import call\nrun = Inner.call",
            "run = {}.get",
            "from pathlib import Path\nrun = Path.unlink",
            "import logging\nrun = logging.getLogger().error",
        ],
    )
    def test_what_an_allowed_module_imported_from_elsewhere_is_refused(self, text: str, write: Write) -> None:
        write("ops_leaky", text)
        assert "outside the allowed modules" in str(refusal("ops_leaky.run", "ops_leaky", "torch"))

    def test_the_way_through_a_class_from_elsewhere_is_closed(self, write: Write) -> None:
        write("ops_paths", "from pathlib import Path\nhere = Path('.')")
        assert "pathlib" in str(refusal("ops_paths.Path.unlink", "ops_paths"))
        refusal("ops_paths.here.unlink", "ops_paths")

    def test_a_module_whose_name_only_begins_like_an_allowed_one_is_another(self, write: Write) -> None:
        write("torch_like", "def run(): pass")
        refusal("torch_like.run")
        write("ops_mixed", "from torch_like import run")
        assert "torch_like" in str(refusal("ops_mixed.run", "ops_mixed", "torch"))

    def test_only_the_allowed_part_of_a_package_is_open(self, write: Write) -> None:
        write("parted/__init__", "")
        write("parted/ops", "def double(x): return 2 * x")
        write("parted/tools", "def erase(): pass")
        assert resolve("parted.ops.double", ("parted.ops",))(1) == 2
        assert "outside the allowed modules (parted.ops)" in str(refusal("parted.tools.erase", "parted.ops"))


class TestMistakes:
    @pytest.mark.parametrize(
        ("path", "hint"),
        [
            ("torch.sinn", "torch.sin"),
            ("torch.nn.fucntional.relu", "torch.nn.functional.relu"),
            ("torch.Tensor.sinn_", "torch.Tensor.sin_"),
            ("torch.linalg.choleskyy", "torch.linalg.cholesky"),
            ("torch.qqqqqqqqqqqq", ""),
        ],
    )
    def test_a_missing_name_comes_with_the_nearest_one(self, path: str, hint: str) -> None:
        error = refusal(path)
        assert error.hint == hint
        assert "has no attribute" in str(error)

    def test_the_message_says_which_part_is_missing(self) -> None:
        assert str(refusal("torch.nn.nothing.relu")) == '"torch.nn.nothing.relu": torch.nn has no attribute "nothing"'

    def test_operators_that_nobody_registered_are_missing(self) -> None:
        assert "has no attribute" in str(refusal("torch.ops.nobody.registered"))
        assert "has no attribute" in str(refusal("torch.ops.aten.no_such_operator"))

    def test_a_module_that_does_not_exist_is_named(self) -> None:
        assert str(refusal("no_such_module.f", "no_such_module")) == 'no module named "no_such_module"'

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("raise OSError('no kernel')", "OSError: no kernel"),
            ("import no_such_dependency", "No module named 'no_such_dependency'"),
            ("import sys; sys.exit(3)", "SystemExit: 3"),
            ("def f(:", "SyntaxError"),
            ("from torch import no_such_name", "ImportError"),
        ],
    )
    def test_a_module_that_fails_to_import_says_why(self, text: str, reason: str, write: Write) -> None:
        write("ops_broken", text)
        error = str(refusal("ops_broken.f", "ops_broken"))
        assert error.startswith('importing "ops_broken" failed: ')
        assert reason in error

    def test_a_lazy_attribute_that_fails_is_missing(self, write: Write) -> None:
        write("ops_lazy", "def __getattr__(name):\n    raise ImportError('no extra')")
        assert "no extra" in str(refusal("ops_lazy.f", "ops_lazy"))

    def test_an_error_keeps_its_hint(self) -> None:
        assert (str(Unresolved("what", "hint")), Unresolved("what", "hint").hint) == ("what", "hint")
        assert Unresolved("what").hint == ""
