"""Which dotted paths a spec may name, as far as the text of the path tells. docs/security.md has the reasons."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from opcheck.spec.problems import nearest

Words = tuple[str, str, str]
"""What is wrong, what was expected, the nearest valid name."""

NAMESPACES = {
    "torch": (
        "torch", "torch.Tensor", "torch.nn.functional", "torch.distributions", "torch.fft", "torch.linalg",
        "torch.masked", "torch.nested", "torch.nn", "torch.signal.windows", "torch.sparse", "torch.special",
    ),
    "numpy": ("numpy", "numpy.fft", "numpy.linalg"),
    "scipy": (
        "scipy.fft", "scipy.linalg", "scipy.ndimage", "scipy.signal", "scipy.signal.windows", "scipy.spatial.distance",
        "scipy.special", "scipy.stats",
    ),
    "math": ("math",),
}  # fmt: skip
"""The parts of these libraries that specs may name: their functions take and return tensors, arrays or numbers."""

DISPATCHER = "torch.ops"
OPERATORS_OF_TORCH = ("aten", "prims")
"""The namespaces of `torch.ops` with torch's own operators that are meant to be called."""

_KNOWN = frozenset(namespace for namespaces in NAMESPACES.values() for namespace in namespaces)
_BINARY = (
    "add", "and", "div", "eq", "floordiv", "ge", "gt", "le", "lshift", "lt", "matmul", "mod", "mul", "ne", "or", "pow",
    "rshift", "sub", "truediv", "xor",
)  # fmt: skip
_SPECIAL = {f"__{prefix}{name}__" for prefix in ("", "r", "i") for name in _BINARY}
_SPECIAL |= {f"__{name}__" for name in ("abs", "getitem", "invert", "neg", "pos", "setitem")}
"""Methods that implement Python's operators, such as `torch.Tensor.__add__`."""


def refused(path: str, modules: Sequence[str]) -> Words | None:
    """Return the message for a path that a spec may not name, or None if its text is acceptable."""
    dotted = path.replace(":", ".")
    if dotted == DISPATCHER:
        return f'"{path}" is a module', "", ""
    if namespace_of(dotted, modules) or is_dispatched(dotted, modules):
        return None
    if dotted in _KNOWN or dotted in modules:
        return f'"{path}" is a {"class" if dotted == "torch.Tensor" else "module"}', "", ""
    root = dotted.partition(".")[0]
    home = home_of(dotted, modules)
    if root not in modules and not home:
        expected, near = f"a path inside {', '.join(modules)} (modules of [tool.opcheck])", nearest(root, modules)
        if not near and root not in (*sys.stdlib_module_names, *NAMESPACES):
            expected += f'; to allow it, write modules = [..., "{root}"] there'
        return f'"{path}" is outside the allowed modules', expected, near
    if dotted.startswith(f"{DISPATCHER}."):
        return _not_dispatched(path, dotted, modules)
    return _private(path, dotted, home or root) or (None if home else _unlisted(path, dotted, root))


def namespace_of(dotted: str, modules: Sequence[str]) -> str:
    """Return the namespace of an allowed library whose public member a path names, or an empty string."""
    namespace, _, name = dotted.rpartition(".")
    if namespace not in _KNOWN or namespace.partition(".")[0] not in modules or dotted in _KNOWN:
        return ""
    if not name.startswith("_"):
        return namespace
    # The documented operators on lists of tensors, and the methods behind Python's operators.
    listed = name.startswith("_foreach_") if namespace == "torch" else name in _SPECIAL
    return namespace if listed and namespace in ("torch", "torch.Tensor") else ""


def is_dispatched(dotted: str, modules: Sequence[str]) -> bool:
    """Return whether a path is `torch.ops.<namespace>.<operator>[.<overload>]` in an allowed namespace."""
    if not dotted.startswith(f"{DISPATCHER}."):
        return False
    _, _, namespace, *names = dotted.split(".")
    if len(names) not in (1, 2) or any(name.startswith("__") for name in names):
        return False
    private = namespace in OPERATORS_OF_TORCH and names[0].startswith("_")
    return _is_open(namespace, modules) and not private


def _is_open(namespace: str, modules: Sequence[str]) -> bool:
    """Return whether specs may name the operators of a namespace.

    Allowed are torch's own namespaces, those named like a package of the project, and those that the project lists
    (`torch.ops.<namespace>` among its modules).
    """
    if namespace in OPERATORS_OF_TORCH:
        return "torch" in modules
    packages = {module.partition(".")[0] for module in modules} - NAMESPACES.keys()
    return f"{DISPATCHER}.{namespace}" in modules or namespace in packages


def home_of(dotted: str, modules: Sequence[str]) -> str:
    """Return the innermost module of the project that contains a path, or an empty string."""
    homes = [module for module in own(modules) if dotted.startswith(f"{module}.")]
    return max(homes, key=len, default="")


def not_importable(module: str, modules: Sequence[str]) -> Words | None:
    """Return the message for a module that a spec may not have imported, or None if it is one of the project's."""
    allowed = own(modules)
    if any(f"{module}.".startswith(f"{each}.") for each in allowed) and "__" not in module:
        return None
    expected = f"a module inside {', '.join(allowed)} (modules of [tool.opcheck])" if allowed else ""
    expected = expected or f'modules = [..., "{module.partition(".")[0]}"] under [tool.opcheck]'
    return f'"{module}" is outside the modules of the project', expected, nearest(module, allowed)


def own(modules: Sequence[str]) -> list[str]:
    """Return the modules that are allowed as a whole: all except the libraries in `NAMESPACES`."""
    return [module for module in modules if module not in NAMESPACES]


def _private(path: str, dotted: str, home: str) -> Words | None:
    """Return the message for a path with a private or special name beyond the allowed module."""
    parts = dotted.split(".")
    for index in range(home.count(".") + 1, len(parts)):
        if parts[index].startswith("_"):
            expected = "public names"
            if index < len(parts) - 1 and not parts[index].startswith("__") and home not in NAMESPACES:
                expected += f', or "{".".join(parts[: index + 1])}" among the modules of [tool.opcheck]'
            return f'"{path}": "{parts[index]}" is private', expected, ""
    return None


def _not_dispatched(path: str, dotted: str, modules: Sequence[str]) -> Words:
    parts = dotted.split(".")
    if len(parts) < 4:
        return f'"{path}" is a module', "", ""
    if _is_open(parts[2], modules):
        return f'"{path}" is not a public operator', "torch.ops.<namespace>.<operator>[.<overload>]", ""
    what = f'"{path}": the operators of "{parts[2]}" are outside the allowed modules'
    return what, f'"{DISPATCHER}.{parts[2]}" among the modules of [tool.opcheck]', ""


def _unlisted(path: str, dotted: str, root: str) -> Words:
    """Return the message for a path into a part of a library that specs may not name."""
    namespace, _, name = dotted.rpartition(".")
    parent, _, last = namespace.rpartition(".")
    beside = [known.rpartition(".")[2] for known in NAMESPACES[root] if known.rpartition(".")[0] == parent]
    near = nearest(last, beside)
    hint = ".".join(filter(None, (parent, near, name))) if near else ""
    return f'"{path}" is not in a part of {root} that specs may name', f"a name in {', '.join(NAMESPACES[root])}", hint
