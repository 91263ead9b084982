"""A Ray cluster: its address, a connection to it, and the resources of its nodes."""

from __future__ import annotations

import argparse
import importlib
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opcheck.spec.device_profile import RESERVED
from opcheck.spec.problems import RequestError
from opcheck.text import message_of

LOCAL = "local"
"""The address that stands for a cluster on this machine, started for the run."""

OBJECT_STORE = 100 * 2**20
"""The shared memory of a local cluster, in bytes. Only arguments and reports go through it."""

KNOWN = {option: name for name, option in RESERVED.items() if option}
"""Ray's name of each resource that has an option of its own: `num_cpus` is `CPU`."""


def address(text: str) -> str:
    """Return the text if it is the address of a cluster: `local`, `auto` or HOST:PORT. Raises ArgumentTypeError."""
    if text in (LOCAL, "auto") or re.fullmatch(r"[^\s/:]+:\d+|\[[0-9a-fA-F:]+\]:\d+", text):
        return text
    raise argparse.ArgumentTypeError(
        f'"{text}" is not the address of a Ray cluster; expected auto, HOST:PORT or nothing; specs go before --ray'
    )


@contextmanager
def connected(where: str, cpus: int | None) -> Iterator[Any]:
    """Start or join a cluster, and yield the module `ray`. At the end, leave it; a local cluster stops.

    cpus: the number of CPUs of a local cluster; None: all of this machine.
    Raises RequestError if ray is not installed, or the cluster cannot be started or joined.
    """
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        why = f"--ray needs the package ray ({error}); install it: pip install 'opcheck[ray]'"
        raise RequestError([why]) from None
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if where == LOCAL:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options |= {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": OBJECT_STORE}
    try:
        try:
            ray.init(address=where, **options)
        except Exception as error:
            what = "cannot start a cluster" if where == LOCAL else f"cannot join the cluster at {where}"
            raise RequestError([f"Ray {what}: {message_of(error)}"]) from None
        yield ray
    finally:
        ray.shutdown()


def demand(resources: Mapping[str, float]) -> dict[str, float]:
    """Return the resources of a task: those of a profile, and one CPU unless the profile has `num_cpus`."""
    return {"num_cpus": 1.0, **resources}


def lacks(ray: Any, resources: Mapping[str, float]) -> str:
    """Return the resources of all nodes, in words, if no node has those that a task needs; else an empty string."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    wanted = {KNOWN.get(name, name): amount for name, amount in demand(resources).items()}
    if any(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes):
        return ""
    return "; ".join(sorted({_describe_node(node) for node in nodes})) or "no nodes"


def describe(resources: Mapping[str, float]) -> str:
    """Return resources in words: `1 num_cpus, 0.25 num_gpus`."""
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items())


def _describe_node(node: Mapping[str, float]) -> str:
    called = {name: RESERVED.get(name, name) for name in sorted(node) if ":" not in name}
    shown = {own: node[name] for name, own in called.items() if own}
    return describe({name: math.floor(amount * 100) / 100 for name, amount in shown.items()}) or "nothing"
