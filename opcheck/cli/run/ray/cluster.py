"""A Ray cluster: started or joined, asked what it has, given tasks, and left again."""

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
"""The address that stands for a cluster of this machine's own, started for the run."""

OBJECT_STORE = 100 * 2**20
"""The bytes of shared memory of a local cluster. Only arguments and reports go through it."""

RETRIES = 2
"""How many times a task is tried again whose process has died."""

KNOWN = {option: name for name, option in RESERVED.items() if option}
"""Ray's names of the resources that a task asks for by options of their own."""


class Died(Exception):
    """The process, or the node, that ran a task is gone."""


def address(text: str) -> str:
    """Return the address of a cluster. Raises ArgumentTypeError."""
    if text in (LOCAL, "auto") or re.fullmatch(r"[^\s/:]+:\d+|\[[0-9a-fA-F:]+\]:\d+", text):
        return text
    raise argparse.ArgumentTypeError(
        f'"{text}" is no address of a Ray cluster; expected auto, HOST:PORT or nothing; specs go before --ray'
    )


class Cluster:
    """A connection to a cluster. A context: on exit, its tasks end, and so does a cluster that was started for it."""

    def __init__(self, where: str, cpus: int | None = None) -> None:
        """Start or join a cluster.

        cpus: how many CPUs a cluster of one's own has; None: all of this machine.
        Raises RequestError if that is not possible.
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
        """Return a reference to a value, to be given to tasks in its place."""
        return self._ray.put(value)

    @property
    def cpus(self) -> int:
        """The number of CPUs of the cluster."""
        return max(int(self._ray.cluster_resources().get("CPU", 1)), 1)

    def lacks(self, resources: Mapping[str, float]) -> str:
        """Return what the cluster has, in words, if no node of it has what a task asks for; else an empty string."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        wanted = {KNOWN.get(name, name): amount for name, amount in demand(resources).items()}
        if any(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes):
            return ""
        return "; ".join(sorted({_describe_node(node) for node in nodes})) or "no nodes"

    def start(self, function: Callable[..., Any], resources: Mapping[str, float], *arguments: object) -> Any:
        """Start a task, once there is room for it. Return what stands for its result."""
        wanted = demand(resources)
        known = {name: wanted.pop(name) for name in KNOWN if name in wanted}
        # A task is tried again where its process or its node is lost. And one process is for many tasks.
        remote = self._ray.remote(max_retries=RETRIES, max_calls=0)(function)
        task = remote.options(resources=wanted, name=f"opcheck:{function.__name__}", **known).remote(*arguments)
        self._pending.append(task)
        return task

    def finished(self, seconds: float) -> list[Any]:
        """Return the tasks that have ended, after at most some seconds."""
        ended, self._pending = self._ray.wait(self._pending, num_returns=1, timeout=seconds)
        return list(ended)

    def result(self, task: Any) -> Any:
        """Return what a finished task has returned. Raises Died, or RequestError if it cannot be run at all."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(task)
        except (errors.RayTaskError, errors.RaySystemError, errors.RuntimeEnvSetupError) as error:
            raise RequestError([_lines(error)[-1]], prefix="") from None
        except errors.RayError as error:
            raise Died(_lines(error)[0].partition(". ")[0].rstrip(".")) from None


def demand(resources: Mapping[str, float]) -> dict[str, float]:
    """Return the resources of a task: those that a profile names, and one CPU if it does not say how many."""
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
