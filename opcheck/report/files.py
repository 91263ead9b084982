"""Files of reports: how they are named in records, and how they are written, be they regular files or streams."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from io import BufferedWriter, FileIO
from pathlib import Path
from secrets import token_hex
from shutil import copymode

from opcheck.spec.load import BUILTIN, builtin_folder

STANDARD = "-"
"""The name of standard output, as of a file."""


def within(root: Path, path: Path) -> str:
    """Return a path that means the same on another machine.

    It is relative to the root of a project, or to the shipped library (`builtin/...`), if it is inside.
    """
    path = path.resolve()
    for folder, prefix in ((root.resolve(), Path()), (builtin_folder().resolve(), Path(BUILTIN))):
        if folder in (path, *path.parents):
            return (prefix / path.relative_to(folder)).as_posix()
    return path.as_posix()


def is_stream(path: Path) -> bool:
    """Tell whether a path names what can be written to, but not replaced: a device, a pipe, or a standard stream."""
    return _descriptor(path) is not None or (path.exists() and not path.is_file() and not path.is_dir())


def opened(path: Path) -> FileIO:
    """Open a stream, or a file that is empty from now on, without a buffer. Raises OSError."""
    if is_stream(path):
        number = _descriptor(path)
        return FileIO(str(path) if number is None else os.dup(number), "w")
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileIO(str(path), "w+")


def replace(path: Path, parts: Iterable[bytes]) -> None:
    """Write to a stream, or replace the content of a file at once. Raises OSError, and leaves the file as it was.

    A file that was there keeps its permissions; a new one has those that the process gives to files.
    """
    if is_stream(path):
        with BufferedWriter(opened(path)) as stream:
            stream.writelines(parts)
        return
    path = path.resolve()  # a symbolic link remains one
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            if path.exists():
                copymode(path, temporary)
            file.writelines(parts)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _descriptor(path: Path) -> int | None:
    """Return the descriptor of the standard stream that a path names, if it names one.

    A stream that was redirected to a file is that file. By another descriptor, it would be overwritten from its start.
    """
    if str(path) == STANDARD:
        return 1
    for number in (1, 2):
        with suppress(OSError):
            if os.path.samestat(path.stat(), os.fstat(number)):
                return number
    return None
