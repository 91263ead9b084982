"""`opcheck run --against`: what has changed since an earlier report."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from opcheck.planning import plan
from opcheck.report.diff import Diff, diff
from opcheck.report.model import Record, Report
from opcheck.report.places import within
from opcheck.spec import Library
from opcheck.spec.device import DeviceProfile


@dataclass(frozen=True)
class Request:
    """What a run is to do, before options select among it."""

    library: Library
    devices: Collection[DeviceProfile]
    paths: Collection[str]
    """The files and folders of specs, as in records."""

    @classmethod
    def of(cls, library: Library, devices: Collection[DeviceProfile], paths: Collection[Path], root: Path) -> Request:
        """Return the request for the operators below some paths on some devices."""
        return cls(library, devices, [within(root, path) for path in paths])

    def missed(self, old: Report) -> set[str]:
        """Return the cases of a report that the specs of this request no longer have, whatever options select.

        Cases on other devices, and of other files, are none of its business.
        """
        names = {device.name for device in self.devices}
        planned = {case.id for case in plan(self.library, self.devices)}
        return {one.id for one in old.records if one.device in names and self._has(one) and one.id not in planned}

    def _has(self, record: Record) -> bool:
        return not record.file or any(
            path in (".", record.file) or record.file.startswith(f"{path}/") for path in self.paths
        )


def changes(old: Report, new: Report, request: Request) -> Diff:
    """Compare the report of a run with an earlier one. The other shards of the run are not missed."""
    missed = request.missed(old)
    alone = {"shard": "", "cases": None}
    own = Report([run.model_copy(update=alone) for run in new.runs], new.unread)
    return diff(old, own, is_gone=lambda record: record.id in missed)
