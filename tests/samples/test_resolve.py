"""Dotted paths: what they name, and that they never lead out of the allowed modules."""

from __future__ import annotations

import builtins
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.nn import functional
from torch.overrides import get_overridable_functions

from opcheck.planning import load
from opcheck.samples.resolve import Unresolved, is_member, resolve, resolve_operator
from opcheck.spec.allow_list import PARTS, REGISTERED
from opcheck.spec.limits import REFERENCE_MODULES

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
            ("torch.channels_last", torch.channels_last),
            ("torch.einsum", torch.einsum),
            ("torch.lobpcg", torch.lobpcg),
            ("torch.sparse.mm", torch.sparse.mm),
            ("torch.sparse.sum", torch.sparse.sum),
            ("torch.signal.windows.hann", torch.signal.windows.hann),
            ("torch.masked.logsumexp", torch.masked.logsumexp),
            ("torch.nested.nested_tensor", torch.nested.nested_tensor),
            ("torch.distributions.Normal", torch.distributions.Normal),
            ("torch.distributions.kl_divergence", torch.distributions.kl_divergence),
            ("torch.distributions.Normal.rsample", torch.distributions.Normal.rsample),
            ("torch.distributions.LogNormal.rsample", torch.distributions.TransformedDistribution.rsample),
            ("torch.nn.utils.parametrizations.weight_norm", torch.nn.utils.parametrizations.weight_norm),
            ("torch.nn.utils.rnn.pack_sequence", torch.nn.utils.rnn.pack_sequence),
            ("torch.ops.prims.sin", torch.ops.prims.sin),
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

    def test_references_come_from_numpy_scipy_and_math_where_allowed(self) -> None:
        import math

        import numpy as np
        import scipy.special

        modules = ("torch", "numpy", "scipy", "math")
        assert resolve("numpy.sin", modules) is np.sin
        assert resolve("numpy.linalg.eigh", modules) is np.linalg.eigh
        assert resolve("scipy.special.gammaln", modules) is scipy.special.gammaln
        assert resolve("math.sin", modules) is math.sin


OPERATORS = """
import torch
import warnings
from functools import lru_cache, partial, wraps

def power(x, n=2): return x ** n

def traced(function):
    @wraps(function)
    def wrapper(*args): return function(*args)
    return wrapper

decorated = traced(power)
@traced
@torch.no_grad()
def twice_decorated(x): return power(x)
square = partial(power, n=2)
gelu = partial(torch.nn.functional.gelu, approximate="tanh")
cached = lru_cache(power)
vectorized = torch.vmap(power)
gradient = torch.func.grad(lambda x: power(x).sum())

class Power:
    def __call__(self, x): return power(x)
    def method(self, x): return power(x)
    @classmethod
    def of_class(cls, x): return power(x)
    @staticmethod
    def of_none(x): return power(x)
    decorated = traced(power)

instance = Power()
bound = instance.method

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x ** 2

apply = Square.apply

class Module(torch.nn.Module):
    def forward(self, x): return power(x)

module = Module()
linear = torch.nn.Identity()
with warnings.catch_warnings(record=True):  # torch.jit.script is deprecated
    scripted = torch.jit.script(torch.nn.ReLU())

@torch.library.custom_op("ops_of_users::square", mutates_args=())
def registered(x: torch.Tensor) -> torch.Tensor:
    return x ** 2

packet = torch.ops.ops_of_users.square
EPSILON = 0.5
SIZES = (2, 3)
TENSOR = torch.ones(2)
DTYPE = torch.float64

class Kind(__import__("enum").Enum):
    FAST = 1
"""
FOUR = {
    "power", "decorated", "twice_decorated", "square", "cached", "vectorized", "Power.of_class", "Power.of_none",
    "instance", "instance.method", "instance.of_class", "bound", "Square.apply", "apply", "module", "module.forward",
    "registered", "packet", "Power.decorated",
}  # fmt: skip
"""What squares, called with a tensor of 2."""
CONSTANTS = {"EPSILON", "SIZES", "TENSOR", "DTYPE", "Kind.FAST"}


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    """A project with operators of all kinds, and what it allows."""
    folder = tmp_path_factory.mktemp("users")
    (folder / "ops_of_users.py").write_text(OPERATORS)
    sys.path.insert(0, str(folder))
    yield ("torch", "ops_of_users")
    sys.path.remove(str(folder))
    sys.modules.pop("ops_of_users", None)


