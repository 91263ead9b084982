"""A spec in a pull request cannot run code, touch files, load libraries or change the process: see docs/security.md."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from opcheck.planning import load
from opcheck.samples.realize import realize
from opcheck.samples.resolve import Unresolved, resolve
from opcheck.settings import Settings
from opcheck.spec import SpecError
from opcheck.spec.allow_list import PARTS
from opcheck.spec.limits import REFERENCE_MODULES

MODULES = ("torch", "careless")
CARELESS = """
import functools, logging, os, subprocess, sys
from os import environ, system
from pathlib import Path
from subprocess import run

import torch
from torch import FloatStorage, classes, load, ops
from torch.fx.graph_module import _exec_with_source

def touch(*_, **__):
    Path("touched").write_text("by an operator")

def double(x): return 2 * x
def _private(x): touch()

class Operators:
    from subprocess import call
    def __call__(self, x): return 2 * x
    def double(self, x): return 2 * x
    @property
    def computed(self): touch(); return double
    def __getattr__(self, name): touch(); return double

class Notes(Path):
    pass

operators = Operators()
here = Path("victim")
remove = here.unlink
shell = functools.partial(system)
opener = functools.partial(load, "victim")
log = logging.getLogger()
table = {}
class Table(dict): pass
filled = Table(a=1)
emptied = filled.clear
tensor = torch.ones(2)
library = torch.library.Library("careless", "FRAGMENT")

@torch.library.custom_op("careless::triple", mutates_args=())
def triple(x: torch.Tensor) -> torch.Tensor:
    return 3 * x
