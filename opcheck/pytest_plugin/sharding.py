"""A pytest plugin that keeps one shard of the cases, and orders the cases at random if requested."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from opcheck.pytest_plugin.items import CaseItem, cases_of
from opcheck.pytest_plugin.project import Plugin
from opcheck.text import digest

if TYPE_CHECKING:
    from opcheck.planning.shards import Durations, Shard


class Sharding:
    """A pytest plugin that selects one shard, and shuffles the cases. -k, -m and --lf select within the shard."""

    def __init__(self, plugin: Plugin) -> None:
        """Read the options. Raises UsageError for options that do not fit together."""
        self.plugin = plugin
        self.shard: Shard | None = None
        self.durations: Durations | None = None
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
            self.durations = read_durations(base / earlier) if earlier else None
        except SpecError as error:
            raise pytest.UsageError(str(error)) from None
        self.shard = Shard.parse(wanted)
        # Otherwise, --lf would remove cases before they are divided into shards.
        if plugin.config.pluginmanager.has_plugin("lfplugin-collwrapper"):
            plugin.config.pluginmanager.unregister(name="lfplugin-collwrapper")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None]:
        """Let other plugins select. Record the selected cases, keep those of the shard, and shuffle them.

        Other tests than cases are all kept, and keep their positions. Raises UsageError for a wrong -k or -m.
        """
        collected = cases_of(items)
        unknown = "" if session.testsfailed else self.plugin.unknown_operators()
        if unknown:
            self._refuse(unknown, items)
        try:
            yield
        except pytest.UsageError as error:
            if not hasattr(config, "workerinput"):
                raise
            self._refuse(str(error), items)
            return
        selected = cases_of(items)
        if selected or self.shard:
            self.plugin.planned = digest(case.id for case in selected), self.plugin.catalogue.digest()
        if self.shard:
            from opcheck.planning.shards import Group, Shared, groups_in

            own = groups_in(self.shard, collected, self.durations)
            kept = {item: not isinstance(item, CaseItem) or Group.of(item.case) in own for item in items}
            others = [item for item in items if not kept[item]]
            self.plugin.shared = Shared(str(self.shard), len(selected) - len(others), len(others))
            if collected and self.durations and (mistake := self.durations.mistake(collected)):
                self._refuse(mistake, items)
            elif others:
                items[:] = [item for item in items if kept[item]]
                config.hook.pytest_deselected(items=others)
        if self.plugin.order is not None:
            cases = [item for item in items if isinstance(item, CaseItem)]
            shuffled = iter(random.Random(self.plugin.order).sample(cases, len(cases)))
            items[:] = [next(shuffled) if isinstance(item, CaseItem) else item for item in items]

    def _refuse(self, mistake: str, items: list[pytest.Item]) -> None:
        """Select nothing, and keep the reason. It is not raised: pytest-xdist would treat an exception as a crash."""
        self.plugin.refused = mistake
        items.clear()