class TestWhatProjectsDefine:
    @pytest.mark.parametrize("name", sorted(FOUR))
    def test_operators_of_all_kinds_resolve(self, name: str, modules: tuple[str, ...]) -> None:
        assert resolve(f"ops_of_users.{name}", modules)(torch.tensor([2.0])).item() == 4

    @pytest.mark.parametrize("name", ["gelu", "gradient", "linear", "scripted"])
    def test_what_torch_makes_of_them_resolves(self, name: str, modules: tuple[str, ...]) -> None:
        assert isinstance(resolve(f"ops_of_users.{name}", modules)(torch.tensor([2.0])), torch.Tensor)

    @pytest.mark.parametrize("name", sorted(CONSTANTS))
    def test_constants_resolve(self, name: str, modules: tuple[str, ...]) -> None:
        assert resolve(f"ops_of_users.{name}", modules) is not None

    @pytest.mark.parametrize("path", ["torch.ops.ops_of_users.square", "torch.ops.ops_of_users.square.default"])
    def test_operators_that_the_project_registers_resolve(self, path: str, modules: tuple[str, ...]) -> None:
        resolve("ops_of_users.power", modules)  # imports it
        assert resolve(path, modules)(torch.tensor([2.0])).item() == 4
        assert resolve(path, ("torch", "torch.ops.ops_of_users"))(torch.tensor([2.0])).item() == 4

    def test_operators_of_another_namespace_are_refused_with_what_to_add(self) -> None:
        assert str(refusal("torch.ops.inductor._reinterpret_tensor")) == (
            '"torch.ops.inductor._reinterpret_tensor": the operators of "inductor" are outside the allowed modules; '
            'expected "torch.ops.inductor" among the modules of [tool.opcheck]'
        )

    def test_private_names_of_registered_operators_are_names_like_any_other(self, write: Write) -> None:
        write(
            "ops_private",
            "import torch\n"
            "@torch.library.custom_op('ops_private::_square', mutates_args=())\n"
            "def square(x: torch.Tensor) -> torch.Tensor: return x ** 2\n",
        )
        resolve("ops_private.square", ("ops_private",))
        assert resolve("torch.ops.ops_private._square", ("torch", "ops_private"))(torch.ones(1)).item() == 1

    def test_functions_in_c_resolve(self) -> None:
        import zlib

        from scipy.fft._pocketfft import pypocketfft

        assert resolve("zlib.crc32", ("zlib",)) is zlib.crc32
        of_pybind = "scipy.fft._pocketfft.pypocketfft"
        assert resolve(f"{of_pybind}.c2c", (of_pybind,)) is pypocketfft.c2c

    def test_a_private_module_is_open_where_the_project_names_it(self, write: Write) -> None:
        write("with_c/__init__", "")
        write("with_c/_kernels", "def double(x): return 2 * x")
        assert str(refusal("with_c._kernels.double", "with_c")) == (
            '"with_c._kernels.double": "_kernels" is private; '
            'expected public names, or "with_c._kernels" among the modules of [tool.opcheck]'
        )
        assert resolve("with_c._kernels.double", ("with_c", "with_c._kernels"))(4) == 8

    def test_a_submodule_may_be_named_where_it_is_defined_and_where_it_is_taken_to(self, write: Write) -> None:
        write("reexporting/__init__", "from reexporting.inner import double")
        write("reexporting/inner", "def double(x): return 2 * x")
        assert resolve("reexporting.double", ("reexporting",))(4) == 8
        assert resolve("reexporting.inner.double", ("reexporting",))(4) == 8


class TestReexports:
    def test_what_comes_from_elsewhere_is_refused_with_what_to_add(self, write: Write) -> None:
        write("elsewhere", "def double(x): return 2 * x")
        write("reexports", "from elsewhere import double")
        assert str(refusal("reexports.double", "reexports")) == (
            '"reexports.double" is defined in the module elsewhere, outside the allowed modules; if this is intended, '
            'add "double" to __all__ of reexports, or write modules = [..., "elsewhere"] under [tool.opcheck]'
        )
        assert resolve("reexports.double", ("reexports", "elsewhere"))(4) == 8

    @pytest.mark.parametrize("listed", ["['double', 'sin', 'missing']", "('double', 'sin')"])
    def test_what_is_exported_on_purpose_resolves(self, listed: str, write: Write) -> None:
        write("elsewhere", "def double(x): return 2 * x")
        write("exports", f"from elsewhere import double\nfrom torch import sin\n__all__ = {listed}")
        assert resolve("exports.double", ("exports",))(4) == 8
        assert resolve("exports.sin", ("exports",)) is torch.sin

    def test_nothing_is_suggested_to_be_opened_that_is_better_closed(self, write: Write) -> None:
        write("careless", "import os, subprocess\nfrom os import system")
        assert str(refusal("careless.system", "careless")).endswith(
            'if this is intended, add "system" to __all__ of careless'
        )
        assert str(refusal("careless.os.system", "careless")) == (
            '"careless.os.system" leads to the module os, outside the allowed modules'
        )

    def test_an_exported_module_or_class_opens_nothing_behind_it(self, write: Write) -> None:
        write("generous", "import os\nfrom pathlib import Path\n__all__ = ['os', 'Path']")
        assert "leads to the module os" in str(refusal("generous.os.system", "generous"))
        assert "pathlib" in str(refusal("generous.Path.unlink", "generous"))


