"""The header of a report: what this run of pytest knows about itself."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from opcheck.spec.versions import version_of
from opcheck.suite.options import SELECTION, overrides
from opcheck.suite.project import Plugin

if TYPE_CHECKING:
    from opcheck.report.model import Run
    from opcheck.report.recorder import Facts

COMMAND = pytest.StashKey[list[str]]()
"""The command, if it is another one than pytest's."""


def facts(plugin: Plugin) -> Facts:
    """Return what reports ask of a run that begins now."""
    from opcheck.report.model import Run
    from opcheck.report.recorder import Facts

    config = plugin.config
    begun = Run(
        opcheck=version_of("opcheck"),
        torch=version_of("torch"),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        command=["pytest", *map(str, config.invocation_params.args)],
        engine=config.option.opcheck_engine or "",
        seed=config.option.opcheck_seed or 0,
        shard=getattr(config.option, "opcheck_shard", None) or "",
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        complete=False,
    )
    return Facts(
        begun, lambda: _header(plugin, begun), lambda: plugin.settings.root, lambda: plugin.left_out,
        lambda: _other_shards(config), lambda: plugin.planned or ("", ""), lambda: plugin.rerun_seed,
    )  # fmt: skip


def _other_shards(config: pytest.Config) -> int:
    """Return how many cases are in other shards, as the plugin says that divides them; 0 without shards."""
    shared = getattr(config.pluginmanager.get_plugin("opcheck_shard"), "shared", None)
    return 0 if shared is None else int(shared.others)


def _header(plugin: Plugin, begun: Run) -> Run:
    """Return the header of a run with what its project tells. Raises UsageError for mistakes in its settings."""
    from opcheck.report.model import Device

    option = plugin.config.option
    command = plugin.config.stash.get(COMMAND, begun.command)
    known: dict[str, object] = {
        "devices": [Device(name=profile.name) for profile in plugin.devices],
        "command": command,
        "selection": dict(_selection(plugin)),
        "overrides": overrides(option),
        "engine": option.opcheck_engine or plugin.settings.engine,
        "seed": plugin.seed,
    }
    return begun.model_copy(update=known)


def _selection(plugin: Plugin) -> Iterator[tuple[str, list[str]]]:
    """Yield the options that select cases, with their values."""
    from opcheck.report.places import within

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
