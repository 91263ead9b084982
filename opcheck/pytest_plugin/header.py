"""The header of a report: what this run of pytest knows about itself."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from opcheck.pytest_plugin.options import SELECTION, overrides
from opcheck.pytest_plugin.project import Plugin
from opcheck.spec.versions import version_of

if TYPE_CHECKING:
    from opcheck.report.from_pytest import Facts
    from opcheck.report.model import End, Header

COMMAND = pytest.StashKey[list[str]]()
"""The command, if it is another one than pytest's."""


def facts(plugin: Plugin) -> Facts:
    """Return what reports ask of a run that begins now."""
    from opcheck.report.from_pytest import Facts

    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Facts(
        lambda: _header(plugin, started), lambda: _end(plugin), lambda: plugin.settings.root,
        lambda: plugin.rerun_seed,
    )  # fmt: skip


def _end(plugin: Plugin) -> End:
    """Return what a run knows in the end about its selection; its cases are those of other shards."""
    from opcheck.report.model import End
    from opcheck.report.remarks import left_out_rows

    planned, specs = plugin.planned or ("", "")
    others = _other_shards(plugin.config)
    return End(complete=False, cases=others, planned=planned, specs=specs, left_out=left_out_rows(plugin.left_out))


def _other_shards(config: pytest.Config) -> int:
    """Return how many cases are in other shards, as the plugin says that divides them; 0 without shards."""
    shared = getattr(config.pluginmanager.get_plugin("opcheck_shard"), "shared", None)
    return 0 if shared is None else int(shared.others)


def _header(plugin: Plugin, started: str) -> Header:
    """Return the header of a run. Raises UsageError for mistakes in the settings of its project."""
    from opcheck.report.model import Header

    config, option = plugin.config, plugin.config.option
    return Header(
        opcheck=version_of("opcheck"),
        torch=version_of("torch"),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        devices=[profile.name for profile in plugin.devices],
        command=config.stash.get(COMMAND, ["pytest", *map(str, config.invocation_params.args)]),
        selection=dict(_selection(plugin)),
        overrides=overrides(option),
        engine=option.opcheck_engine or plugin.settings.engine,
        seed=plugin.seed,
        shard=getattr(option, "opcheck_shard", None) or "",
        started=started,
    )


def _selection(plugin: Plugin) -> Iterator[tuple[str, list[str]]]:
    """Yield the options that select cases, with their values."""
    from opcheck.report.files import within

    option, root = plugin.config.option, plugin.settings.root
    for name in SELECTION:
        if values := plugin.names(name):
            yield name, [*values]
    for name, key in (("k", "keyword"), ("m", "markexpr"), ("deselect", "deselect")):
        if value := getattr(option, key, None):
            yield name, [value] if isinstance(value, str) else [*map(str, value)]
    if getattr(option, "lf", False):
        yield "lf", []
    paths = [path for path in dict.fromkeys(plugin.requested) if path not in plugin.selected]
    cases = [f"{within(root, path)}::{name}" for path, names in plugin.selected.items() for name in sorted(names)]
    yield "paths", [*(within(root, path) for path in paths), *cases]
