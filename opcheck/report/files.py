"""Files of reports: their names in records, and writing to regular files and streams."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from io import BufferedWriter, FileIO
from pathlib import Path
from secrets import token_hex
from shutil import copymode

from opcheck.spec.load import BUILTIN, builtin_folder

STANDARD = "-"
"""The path that stands for standard output."""


def within(root: Path, path: Path) -> str:
    """Return a path for reports, in a form that is valid on other machines if possible.

    A path inside the project is relative to `root`, one inside the shipped library begins with `builtin/`. Any other
    path is absolute.
    """
    path = path.resolve()
    for folder, prefix in ((root.resolve(), Path()), (builtin_folder().resolve(), Path(BUILTIN))):
        if folder in (path, *path.parents):
            return (prefix / path.relative_to(folder)).as_posix()
    return path.as_posix()


def is_stream(path: Path) -> bool:
    """Return whether a path can be written to, but not replaced: a device, a pipe, or a standard stream."""
    return _descriptor(path) is not None or (path.exists() and not path.is_file() and not path.is_dir())


def opened(path: Path) -> FileIO:
    """Open a stream, or create or truncate a file, without a buffer. Raises OSError.

    A file is locked until it is closed. If another process has locked it, OSError is raised, and the file is unchanged.
    """
    if is_stream(path):
        number = _descriptor(path)
        return FileIO(str(path) if number is None else os.dup(number), "w")
    path.parent.mkdir(parents=True, exist_ok=True)
    file = FileIO(str(path), "a+")
    try:
        _lock(file)
        file.truncate(0)
    except BaseException:
        file.close()
        raise
    return file


def replace(path: Path, parts: Iterable[bytes]) -> None:
    """Write to a stream, or replace a file atomically. If that fails, raise OSError and leave the file unchanged.

    An existing file keeps its permissions; a new file gets the default permissions of the process.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; expected a file")
    try:
        if is_stream(path):
            with BufferedWriter(opened(path)) as stream:
                stream.writelines(parts)
        else:
            _replace_file(path.resolve(), parts)  # keeps a symbolic link, and replaces its target
    except OSError as error:
        if error.errno and not error.filename:
            error.filename = str(path)
        raise


def _replace_file(path: Path, parts: Iterable[bytes]) -> None:
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


def _lock(file: FileIO) -> None:
    """Lock a file for this process. Raises OSError if another process has locked it. Does nothing on Windows."""
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise OSError(f"another process is writing {file.name}") from None
        except OSError:
            pass  # the file system has no locks


def _descriptor(path: Path) -> int | None:
    """Return the descriptor of the standard stream that a path names, or None.

    If a stream is redirected to a file, the path of the file names the stream: a new descriptor would overwrite the
    file from its start.
    """
    if str(path) == STANDARD:
        return 1
    for number in (1, 2):
        with suppress(OSError):
            if os.path.samestat(path.stat(), os.fstat(number)):
                return number
    return None
