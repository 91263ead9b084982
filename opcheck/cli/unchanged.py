"""Remembers which specs had no mistakes: what is unchanged since then is neither loaded nor validated again.

A note in `.opcheck_cache/` beside pyproject.toml holds, for each request, the files that its answer rests on (specs,
templates, device profiles, settings, opcheck itself, the folders that Python imports from) by time and size, as Python
itself does for its bytecode. This module imports nothing else of opcheck: pydantic alone takes a third of a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opcheck.spec import Library

FOLDER = ".opcheck_cache"
MOST = 50
"""How many requests are remembered."""
SUFFIXES = (".toml", ".py")


def summary(library: Library) -> str:
    """Return what is said of specs without mistakes."""
    return f"{len(library)} operators, {library.sample_count} samples: no mistakes found"


def recall(request: Sequence[str]) -> str | None:
    """Return the answer that a request had when everything was as it is now; None where anything has changed."""
    file = _file()
    try:
        note = json.loads(file.read_bytes())[_key(request)] if file else None
        return note["answer"] if note and note["state"] == _state(note["watched"]) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # no notes, or notes of another make: they will be written anew


def remember(request: Sequence[str], answer: str, watched: Iterable[Path]) -> None:
    """Note the answer to a request, which rests on some files and folders.

    Nothing is noted outside projects, nor where it is not known what the answer rests on.
    """
    file = _file()
    paths = sorted({os.path.realpath(path) for path in watched})
    if file is None or not paths:
        return
    try:
        notes = json.loads(file.read_bytes())
    except (OSError, ValueError):
        notes = {}
    notes = dict(list(notes.items())[1 - MOST :]) if isinstance(notes, dict) else {}
    notes[_key(request)] = {"answer": answer, "watched": paths, "state": _state(paths)}
    with contextlib.suppress(OSError):  # a folder that cannot be written to: the next run takes as long as this one
        file.parent.mkdir(exist_ok=True)
        (file.parent / ".gitignore").write_text("*\n")
        part = file.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(notes))
        part.replace(file)


def _file() -> Path | None:
    here = Path(os.path.realpath(os.curdir))
    project = next((folder for folder in (here, *here.parents) if (folder / "pyproject.toml").is_file()), None)
    return project / FOLDER / "validated.json" if project else None


def _key(request: Sequence[str]) -> str:
    return json.dumps([os.path.realpath(os.curdir), *map(os.path.normpath, request)])


def _state(watched: Iterable[str]) -> str:
    """Return a digest of everything that an answer rests on."""
    digest = hashlib.sha256(sys.version.encode())
    own = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    file = _file()
    project = [str(file.parent.parent / "pyproject.toml")] if file else []
    for path in (*watched, *project, own):
        for found in _files(path):
            digest.update(found.encode())
    for folder in sys.path:
        if folder.endswith("-packages"):  # what is installed there: pydantic, and plugins
            digest.update(_stamp(folder).encode())
    return digest.hexdigest()


def _files(path: str) -> Iterator[str]:
    """Yield a line for a file, or for each file below a folder, of the kinds that specs and opcheck consist of."""
    if not os.path.isdir(path):
        yield _stamp(path)
        return
    for folder, folders, names in os.walk(path):
        folders.sort()
        yield from (_stamp(os.path.join(folder, name)) for name in sorted(names) if name.endswith(SUFFIXES))


def _stamp(path: str) -> str:
    try:
        stat = os.stat(path)
    except OSError:
        return f"{path} missing\n"
    return f"{path} {stat.st_mtime_ns} {stat.st_size}\n"
