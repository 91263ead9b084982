"""The allow-list of dotted paths that a spec may name, and the rules that need only the text of a path.

`opcheck/samples/resolve.py` resolves the paths that are acceptable as text, and tests that each object is of an allowed
kind. docs/security.md gives the reasons.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from opcheck.spec.problems import nearest

Words = tuple[str, str, str]
"""A message: what is wrong, what was expected, the nearest valid name."""

Kind = Literal[
    "array function", "attribute", "class of modules", "class of options", "constant", "distribution",
    "function of numbers", "function of SciPy", "maker of arrays", "method", "method of a distribution", "operator",
    "operator of the dispatcher", "operator on tensors",
]  # fmt: skip
"""The kind of an object. `opcheck/samples/resolve.py` has a test for each kind."""


@dataclass(frozen=True)
class Part:
    """A part of a library whose members specs may name."""

    kinds: tuple[Kind, ...]
    """The allowed kinds of members."""
    never: tuple[str, ...] = ()
    """Members of an allowed kind that are forbidden: they use files, raw memory, hooks, callbacks or process state."""
    also: tuple[str, ...] = ()
    """Glob patterns of private names that are allowed."""
    methods: tuple[str, ...] = ()
    """The allowed methods of the classes in this part."""

    def lists(self, name: str) -> bool:
        """Return whether a name is public or an allowed private name, and not forbidden."""
        is_named = not name.startswith("_") or any(fnmatchcase(name, one) for one in self.also)
        return is_named and name not in self.never


_SCIPY = (
    "scipy.linalg", "scipy.ndimage", "scipy.signal", "scipy.signal.windows", "scipy.spatial.distance", "scipy.special",
    "scipy.stats",
)  # fmt: skip
_BINARY = (
    "add", "and", "div", "eq", "floordiv", "ge", "gt", "le", "lshift", "lt", "matmul", "mod", "mul", "ne", "or", "pow",
    "rshift", "sub", "truediv", "xor",
)  # fmt: skip
_SPECIAL = (
    *(f"__{prefix}{name}__" for prefix in ("", "r", "i") for name in _BINARY),
    *(f"__{name}__" for name in ("abs", "getitem", "invert", "neg", "pos", "setitem")),
)
"""Methods that implement Python's operators, such as `torch.Tensor.__add__`."""

PARTS = {
    "torch": Part(("operator", "constant"), ("from_file", "frombuffer"), ("_foreach_*",)),  # torch documents _foreach_*
    "torch.Tensor": Part(("method", "attribute"), (
        "apply_", "backward", "const_data_ptr", "data_ptr", "map2_", "map_", "module_load", "record_stream",
        "register_hook", "register_post_accumulate_grad_hook", "set_", "share_memory_", "storage", "untyped_storage",
    ), _SPECIAL),
    "torch.nn.functional": Part(("operator",)),
    "torch.distributions": Part(
        ("distribution", "method of a distribution"), methods=("cdf", "entropy", "icdf", "log_prob", "rsample")
    ),
    "torch.fft": Part(("operator",)),
    "torch.linalg": Part(("operator",)),
    "torch.masked": Part(("operator",)),
    "torch.nested": Part(("operator",)),
    "torch.nn": Part(("class of modules", "class of options")),
    "torch.nn.utils.parametrizations": Part(("operator",)),
    "torch.nn.utils.rnn": Part(("operator",), ("bind",)),
    "torch.signal.windows": Part(("operator",)),
    "torch.sparse": Part(("operator",), ("as_sparse_gradcheck",)),
    "torch.special": Part(("operator",)),
    # The private names are those that PyTorch's own tests differentiate. Others, such as _reshape_alias, do not
    # validate sizes and strides.
    "torch.ops.aten": Part(("operator on tensors",), (), (
        "_batch_norm_with_update", "_native_batch_norm_legit", "_safe_softmax",
        "_scaled_dot_product_flash_attention_for_cpu", "_softmax_backward_data", "_unsafe_masked_index",
        "_unsafe_masked_index_put_accumulate", "_upsample_bilinear2d_aa",
    )),
    "torch.ops.prims": Part(("operator on tensors",)),
    "numpy": Part(
        ("array function", "maker of arrays", "constant"), ("save", "savetxt", "savez", "savez_compressed")
    ),
    "numpy.fft": Part(("array function",)),
    "numpy.linalg": Part(("array function",)),
    "scipy.fft": Part(("array function", "function of SciPy"), (
        "get_workers", "register_backend", "set_backend", "set_global_backend", "set_workers", "skip_backend",
    )),
    **dict.fromkeys(_SCIPY, Part(("array function", "function of SciPy"))),
    "math": Part(("function of numbers", "constant")),
}  # fmt: skip
"""The parts of torch that specs may use, and the parts of NumPy, SciPy and math that references may use."""

DISPATCHER = "torch.ops"
REGISTERED = Part(("operator of the dispatcher",))
"""A namespace of `torch.ops` that the project allows. Its operators belong to the project."""

_LIBRARIES = frozenset(part.partition(".")[0] for part in PARTS)


def refused(path: str, modules: Sequence[str]) -> Words | None:
    """Return the message for a path that a spec may not name, or None if its text is acceptable."""
    dotted = path.replace(":", ".")
    if part_of(dotted, modules):
        return None
    if dotted in (*PARTS, *modules, DISPATCHER):
        return f'"{path}" is a {"class" if dotted == "torch.Tensor" else "module"}', "", ""
    root, home = dotted.partition(".")[0], home_of(dotted, modules)
    if root not in modules and not home:
        expected, near = f"a path inside {', '.join(modules)} (modules of [tool.opcheck])", nearest(root, modules)
        if not near and not is_shared(root):
            expected += f'; to allow it, write modules = [..., "{root}"] there'
        return f'"{path}" is outside the allowed modules', expected, near
    if dotted.startswith(f"{DISPATCHER}."):
        return _not_registered(path, dotted, modules)
    return _private(path, dotted, home or root) or (None if home else _unlisted(path, dotted, root))


