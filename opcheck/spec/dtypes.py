"""Names of dtypes and groups of dtypes, and the dtypes that a list of them expands to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

from opcheck.spec.problems import nearest

INTEGRAL = ("uint8", "int8", "int16", "int32", "int64")
FLOATING = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")

STANDARD = ("bool", *INTEGRAL, *FLOATING, *COMPLEX)
"""The dtypes that an operator must refuse if its spec sets `dtypes.exact = true` and does not list them."""

EXOTIC = ("uint16", "uint32", "uint64", "complex32", "float8_e4m3fn", "float8_e5m2")
"""Dtypes that few operators support. They are tested if a spec lists them; leaving them out claims nothing."""

KNOWN = (*STANDARD, *EXOTIC)
"""The dtypes that any device may have. A device profile may declare further ones."""

GROUPS: dict[str, tuple[str, ...]] = {
    "all": STANDARD,
    "floating": FLOATING,
    "real": FLOATING,
    "complex": COMPLEX,
    "half": ("float16", "bfloat16"),
    "single": ("float32", "complex64"),
    "double": ("float64", "complex128"),
    "integral": INTEGRAL,
    "signed": INTEGRAL[1:],
    "bool": ("bool",),
}

IN_TORCH = {
    "half": "float16", "float": "float32", "double": "float64", "cfloat": "complex64", "cdouble": "complex128",
    "byte": "uint8", "char": "int8", "short": "int16", "int": "int32", "long": "int64", "boolean": "bool",
}  # fmt: skip
"""The names that torch, or people, also have for dtypes."""

REAL_OF = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
COMPLEX_OF = {real: name for name, real in REAL_OF.items()}

_DOUBLE = ("float64", "float32")
_EXACT = ("int64", "float64")
HALF = ("float16", "bfloat16", "complex32")
"""The dtypes that are too coarse for finite differences."""

COARSE = (*HALF, "float32", "complex64")
"""The differentiable dtypes below double precision."""

FINER: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("bool", "uint8", "int8", "int16", "int32", "uint16", "uint32", "uint64"), _EXACT),
    "int64": ("float64",),
    **dict.fromkeys(("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"), _DOUBLE),
    "float32": ("float64",),
    "complex32": ("complex128", "complex64"),
    "complex64": ("complex128",),
}
"""For each dtype, dtypes that represent all of its values (of int64 and uint64, not the largest), the best first."""


_DECLARED: ContextVar[tuple[str, ...]] = ContextVar("declared", default=())


@contextmanager
def declared(further: Iterable[str]) -> Iterator[None]:
    """Allow specs to name further dtypes, those that device profiles declare, inside the context."""
    token = _DECLARED.set(tuple(dict.fromkeys(further)))
    try:
        yield
    finally:
        _DECLARED.reset(token)


def known() -> tuple[str, ...]:
    """Return the names of all dtypes that specs may use."""
    return (*KNOWN, *_DECLARED.get())


def nearest_to(name: str, names: Iterable[str]) -> str:
    """Return the name that was probably meant by an unknown name of a dtype, or an empty string."""
    word = name.removeprefix("torch.")
    return IN_TORCH.get(word) or nearest(word, names)


def is_differentiable(dtype: str) -> bool:
    """Return whether tensors of this dtype can require grad."""
    return dtype.startswith(("float", "bfloat", "complex")) and not dtype.startswith("float8")


def unknown(entry: str) -> tuple[str, str, str] | None:
    """Return what is wrong with `entry`, what was expected and the nearest name; None if it is a dtype or a group.

    `entry` may have a leading `-`.
    """
    names = [*GROUPS, *known()]
    if entry.removeprefix("-") in names:
        return None
    sign = "-" if entry.startswith("-") else ""
    near = nearest_to(entry.removeprefix("-"), names)
    expected = f"a dtype or a group ({', '.join(GROUPS)}), with a leading - to remove it"
    return f'unknown dtype "{entry}"', expected, f"{sign}{near}" if near else ""


@lru_cache(maxsize=512)
def expand(entries: tuple[str, ...]) -> tuple[str, ...]:
    """Return the dtypes that names and groups expand to, in the order of `KNOWN`.

    Dtypes that only a device profile declares come last.

    >>> expand(("floating", "-half"))
    ('float32', 'float64')
    """
    chosen: dict[str, None] = {}
    for entry in entries:
        members = GROUPS.get(entry.removeprefix("-"), (entry.removeprefix("-"),))
        removed = members if entry.startswith("-") else ()
        chosen = {name: None for name in (*chosen, *members) if name not in removed}
    return (*(name for name in KNOWN if name in chosen), *(name for name in chosen if name not in KNOWN))


def real_of(dtype: str) -> str:
    """Return the real dtype of the same precision, or `dtype` itself if it is not complex."""
    return REAL_OF.get(dtype, dtype)


def integer_of(dtype: str) -> str:
    """Return `dtype` itself if it is an integer dtype, else int64."""
    return dtype if dtype in INTEGRAL or dtype.startswith("uint") else "int64"


def limits_of(dtype: str) -> tuple[int, int] | tuple[None, None]:
    """Return the least and the largest number of an integer dtype or of bool; (None, None) for other names."""
    if dtype == "bool":
        return 0, 1
    kind, _, bits = dtype.partition("int")
    if kind not in ("", "u") or not bits.isdecimal():
        return None, None
    return (0, 2 ** int(bits) - 1) if kind else (-(2 ** (int(bits) - 1)), 2 ** (int(bits) - 1) - 1)


def finer_than(dtype: str, claimed: Iterable[str]) -> str | None:
    """Return the best of the claimed dtypes that represent all values of `dtype` (`FINER`); None if there is none."""
    known = set(claimed)
    return next((name for name in FINER.get(dtype, ()) if name in known), None)


def double_of(dtype: str) -> str:
    """Return complex128 for a complex dtype, float64 for any other."""
    return "complex128" if dtype.startswith("complex") else "float64"


def complex_of(dtype: str) -> str:
    """Return the complex dtype of the same precision, or `dtype` itself if there is none."""
    return COMPLEX_OF.get(dtype, dtype)


FOLLOWING = {"real": real_of, "complex": complex_of, "integer": integer_of}
"""Values of `dtype` in a tensor recipe that stand for a dtype derived from the dtype of the case."""


def grouped(names: Iterable[str]) -> list[str]:
    """Return dtypes with the groups integral, floating and complex in place of their members, where complete."""
    left, groups = set(names), []
    for group in ("integral", "floating", "complex"):
        if left >= set(GROUPS[group]):
            groups.append(group)
            left -= set(GROUPS[group])
    return [*(name for name in KNOWN if name in left), *groups]