class TestNothingIsComputed:
    TEXT = (
        "touched = []\n"
        "class Meta(type):\n"
        "    def __getattr__(cls, name): touched.append(name); return print\n"
        "class Described:\n"
        "    def __get__(self, *_): touched.append('descriptor'); return print\n"
        "class Ops(metaclass=Meta):\n"
        "    described = Described()\n"
        "    @property\n"
        "    def computed(self): touched.append('property'); return print\n"
        "    def __getattr__(self, name): touched.append(name); return print\n"
        "ops = Ops()\n"
    )

    @pytest.mark.parametrize("path", ["ops.computed", "ops.described", "Ops.described", "ops.missing", "Ops.missing"])
    def test_neither_properties_nor_descriptors_nor_getattr_are_evaluated(self, path: str, write: Write) -> None:
        write("computing", self.TEXT)
        refusal(f"computing.{path}", "computing")
        assert sys.modules["computing"].touched == []

    def test_no_part_of_torch_is_loaded_that_was_not(self) -> None:
        before = set(sys.modules)
        for path in ("torch.onnx", "torch.onnx.export", "torch._inductor.compile", "torch.nowhere", "torch.fx.wrap"):
            refusal(path)
        assert set(sys.modules) == before


def test_every_name_of_the_shipped_library_resolves() -> None:
    modules = ("torch",)
    for operator in load(["builtin"]):
        spec = operator.spec
        if not operator.is_in_this_torch:
            continue
        for path in [variant.path for variant in operator.variants] + list(spec.aliases):
            assert callable(resolve(path, modules))
        if spec.reference is not None:
            path = spec.reference if isinstance(spec.reference, str) else spec.reference.target
            assert callable(resolve(path, (*modules, *REFERENCE_MODULES)))


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
        assert path.split(".")[0] in str(refusal(path))

    @pytest.mark.parametrize(
        "path",
        [
            "torch.utils.collect_env.run",
            "torch.utils.cpp_extension.load",
            "torch.hub.load",
            "torch.serialization.load",
            "torch.jit.load",
            "torch.multiprocessing.spawn",
            "torch.classes.load_library",
        ],
    )
    def test_only_listed_parts_of_torch_are_reached(self, path: str) -> None:
        error = str(refusal(path))
        assert error.startswith(f'"{path}" is not in a part of torch that specs may name; expected a name in torch, ')

    @pytest.mark.parametrize(
        ("path", "what"),
        [
            *((f"torch.{name}", "no operator and no constant") for name in ("load", "save", "manual_seed", "Size")),
            *((f"torch.Tensor.{name}", "no method and no attribute") for name in ("grad", "data", "grad_fn", "shape")),
            ("torch.linalg.LinAlgError", "no operator"),
            ("torch.nn.factory_kwargs", "no class of modules and no class of options"),
            ("torch.distributions.identity_transform", "no distribution and no method of a distribution"),
            ("torch.ops.aten.len", "no operator on tensors"),
        ],
    )
    def test_of_those_parts_only_what_is_of_the_kinds_listed_is_reached(self, path: str, what: str) -> None:
        assert str(refusal(path)) == f'"{path}" may not be named in a spec: it is {what}'

    @pytest.mark.parametrize("path", [f"{part}.{name}" for part, listed in PARTS.items() for name in listed.never])
    def test_what_is_never_to_be_called_is_refused_by_its_name(self, path: str) -> None:
        what = "it deals with files, raw memory, hooks or the state of the process"
        assert str(refusal(path, "torch", "numpy", "scipy")) == f'"{path}" may not be named in a spec: {what}'

    def test_nor_is_it_reached_by_another_name(self, write: Write) -> None:
        write(
            "renaming",
            "import functools, torch\n"
            "read = torch.from_file\n"
            "again = functools.partial(torch.from_file, size=2)\n"
            "write = functools.partial(torch.Tensor.set_)\n"
            "sine = functools.partial(torch.sin)\n",
        )
        for name in ("read", "again", "write"):
            assert "outside the allowed modules" in str(refusal(f"renaming.{name}", "renaming", "torch"))
        assert callable(resolve("renaming.sine", ("renaming", "torch")))

    def test_other_parts_of_torch_can_be_allowed_by_name(self) -> None:
        found = resolve("torch.utils.checkpoint.checkpoint", ("torch", "torch.utils.checkpoint"))
        assert callable(found)
        refusal("torch.utils.collect_env.run", "torch", "torch.utils.checkpoint")

    def test_no_dangerous_builtin_is_reached_through_any_module_of_torch(self) -> None:
        dangerous = ("eval", "exec", "compile", "open", "__import__", "getattr")
        reached = [
            f"{name}.{attribute}{rest}"
            for name, module in list(sys.modules.items())
            if name.split(".")[0] == "torch" and isinstance(module, ModuleType)
            for attribute, value in list(vars(module).items())
            if attribute.isidentifier()
            for rest in ([f".{one}" for one in dangerous] if value is builtins else [""])
            if value is builtins or any(value is getattr(builtins, one) for one in dangerous)
        ]
        assert reached
        for path in reached:
            assert path.split(".")[0] in str(refusal(path))

    @pytest.mark.parametrize(
        "path",
        ["torch.nn", "torch.nn.functional", "torch.ops", "torch.ops.aten", "torch", "torch.nn.init", "torch.linalg"],
    )
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
        write("split_results/__init__", "")
        write("split_results/ops", "def double(x): return 2 * x")
        write("split_results/tools", "def erase(): pass")
        assert resolve("split_results.ops.double", ("split_results.ops",))(1) == 2
        assert "outside the allowed modules; expected a path inside split_results.ops" in str(
            refusal("split_results.tools.erase", "split_results.ops")
        )


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
        assert "has no attribute" in str(error) or "is not in a part of torch" in str(error)

    def test_the_message_says_which_part_is_missing(self) -> None:
        assert str(refusal("torch.nn.nothing")) == '"torch.nn.nothing": torch.nn has no attribute "nothing"'

    def test_operators_that_nobody_registered_are_missing(self) -> None:
        unregistered = str(refusal("torch.ops.nobody.registered", "torch", "nobody"))
        assert unregistered.endswith('has no attribute "registered"; list the module that registers it under imports')
        assert "has no attribute" in str(refusal("torch.ops.aten.no_such_operator"))
        assert "has no attribute" in str(refusal("torch.ops.aten.sin.no_such_overload"))

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
            ("class E(Exception):\n    def __str__(self):\n        raise OSError\nraise E", "__str__ raised OSError"),
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


