"""The installed version of torch, and conditions on it. Nothing here imports torch."""

from __future__ import annotations

from functools import lru_cache


def version_of(package: str) -> str:
    """Return the version of an installed package without importing it; an empty string if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@lru_cache(maxsize=1)
def torch_version() -> str:
    """Return the version of the installed torch without importing it; an empty string if torch is not installed."""
    return version_of("torch")


@lru_cache(maxsize=256)
def meets(version: str, condition: str) -> bool:
    """Return whether a version of torch meets a condition. Pre-releases of 2.14 do not meet `<2.14`."""
    # Imported here: packaging takes 40 ms to import, and few specs have a version condition.
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(condition).contains(version.split("+")[0], prereleases=True)


def torch_meets(condition: str, *, without: bool) -> bool:
    """Return whether the installed torch meets a version condition. without: the result if torch is not installed."""
    return meets(torch_version(), condition) if torch_version() else without
