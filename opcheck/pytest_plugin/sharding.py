"""One shard of the cases: a pytest plugin that keeps it, and leaves out the others."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

import pytest

from opcheck.pytest_plugin.items import CaseItem
from opcheck.pytest_plugin.project import PLUGIN

if TYPE_CHECKING:
    from opcheck.planning import Case
    from opcheck.planning.shards import Durations, Shard, Shared

SENT = "opcheck_shard"
"""The name under which a worker of pytest-xdist sends how many cases its shard has."""


def register_shard(config: pytest.Config) -> None:
    """Register the plugin if the options ask for a shard. Raises UsageError if they make no sense."""
    option, base = config.option, config.invocation_params.dir
    wanted, earlier, report = option.opcheck_shard, option.opcheck_durations, option.opcheck_report_json
    if not wanted:
        if earlier:
            from opcheck.planning.shards import NO_SHARD

            raise pytest.UsageError(NO_SHARD)
        return
    if earlier and report and (base / earlier).resolve() == (base / report).resolve():
        raise pytest.UsageError(f"the report would overwrite the durations, {earlier}; expected another file")
    from opcheck.planning.shards import Shard
    from opcheck.report.store import read_durations
    from opcheck.spec import SpecError

    try:
        durations = read_durations(base / earlier) if earlier else None
    except SpecError as error:
        raise pytest.UsageError(str(error)) from None
    sharding = config.stash[SHARDING] = Sharding(Shard.parse(wanted), durations)
    config.pluginmanager.register(sharding, "opcheck_shard")


class Sharding:
    """A pytest plugin that selects one shard. -k, -m and --lf choose within it: they do not change what it is."""

    shared: Shared | None = None
    """How many of the selected cases the shard has; None before they are collected."""

    refused: str = ""
    """Why a worker of pytest-xdist has collected nothing: what is wrong with the durations."""

    def __init__(self, shard: Shard, durations: Durations | None) -> None:
        self.shard = shard
        self.durations = durations

    def pytest_configure(self, config: pytest.Config) -> None:
        """Let --lf collect files in which nothing has failed: their cases count where shards are divided."""
        if config.pluginmanager.has_plugin("lfplugin-collwrapper"):
            config.pluginmanager.unregister(name="lfplugin-collwrapper")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
        """Divide what is collected, let others choose, and keep what is in the shard. Other tests are all kept."""
        from opcheck.planning.shards import Group, Shared, groups_in

        cases = [item.case for item in items if isinstance(item, CaseItem)]
        mistake = self.mistake(cases) if cases else ""
        if mistake and not hasattr(config, "workerinput"):
            raise pytest.UsageError(mistake)
        own = groups_in(self.shard, cases, self.durations)
        yield
        selected = [item.case for item in items if isinstance(item, CaseItem)]
        count = sum(Group.of(case) in own for case in selected)
        self.shared = Shared(str(self.shard), count, len(selected) - count)
        config.stash[PLUGIN].plan(selected)
        if mistake:  # pytest-xdist takes an exception for a crash
            self.refused = mistake
            items.clear()
        taken = {item: not isinstance(item, CaseItem) or Group.of(item.case) in own for item in items}
        if not all(taken.values()):
            items[:] = [item for item in items if taken[item]]
            config.hook.pytest_deselected(items=[item for item, kept in taken.items() if not kept])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the counts to the controlling process. An empty shard is no mistake if the others have cases."""
        is_empty = self.shared is not None and self.shared.own == 0 < self.shared.others
        if self.shared is not None and hasattr(session.config, "workeroutput"):
            session.config.workeroutput[SENT] = [self.refused, *self.shared]
        elif self.refused:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
        elif session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and is_empty:
            session.exitstatus = pytest.ExitCode.OK

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take over what a worker of pytest-xdist has counted. All of them collect the same cases."""
        counted = getattr(node, "workeroutput", {}).get(SENT)
        if counted:
            from opcheck.planning.shards import Shared

            self.refused, *shared = counted
            self.shared = Shared(*shared)

    def mistake(self, cases: Iterable[Case]) -> str:
        """Return why the durations say nothing about some cases; an empty string if they do, or there are none."""
        return self.durations.mistake(cases) if self.durations is not None else ""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how many cases the shard has, and how many the others have."""
        if self.refused:
            terminalreporter.write_line(f"ERROR: {self.refused}", red=True)
        elif self.shared is not None:
            terminalreporter.write_line(f"opcheck: {self.shared}")


SHARDING = pytest.StashKey[Sharding]()