MODULES = ("torch", "operators")


@pytest.mark.parametrize("path", ["torch.sin", "torch.Tensor.add_", "torch.ops.aten.sin", "operators.right.square"])
def test_a_callable_is_an_operator(path: str) -> None:
    assert callable(resolve_operator(path, MODULES))


def test_the_apply_of_a_function_of_autograd_is_an_operator() -> None:
    assert resolve_operator("operators.results.Cube.apply", MODULES)(torch.ones(1)).item() == 1


@pytest.mark.parametrize(
    ("path", "what", "hint"),
    [
        (
            "operators.results.Scale",
            "is a class, and a module has to be constructed first (in a spec, say how: module = { args = [...] })",
            "",
        ),
        ("operators.results.Result", "is a class, and calling it creates an object; name a function", ""),
        (
            "operators.results.Cube",
            "is a torch.autograd.Function; name its apply",
            "operators.results.Cube.apply",
        ),
        ("torch.pi", "is not a function but float", ""),
    ],
)
def test_what_is_no_function_is_refused_with_the_reason(path: str, what: str, hint: str) -> None:
    with pytest.raises(Unresolved) as caught:
        resolve_operator(path, MODULES)
    assert (str(caught.value), caught.value.hint) == (f'"{path}" {what}', hint)


LOOKED_AT = """
    align_tensors arange as_strided as_subclass as_tensor asarray assert_int_or_pair bartlett_window blackman_window
    broadcast_shapes can_cast cholesky cudnn_affine_grid_generator cudnn_batch_norm cudnn_convolution
    cudnn_convolution_add_relu cudnn_convolution_relu cudnn_convolution_transpose cudnn_grid_sampler
    cudnn_is_acceptable eig empty empty_permuted empty_quantized empty_strided eye fftfreq fill from_numpy full
    grouped_mm hamming_window hann_window hardsigmoid hardswish is_vulkan_available kaiser_window linspace logspace
    lstsq matrix_rank miopen_ctc_loss mkldnn_adaptive_avg_pool2d mkldnn_convolution mkldnn_linear_backward_weights
    mkldnn_max_pool2d mkldnn_max_pool3d mkldnn_rnn_layer new new_empty new_empty_strided new_full new_ones new_tensor
    new_zeros normal ones promote_types qr rand rand_like randint randint_like randn randn_like randperm range
    reinforce result_type rfftfreq scalar_tensor scaled_addmm scaled_grouped_mm scaled_mm segment_reduce sigmoid solve
    sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor
    stride sym_constrain_range sym_constrain_range_for_size symeig tanh tensor to_padded_tensor to_sparse_bsc
    to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr tril_indices triu_indices unflatten upsample
    upsample_bilinear upsample_nearest vander zeros
"""
"""Functions that may be named, and that torch does not let other classes override: mostly since they take no tensor."""


