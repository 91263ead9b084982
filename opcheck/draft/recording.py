"""Takes samples from an existing suite of tests: runs it with a plugin that records calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from opcheck.draft.trial import Workplace

MOST_SAMPLES = 6
"""The most samples of one operator to take from tests."""

VARIABLE = "OPCHECK_RECORD"
"""The environment variable that `recorder.py` reads."""

Group = list[dict[str, Any]]
"""A call as samples: with shapes only, and with the values."""


def recorded(operators: Iterable[str], tests: Sequence[str], shop: Workplace) -> dict[str, list[Group]]:
    """Run tests, and return the small calls of each operator, those of different kinds first."""
    with tempfile.TemporaryDirectory(prefix="opcheck-") as name:
        request, lines = Path(name, "request.json"), Path(name, "calls")
        lines.touch()
        question = {"operators": list(operators), "modules": shop.settings.modules, "file": str(lines)}
        request.write_text(json.dumps(question), encoding="utf-8")
        plugins = ["-p", "opcheck.draft.recorder", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", "-q", *plugins, *tests]
        path = os.pathsep.join(filter(None, (*shop.folders, os.environ.get("PYTHONPATH", ""))))
        env = {**os.environ, "PYTHONPATH": path, VARIABLE: str(request)}
        subprocess.run(command, env=env, capture_output=True, check=False)
        calls = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    return {
        path: chosen([call["group"] for call in calls if call["operator"] == path]) for path in question["operators"]
    }


def chosen(groups: Sequence[Group]) -> list[Group]:
    """Return one small call of each kind: of numbers of dimensions, and of values of all other arguments."""
    kinds: dict[str, Group] = {}
    for group in sorted(groups, key=lambda group: size(group[0])):
        kinds.setdefault(json.dumps(kind(group[0])), group)
    return list(kinds.values())[:MOST_SAMPLES]


def size(value: Any) -> int:
    """Return the number of elements of all tensors in TOML data."""
    if isinstance(value, dict):
        if "shape" in value:
            count = 1
            for length in value["shape"]:
                count *= length
            return count
        return sum(map(size, value.values()))
    return sum(map(size, value)) if isinstance(value, list) else 1


def kind(value: Any) -> Any:
    """Return TOML data with the number of its dimensions in the place of each tensor."""
    if isinstance(value, dict):
        if "shape" in value:
            return len(value["shape"])
        if "values" in value:
            return value.get("dtype", "")
        return {key: kind(part) for key, part in value.items()}
    return [kind(part) for part in value] if isinstance(value, list) else value
