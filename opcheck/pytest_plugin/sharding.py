"""A pytest plugin that keeps one shard of the cases, and deselects the others."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from opcheck.pytest_plugin.items import CaseItem
from opcheck.pytest_plugin.project import Plugin

if TYPE_CHECKING:
    from opcheck.planning.shards import Durations, Shard


def register_shard(plugin: Plugin) -> None:
    """Register the plugin if the options request a shard. Raises UsageError for options that do not fit together."""
    option, base = plugin.config.option, plugin.config.invocation_params.dir
    wanted, earlier, report = option.opcheck_shard, option.opcheck_durations, option.opcheck_report_json
    if not wanted and not earlier:
        return
    from opcheck.planning.shards import NO_SHARD, Shard
    from opcheck.report.store import read_durations
    from opcheck.spec import SpecError

    if not wanted:
        raise pytest.UsageError(NO_SHARD)
    if earlier and report and (base / earlier).resolve() == (base / report).resolve():
        raise pytest.UsageError(f"the report would overwrite the durations, {earlier}; expected another file")
    try:
        durations = read_durations(base / earlier) if earlier else None
    except SpecError as error:
        raise pytest.UsageError(str(error)) from None
    manager = plugin.config.pluginmanager
    # Otherwise, --lf would remove cases before they are divided into shards.
    if manager.has_plugin("lfplugin-collwrapper"):
        manager.unregister(name="lfplugin-collwrapper")
    manager.register(Sharding(plugin, Shard.parse(wanted), durations))


class Sharding:
    """A pytest plugin that selects one shard. -k, -m and --lf select within it, but do not change the shards."""

    def __init__(self, plugin: Plugin, shard: Shard, durations: Durations | None) -> None:
        self.plugin = plugin
        self.shard = shard
        self.durations = durations

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
        """Divide the collected cases, let other plugins select, and keep the cases of the shard.

        Tests other than cases are all kept.
        """
        from opcheck.planning.shards import Group, Shared, groups_in

        cases = [item.case for item in items if isinstance(item, CaseItem)]
        own = groups_in(self.shard, cases, self.durations)
        yield
        selected = [item.case for item in items if isinstance(item, CaseItem)]
        count = sum(Group.of(case) in own for case in selected)
        self.plugin.shared = Shared(str(self.shard), count, len(selected) - count)
        self.plugin.plan(selected)
        if cases and self.durations is not None and (mistake := self.durations.mistake(cases)):
            self.plugin.refused = mistake  # not raised: pytest-xdist would treat an exception as a crash
            items.clear()
        taken = {item: not isinstance(item, CaseItem) or Group.of(item.case) in own for item in items}
        if not all(taken.values()):
            items[:] = [item for item in items if taken[item]]
            config.hook.pytest_deselected(items=[item for item, kept in taken.items() if not kept])