TORCH = [part for part in PARTS if part.startswith("torch") and not part.startswith("torch.ops.")]


def holder(namespace: str) -> object:
    return torch.Tensor if namespace == "torch.Tensor" else importlib.import_module(namespace)


def nameable(namespace: str) -> Iterator[str]:
    for name in dir(holder(namespace)):
        try:
            resolve(f"{namespace}.{name}", ("torch",))
        except Unresolved:
            continue
        yield name


@pytest.mark.parametrize("namespace", ["torch", "torch.Tensor", "torch.nn.functional", "torch.fft", "torch.linalg"])
def test_a_function_that_may_be_named_takes_tensors_or_was_looked_at(namespace: str) -> None:
    """torch lists the functions that take tensors: those that `__torch_function__` can override."""
    take_tensors = {id(function) for functions in get_overridable_functions().values() for function in functions}
    others = {
        name
        for name in nameable(namespace)
        if callable(getattr(holder(namespace), name))
        and id(getattr(holder(namespace), name)) not in take_tensors
        and not name.startswith("_foreach_")
        and not name.endswith("_")
    }
    assert others <= set(LOOKED_AT.split())


@pytest.mark.parametrize("namespace", TORCH)
def test_nothing_that_sets_loads_or_saves_may_be_named(namespace: str) -> None:
    telling = (
        "set_",
        "load",
        "save",
        "register",
        "seed",
        "manual",
        "enable",
        "disable",
        "get_default",
        "use_",
        "from_f",
    )
    assert [name for name in nameable(namespace) if name.startswith(telling)] == []


def is_typing(value: object) -> bool:
    """Return whether a value is from typing, such as List, which modules of torch import for their annotations."""
    return (getattr(value, "__module__", None) or type(value).__module__).startswith("typing")


@pytest.mark.parametrize("namespace", TORCH)
def test_what_may_be_named_is_most_of_what_is_public(namespace: str) -> None:
    """So that the list stays open to operators: refused are modules, classes, and a few functions."""
    public = {
        name
        for name, value in inspect.getmembers(holder(namespace))
        if not name.startswith("_") and callable(value) and not isinstance(value, type) and not is_typing(value)
    }
    assert len(public - set(nameable(namespace))) <= {"torch": 130, "torch.Tensor": 20}.get(namespace, 6)


def test_each_kind_of_the_list_has_a_test() -> None:
    for part, listed in (*PARTS.items(), ("torch.ops.mylib", REGISTERED)):
        assert listed.kinds
        assert not is_member(part, "what", object())


@pytest.mark.parametrize("name", ["T", "H", "mT", "mH", "real", "imag"])
def test_an_attribute_that_is_a_function_of_a_tensor_is_read(name: str) -> None:
    x = torch.randn(2, 2, dtype=torch.complex64, requires_grad=True)
    assert torch.equal(resolve_operator(f"torch.Tensor.{name}", ("torch",))(x), getattr(x, name))


def test_of_the_classes_of_torch_nn_modules_and_options_may_be_named() -> None:
    classes = {name for name, value in inspect.getmembers(torch.nn) if isinstance(value, type)}
    modules = {name for name in classes if issubclass(getattr(torch.nn, name), torch.nn.Module)}
    options = {"LinearCrossEntropyOptions"} & classes  # since torch 2.13
    assert classes & set(nameable("torch.nn")) == modules | options
    for name in options:
        with pytest.raises(Unresolved, match="calling it creates an object; name a function"):
            resolve_operator(f"torch.nn.{name}", ("torch",))