def part_of(dotted: str, modules: Sequence[str]) -> str:
    """Return the part of an allowed library that contains a path, or an empty string if the path is not allowed."""
    if dotted.startswith(f"{DISPATCHER}."):
        return _namespace_of(dotted, modules)
    part, _, name = dotted.rpartition(".")
    outer = part.rpartition(".")[0]
    if outer in PARTS and name in PARTS[outer].methods:
        part = outer
    if part not in PARTS or part.partition(".")[0] not in modules or dotted in (*PARTS, DISPATCHER):
        return ""
    return part if PARTS[part].lists(name) else ""


def _namespace_of(dotted: str, modules: Sequence[str]) -> str:
    """Return the namespace of `torch.ops.<namespace>.<operator>[.<overload>]`, or an empty string if it is not allowed.

    Allowed are torch's own namespaces, namespaces named like a package of the project, and namespaces that the project
    lists. A private operator of torch's namespaces must be in `PARTS`, unless the project lists the namespace. Names
    with two leading underscores are never allowed.
    """
    _, _, namespace, *names = dotted.split(".")
    path = f"{DISPATCHER}.{namespace}"
    if len(names) not in (1, 2) or not _is_open(path, modules) or any(name.startswith("__") for name in names):
        return ""
    is_listed = path not in PARTS or path in modules or PARTS[path].lists(names[0])
    return path if is_listed else ""


def _is_open(namespace: str, modules: Sequence[str]) -> bool:
    if namespace in PARTS:
        return "torch" in modules
    packages = {module.partition(".")[0] for module in modules} - _LIBRARIES
    return namespace in modules or namespace.removeprefix(f"{DISPATCHER}.") in packages


def home_of(dotted: str, modules: Sequence[str]) -> str:
    """Return the innermost module of the project that contains a path, or an empty string."""
    if dotted.startswith(f"{DISPATCHER}."):  # operators are not in modules: `_namespace_of` decides
        return ""
    return max((module for module in own(modules) if dotted.startswith(f"{module}.")), key=len, default="")


def own(modules: Sequence[str]) -> list[str]:
    """Return the modules that are allowed as a whole: all except the libraries in `PARTS`."""
    return [module for module in modules if module not in _LIBRARIES]


def inside(name: str, modules: Iterable[str]) -> bool:
    """Return whether a dotted name is one of the modules, or is inside one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def is_shared(package: str) -> bool:
    """Return whether a package is in `PARTS` or in Python's standard library, and so not to be allowed as a whole."""
    return package in sys.stdlib_module_names or package in _LIBRARIES


def not_importable(module: str, modules: Sequence[str]) -> Words | None:
    """Return the message for a module that a spec may not import, or None if it is a module of the project."""
    allowed = own(modules)
    if inside(module, allowed) and "__" not in module:
        return None
    expected = f"a module inside {', '.join(allowed)} (modules of [tool.opcheck])" if allowed else ""
    expected = expected or f'modules = [..., "{module.partition(".")[0]}"] under [tool.opcheck]'
    return f'"{module}" is outside the modules of the project', expected, nearest(module, allowed)


def _private(path: str, dotted: str, home: str) -> Words | None:
    """Return the message for a path with a private or special name beyond the allowed module."""
    parts = dotted.split(".")
    for index in range(home.count(".") + 1, len(parts)):
        if parts[index].startswith("_"):
            expected = "public names"
            if index < len(parts) - 1 and not parts[index].startswith("__") and home not in _LIBRARIES:
                expected += f', or "{".".join(parts[: index + 1])}" among the modules of [tool.opcheck]'
            return f'"{path}": "{parts[index]}" is private', expected, ""
    return None


def _not_registered(path: str, dotted: str, modules: Sequence[str]) -> Words:
    """Return the message for a path in `torch.ops` that is not a public operator of an allowed namespace."""
    parts = dotted.split(".")
    if len(parts) < 4:
        return f'"{path}" is a module', "", ""
    namespace = ".".join(parts[:3])
    if _is_open(namespace, modules):
        expected = "torch.ops.<namespace>.<operator>[.<overload>]"
        if parts[3].startswith("_") and not parts[3].startswith("__"):
            expected += f'; to allow private ones, write modules = [..., "{namespace}"] under [tool.opcheck]'
        return f'"{path}" is not a public operator', expected, ""
    what = f'"{path}": the operators of "{parts[2]}" are outside the allowed modules'
    return what, f'"{namespace}" among the modules of [tool.opcheck]', ""


def _unlisted(path: str, dotted: str, root: str) -> Words:
    """Return the message for a path into a part of a library that specs may not name."""
    part, _, name = dotted.rpartition(".")
    if part in PARTS and name in PARTS[part].never:
        what = "it deals with files, raw memory, hooks or the state of the process"
        return f'"{path}" may not be named in a spec: {what}', "", ""
    listed = [known for known in PARTS if known.partition(".")[0] == root]
    parent, _, last = part.rpartition(".")
    near = nearest(last, [known.rpartition(".")[2] for known in listed if known.rpartition(".")[0] == parent])
    hint = ".".join(filter(None, (parent, near, name))) if near else ""
    return f'"{path}" is not in a part of {root} that specs may name', f"a name in {', '.join(listed)}", hint
