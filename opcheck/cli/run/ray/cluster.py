"""A connection to a Ray cluster: starts or joins it, queries its resources, runs tasks and disconnects."""

from __future__ import annotations

import argparse
import importlib
import logging
import math
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from opcheck.spec.device_profile import RESERVED
from opcheck.spec.problems import RequestError
from opcheck.text import message_of

LOCAL = "local"
"""The address that stands for a cluster on this machine, started for the run."""

OBJECT_STORE = 100 * 2**20
"""The shared memory of a local cluster, in bytes. Only arguments and reports go through it."""

RETRIES = 2
"""How many times Ray retries a task whose process has died."""

KNOWN = {option: name for name, option in RESERVED.items() if option}
"""Ray's name of each resource that has an option of its own: `num_cpus` is `CPU`."""


class Died(Exception):
    """The process or the node that ran a task has died."""


def address(text: str) -> str:
    """Return the text if it is the address of a cluster: `local`, `auto` or HOST:PORT. Raises ArgumentTypeError."""
    if text in (LOCAL, "auto") or re.fullmatch(r"[^\s/:]+:\d+|\[[0-9a-fA-F:]+\]:\d+", text):
        return text
    raise argparse.ArgumentTypeError(
        f'"{text}" is no address of a Ray cluster; expected auto, HOST:PORT or nothing; specs go before --ray'
    )


class Cluster:
    """A connection to a cluster, as a context manager. On exit, tasks are cancelled, and a local cluster stops."""

    def __init__(self, where: str, cpus: int | None = None) -> None:
        """Start or join a cluster.

        where: its address. cpus: the number of CPUs of a local cluster; None: all of this machine.
        Raises RequestError if ray is not installed, or the cluster cannot be started or joined.
        """
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError as error:
            why = f"--ray needs the package ray ({error}); install it: pip install 'opcheck[ray]'"
            raise RequestError([why]) from None
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if where == LOCAL:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            options |= {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": OBJECT_STORE}
        try:
            self._ray.init(address=where, **options)
        except Exception as error:
            self._ray.shutdown()
            what = "cannot start a cluster" if where == LOCAL else f"cannot join the cluster at {where}"
            raise RequestError([f"Ray {what}: {message_of(error)}"]) from None
        self.is_local = where == LOCAL
        self._pending: list[Any] = []

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for task in self._pending:
                self._ray.cancel(task, force=True)
        finally:
            self._ray.shutdown()

    def share(self, value: object) -> Any:
        """Store a value in the cluster once. Return a reference, to pass to tasks instead of the value."""
        return self._ray.put(value)

    @property
    def cpus(self) -> int:
        """The number of CPUs of the cluster."""
        return max(int(self._ray.cluster_resources().get("CPU", 1)), 1)

    def lacks(self, resources: Mapping[str, float]) -> str:
        """Return the resources of all nodes, in words, if no node has those that a task needs; else an empty string."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        wanted = {KNOWN.get(name, name): amount for name, amount in demand(resources).items()}
        if any(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes):
            return ""
        return "; ".join(sorted({_describe_node(node) for node in nodes})) or "no nodes"

    def start(self, function: Callable[..., Any], resources: Mapping[str, float], *arguments: object) -> Any:
        """Submit a task, which starts once its resources are free. Return a reference to its result."""
        wanted = demand(resources)
        known = {name: wanted.pop(name) for name in KNOWN if name in wanted}
        # Ray retries a task whose process or node has died. max_calls=0: a process is reused for many tasks.
        remote = self._ray.remote(max_retries=RETRIES, max_calls=0)(function)
        task = remote.options(resources=wanted, name=f"opcheck:{function.__name__}", **known).remote(*arguments)
        self._pending.append(task)
        return task

    def finished(self, seconds: float) -> list[Any]:
        """Wait until a task has ended, for at most some seconds. Return a list of that task, or an empty list."""
        ended, self._pending = self._ray.wait(self._pending, num_returns=1, timeout=seconds)
        return list(ended)

    def result(self, task: Any) -> Any:
        """Return the result of a finished task.

        Raises Died if its process or node died, RequestError if the task raised an error or could not start.
        """
        errors = self._ray.exceptions
        try:
            return self._ray.get(task)
        except (errors.RayTaskError, errors.RaySystemError, errors.RuntimeEnvSetupError) as error:
            raise RequestError([_lines(error)[-1]], prefix="") from None
        except errors.RayError as error:
            raise Died(_lines(error)[0].partition(". ")[0].rstrip(".")) from None


def demand(resources: Mapping[str, float]) -> dict[str, float]:
    """Return the resources of a task: those of a profile, and one CPU unless the profile has `num_cpus`."""
    return {"num_cpus": 1.0, **resources}


def describe(resources: Mapping[str, float]) -> str:
    """Return resources in words: `1 num_cpus, 0.25 num_gpus`."""
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items())


def _describe_node(node: Mapping[str, float]) -> str:
    called = {name: RESERVED.get(name, name) for name in sorted(node) if ":" not in name}
    shown = {own: node[name] for name, own in called.items() if own}
    return describe({name: math.floor(amount * 100) / 100 for name, amount in shown.items()}) or "nothing"


def _lines(error: BaseException) -> list[str]:
    return [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
