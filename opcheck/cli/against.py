"""`opcheck run --against`: what has changed since an earlier report."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from opcheck.planning import plan
from opcheck.report.diff import Diff, diff
from opcheck.report.model import Record, Report
from opcheck.spec import Library
from opcheck.spec.device import DeviceProfile


def changes(
    old: Report, new: Report, library: Library, devices: Iterable[DeviceProfile], paths: Collection[str]
) -> Diff:
    """Compare the report of a run with an earlier one.

    A case of the old report is gone if the specs no longer have it, whatever options select: cases on other devices,
    of other files, and of other shards of the run are not missed.

    library: the operators below some paths, which are written as in records.
    """
    devices = list(devices)
    names, planned = {device.name for device in devices}, {case.id for case in plan(library, devices)}

    def is_gone(record: Record) -> bool:
        file = record.file
        is_below = not file or any(path in (".", file) or file.startswith(f"{path}/") for path in paths)
        return is_below and record.device in names and record.id not in planned

    alone = [run.model_copy(update={"shard": "", "cases": None}) for run in new.runs]
    return diff(old, Report(alone, new.unread), is_gone=is_gone)
