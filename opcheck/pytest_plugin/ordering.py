"""Cases in a random order: a pytest plugin that shuffles what is collected."""

from __future__ import annotations

import random
from typing import Any

import pytest

from opcheck.pytest_plugin.items import CaseItem

SENT = "opcheck_order"
"""The name under which workers of pytest-xdist are sent the number of the order, which is the same for all of them."""


def register_order(config: pytest.Config) -> None:
    """Register the plugin if the options ask for an order."""
    number = getattr(config, "workerinput", {}).get(SENT, config.option.opcheck_order)
    if number is not None:
        config.pluginmanager.register(Ordering(number), "opcheck_order")


class Ordering:
    """A pytest plugin that shuffles cases. Other tests stay where they are."""

    def __init__(self, number: int) -> None:
        self.number = number

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send the number to a worker, which would draw another one."""
        node.workerinput[SENT] = self.number

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Shuffle the cases. Which of them a shard has is decided by what they are, not by where they stand."""
        cases = [item for item in items if isinstance(item, CaseItem)]
        shuffled = iter(random.Random(self.number).sample(cases, len(cases)))
        items[:] = [next(shuffled) if isinstance(item, CaseItem) else item for item in items]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how to have the same order again."""
        option = f"--opcheck-order={self.number}"
        terminalreporter.write_line(f"opcheck: cases in a random order, which {option} gives again")