"""

HOSTILE = [
    # what the first deny-list let through
    "torch.fx.graph_module._exec_with_source", "torch._ops._Ops.load_library", "torch._classes._Classes.load_library",
    "torch._C.PyTorchFileWriter", "torch.FloatStorage.from_file", "torch.ops.aten.from_file",
    "torch._utils._import_dotted_name",
    # files
    "torch.load", "torch.save", "torch.from_file", "torch.serialization.load", "torch.jit.load", "torch.jit.save",
    "torch.PyTorchFileReader", "torch.PyTorchFileWriter", "torch.UntypedStorage.from_file",
    "torch.Tensor.share_memory_", "torch.ops.aten.from_file.default", "torch.ops.aten.from_file.out",
    "torch.ops.aten.save", "torch.get_file_path", "torch.nn.functional.np.save", "torch.storage.torch.save",
    "torch.Tensor.storage", "torch.package.PackageExporter",
    "torch.cuda.memory.os.remove", "torch.utils.data.random_split", "torch.profiler.profile",
    # code
    "torch.hub.load", "torch.compile", "torch.utils.cpp_extension.load_inline", "torch.utils.collect_env.run",
    "torch.import_ir_module", "torch.parse_ir", "torch.jit.CompilationUnit", "torch.CompilationUnit", "torch.fork",
    "torch.os.system", "torch.serialization.os.system", "torch.builtins.exec", "torch.sys.exit",
    "torch.importlib.import_module", "torch.nn.functional.importlib.import_module", "torch.__builtins__.get",
    "torch.multiprocessing.spawn", "torch.testing._internal.common_utils.shell", "torch._inductor.codecache.write",
    "torch.nn.functional.handle_torch_function", "torch.nn.functional.boolean_dispatch", "torch.Tensor.apply_",
    "torch.Tensor.map_", "torch.utils.checkpoint.checkpoint", "torch.func.vmap", "torch.vmap", "torch.cond",
    # libraries
    "torch.ops.load_library", "torch.classes.load_library", "torch.ctypes.CDLL", "torch.ctypes:CDLL",
    "torch.library.define", "torch.library.impl", "torch.utils.cpp_extension.os.system",
    # memory and pickles
    "torch.frombuffer", "torch.Tensor.set_", "torch.Tensor.data_ptr", "torch.Tensor.__setstate__",
    "torch.Tensor.__reduce_ex__", "torch.ops.inductor._reinterpret_tensor", "torch.ops.aten._reshape_alias",
    "torch.ops.symm_mem.memset32_", "torch.ops.prim.Guard",
    # the state of the process
    "torch.set_default_dtype", "torch.set_default_device", "torch.set_default_tensor_type", "torch.manual_seed",
    "torch.seed", "torch.random.seed", "torch.set_rng_state", "torch.set_num_threads", "torch.set_num_interop_threads",
    "torch.set_grad_enabled", "torch.enable_grad", "torch.inference_mode", "torch.use_deterministic_algorithms",
    "torch.set_deterministic_debug_mode", "torch.set_float32_matmul_precision", "torch.set_flush_denormal",
    "torch.set_printoptions", "torch.set_warn_always", "torch.set_anomaly_enabled", "torch.autocast_increment_nesting",
    "torch.set_autocast_enabled", "torch.ops.aten.manual_seed", "torch.ops.aten.set_grad_enabled",
    "torch.backends.cuda.enable_flash_sdp", "torch.Tensor.register_hook", "torch.Tensor.backward",
    "torch.distributions.register_kl", "torch.distributions.Distribution.set_default_validate_args",
    "torch.distributions.rsample.log_prob", "torch.distributions.Normal.rsample.__globals__", "torch.nn.utils.rnn.bind",
    "torch.sparse.check_sparse_tensor_invariants.enable", "torch.nn.Module.register_module",
    # attribute chains
    "torch.sin.__class__", "torch.sin.__self__", "torch.Tensor.__class__", "torch.Tensor.__subclasses__",
    "torch.Tensor.mro", "torch.Tensor.__init__.__globals__", "torch.Tensor.__init_subclass__",
    "torch.nn.functional.relu.__globals__.get", "torch.nn.functional.relu.__code__.replace",
    "torch.nn.functional.relu.__wrapped__", "torch.nn.Module.__init__.__globals__.get", "torch.__loader__.get_data",
    "torch.__spec__.loader.exec_module", "torch.__dict__.update", "torch.ops.__class__", "torch.ops.aten.__class__",
    "torch.ops.aten.sin.__class__", "torch.ops.aten.sin.default.__call__", "torch.ops.aten.sin.op",
    "torch.ops.__dict__.x", "torch._refs.sin", "torch._VF.sin", "torch._C._nn.gelu",
    # a careless module of the project
    "os.system", "builtins.eval", "careless.os.system", "careless.sys.exit", "careless.subprocess.run", "careless.run",
    "careless.system", "careless.environ", "careless.environ.clear", "careless.Path.unlink", "careless.here",
    "careless.here.unlink", "careless.remove", "careless.Notes.unlink", "careless.shell", "careless.opener",
    "careless.load", "careless.FloatStorage.from_file", "careless.ops.load_library", "careless.classes.load_library",
    "careless._exec_with_source", "careless._private", "careless.log.error", "careless.log.handlers.clear",
    "careless.table.clear", "careless.filled.clear", "careless.emptied", "careless.Table.fromkeys",
    "careless.Operators.call", "careless.Operators.mro", "careless.operators.computed",
    "careless.operators.missing", "careless.operators.__class__", "careless.Operators.computed",
    "careless.double.__globals__.get", "careless.double.__code__", "careless.Operators.__subclasses__",
    "careless.Operators.double.__globals__", "careless.tensor.share_memory_", "careless.tensor.storage",
    "careless.library.define", "careless.triple.register_kernel", "careless.triple.__init__.__globals__",
    "careless.functools.partial", "careless.torch.load", "careless.torch.sin", "careless.__loader__.get_data",
    "careless.__builtins__.get", "careless.os:system",
]  # fmt: skip
REFERENCES = [
    "numpy.testing.measure", "numpy.load", "numpy.save", "numpy.savez", "numpy.savez_compressed", "numpy.savetxt",
    "numpy.loadtxt", "numpy.genfromtxt", "numpy.fromfile", "numpy.fromregex", "numpy.memmap", "numpy.ndarray.tofile",
    "numpy.ndarray.dump", "numpy.lib.format.open_memmap", "numpy.lib.npyio.DataSource", "numpy.ctypeslib.load_library",
    "numpy.f2py.compile", "numpy.f2py.run_main", "numpy.testing.runstring", "numpy.testing.rundocs", "numpy.test",
    "numpy.linalg.test", "numpy.random.seed", "numpy.seterr", "numpy.seterrcall", "numpy.setbufsize",
    "numpy.set_printoptions", "numpy.errstate", "numpy.vectorize", "numpy.frompyfunc", "numpy.frombuffer",
    "numpy.show_config", "numpy.info", "numpy.sin.__class__", "numpy.sum.__wrapped__", "numpy.os.system",
    "scipy.io.savemat", "scipy.io.loadmat", "scipy.io.wavfile.write", "scipy.sparse.save_npz", "scipy.sparse.load_npz",
    "scipy.fft.set_global_backend", "scipy.fft.set_workers", "scipy.special.seterr", "scipy.special.errstate",
    "scipy.special.test", "scipy.test", "scipy.LowLevelCallable", "scipy.datasets.download_all",
    "scipy.linalg.blas.daxpy", "math.__loader__.load_module", "math.__class__", "math.sin.__self__",
    "torch._refs.torch.load", "torch._refs.builtins.exec", "torch._refs.operator.add",
    "torch._refs.sin.__globals__.get",
]  # fmt: skip
"""Names that are refused even where numpy, scipy and math may be named."""

SIN = '[[operator]]\nname = "torch.sin"\n'
SAMPLE = "samples = [{ args = [{ shape = [2] }] }]\n"
PLACES = {
    "name": '[[operator]]\nname = "PATH"\n' + SAMPLE,
    "target": SIN + 'target = "PATH"\n' + SAMPLE,
    "aliases": SIN + 'aliases = ["PATH"]\n' + SAMPLE,
    "variants": SIN + 'variants = [{ kind = "inplace", target = "PATH" }]\n' + SAMPLE,
    "reference": SIN + 'reference = "PATH"\n' + SAMPLE,
    "reference.target": SIN + 'reference = { target = "PATH" }\n' + SAMPLE,
    "args": SIN + 'samples = [{ args = [{ object = "PATH" }] }]\n',
    "kwargs": SIN + 'samples = [{ kwargs = { out = { object = "PATH" } } }]\n',
    "grid": SIN + 'samples = [{ grid = { out = [{ object = "PATH" }] } }]\n',
    "nested": SIN + 'samples = [{ args = [[{ tuple = [{ object = "PATH" }] }]] }]\n',
    "errors": SIN + SAMPLE + '[[operator.errors]]\nargs = [{ object = "PATH" }]\nmatch = "x"\n',
}
"""Wherever a spec may name anything."""

HARMLESS = (
    "builtins.id", "glob.", "import", "marshal.loads", "object.__getattr__", "os.listdir", "os.scandir",
    "pathlib.", "sys._getframe",
)  # fmt: skip
"""Events that reading a spec and looking for a module raise. Opening a file is one only for reading."""


class Watch:
    """Takes note of what Python reports to audit hooks (PEP 578) while it is on. A hook cannot be removed."""

    def __init__(self) -> None:
        self.on = False
        self.events: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.on and not event.startswith(HARMLESS) and not (event == "open" and only_reads(*arguments)):
            self.events.append(f"{event}{arguments}"[:200])


def only_reads(path: object, mode: object, flags: int) -> bool:
    return not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)


WATCH = Watch()


def state() -> dict[str, Any]:
    """Return what of the process a spec could have changed."""
    return {
        "files": {path.name: path.read_bytes() for path in Path.cwd().iterdir() if path.is_file()},
        "environment": dict(os.environ),
        "path": list(sys.path),
        "dtype": torch.get_default_dtype(),
        "device": torch.empty(0).device,
        "threads": torch.get_num_threads(),
        "seed": (torch.initial_seed(), torch.get_rng_state().numpy().tobytes()),
        "numpy": (numpy.geterr(), numpy.random.get_state()[1].tobytes(), numpy.get_printoptions()),
        "grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
    }


@contextmanager
def nothing_happens() -> Iterator[None]:
    before = state()
    WATCH.events, WATCH.on = [], True
    try:
        yield
    finally:
        WATCH.on = False
    assert WATCH.events == []
    assert state() == before


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A project with a careless module, which is imported, and a file that somebody is after: the current folder."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("careless")
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        patch.setattr(sys, "dont_write_bytecode", True)
        Path("careless.py").write_text(CARELESS)
        Path("victim").write_text("precious")
        for name in ("careless", *(part for part in PARTS if part.startswith("scipy"))):
            importlib.import_module(name)
        # What is imported on first use, and how torch reads a schema (it compiles the names of types), is not the spec.
        for path in ("torch.nowhere", "nowhere.f", *(path for path in HOSTILE if path.startswith("torch.ops.aten."))):
            for place in PLACES:
                write(path, place)
                with pytest.raises((SpecError, Unresolved)):
                    look_up(path, place)
        yield
    del sys.modules["careless"]


def modules_at(place: str) -> tuple[str, ...]:
    return (*MODULES, *REFERENCE_MODULES) if place.startswith("reference") else MODULES


def write(path: str, place: str) -> None:
    Path("hostile.toml").write_text(PLACES[place].replace("PATH", path))


def look_up(path: str, place: str) -> None:
    """Load a spec that names a path, and look for what it names, as a run would. Raises SpecError or Unresolved."""
    (operator,) = load(["hostile.toml"], Settings(modules=MODULES))
    if place in ("args", "kwargs", "grid", "nested"):
        realize(operator.samples[0], "float64", "cpu", "seed", modules=MODULES)
    resolve(path, modules_at(place))


def assert_refused(path: str, place: str) -> None:
    write(path, place)
    with nothing_happens(), pytest.raises((SpecError, Unresolved)) as caught:
        look_up(path, place)
    assert f'"{path}"' in str(caught.value)


@pytest.mark.parametrize("place", PLACES)
def test_a_hostile_name_is_refused_wherever_it_stands_and_nothing_happens(place: str) -> None:
    for path in HOSTILE:
        if not (path == "torch._refs.sin" and place.startswith("reference")):
            assert_refused(path, place)


@pytest.mark.parametrize("place", ["reference", "reference.target"])
def test_a_hostile_reference_is_refused_and_nothing_happens(place: str) -> None:
    for path in REFERENCES:
        assert_refused(path, place)


@pytest.mark.parametrize("path", ["numpy.sin", "scipy.special.erf", "math.sin", "torch._refs.sin"])
def test_what_a_reference_may_name_an_operator_may_not(path: str) -> None:
    assert callable(resolve(path, modules_at("reference")))
    assert_refused(path, "name")
    assert_refused(path, "args")


def attack(name: str, *args: str, **keys: str) -> str:
    """Return an operator that would have an effect, if it could be called."""
    lines = ["[[operator]]", f'name = "{name}"', *(f'{key} = "{value}"' for key, value in keys.items())]
    return "\n".join([*lines, f"samples = [{{ args = [{{ shape = [2] }}, {', '.join(args)}] }}]", ""])


ATTACKS = {
    "exec": attack("torch.fx.graph_module._exec_with_source", "\"open('touched', 'w')\"", "{ object = 'torch.pi' }"),
    "measure": attack("torch.mul", "2", reference="numpy.testing.measure"),
    "dlopen": attack("torch._ops._Ops.load_library", '"victim"'),
    "classes": attack("torch._classes._Classes.load_library", '"victim"'),
    "writer": attack("torch._C.PyTorchFileWriter", '"victim"'),
    "storage": attack("torch.FloatStorage.from_file", '"victim"', "true", "100"),
    "aten": attack("torch.ops.aten.from_file", '"victim"', "true", "100"),
    "import": attack("torch._utils._import_dotted_name", '"antigravity.fly"'),
    "save": attack("torch.save", '"victim"'),
    "state": attack("torch.set_num_threads", "1"),
    "shell": attack("demo.os.system", '"touch touched"'),
}


@pytest.mark.parametrize("command", ["run", "validate"])
def test_the_commands_refuse_each_attack_with_its_place(project: Any, cli: Callable[..., Any], command: str) -> None:
    for name, text in ATTACKS.items():
        project.write(f"hostile/{name}.toml", text)
    project.write("victim", "precious")
    threads = torch.get_num_threads()
    run = cli(command, *(["--resolve"] if command == "validate" else []), "hostile")
    told = {line.split(":")[0] for line in run.err.splitlines()}
    late = {"aten", "save", "shell", "state"}  # their text is that of an operator: told where nothing else is wrong
    assert told == {f"hostile/{name}.toml" for name in ATTACKS.keys() - late}
    for name in ATTACKS.keys() - late:
        (project.folder / "hostile" / f"{name}.toml").unlink()
    run = cli(command, *(["--resolve"] if command == "validate" else []), "hostile")
    assert {line.split(":")[0] for line in run.err.splitlines()} == {f"hostile/{name}.toml" for name in late}
    assert (run.code, torch.get_num_threads()) == (2, threads)
    assert (project.folder / "victim").read_text() == "precious"
    assert not (project.folder / "touched").exists()
