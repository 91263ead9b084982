"""The configuration that all processes that draft operators share, and the state of each trial of an operator."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import psutil

from opcheck.devices.device import CPU, availability
from opcheck.draft.data import SampleData
from opcheck.draft.draft import Draft
from opcheck.running.own_process import Ended, tell
from opcheck.settings import Settings
from opcheck.spec.device_profile import DeviceProfile

Record = dict[str, Any]

MEMORY = 4096
"""The memory that a process may take to try an operator, in MiB."""

EXAMPLES: SampleData = {"examples": True}
"""A pseudo-call that stands for running the examples in the documentation."""

BUSY = 3
"""Maximum wall-clock time, as a multiple of the maximum processor time."""


class Deadline:
    """A limit of processor time in seconds, and of `BUSY` times as much wall-clock time, for a machine that is busy."""

    def __init__(self, seconds: float, until: float = float("inf")) -> None:
        self.computing = time.process_time() + seconds
        self.until = min(until, time.monotonic() + BUSY * seconds)

    @property
    def is_over(self) -> bool:
        """Whether a limit has been exceeded."""
        return time.process_time() > self.computing or time.monotonic() > self.until


def allowing(settings: Settings, package: str) -> Settings:
    """Return the settings of a project with a package added to the modules that specs may name."""
    return settings.model_copy(update={"modules": tuple(dict.fromkeys((*settings.modules, package)))})


@dataclass(frozen=True)
class Workplace:
    """The configuration that all processes that draft operators share."""

    settings: Settings
    budget: float
    """The time for each operator, in seconds: see `Deadline`."""
    until: float = float("inf")
    """The time at which to stop drafting, by `time.monotonic()`."""
    device: DeviceProfile = CPU.profile
    """The device on which operators are called."""
    changes: tuple[str, ...] = ()
    """The changes that importing the target made to settings of the process."""
    runs_cases: bool = True
    """Whether to run the cases of drafts, too, and not only to search for samples."""

    def enter(self) -> None:
        """Append the project and the current folder to sys.path, so that drafts can name modules in them."""
        self.settings.put_on_path()
        sys.path += [folder for folder in [os.getcwd()] if folder not in sys.path]

    def alone(self) -> None:
        """Discard the output of this process, and limit its memory."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        if self.device.device_string != "cpu":
            availability(self.device)  # imports the module that registers the device
            return  # devices reserve address space, which the limit would count
        with suppress(ImportError, OSError, ValueError):  # not every platform has such limits
            import resource

            own = psutil.Process().memory_info().vms + MEMORY * 2**20
            _, most = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (own if most < 0 else min(own, most), most))


@dataclass
class Trial:
    """The state of drafting one operator: the final state, or the last one noted before its process died."""

    name: str
    given: Sequence[Sequence[SampleData]] = ()
    """Groups of given or recorded samples to use instead of guesses. One sample of each group is enough."""
    module: SampleData | None = None
    """The constructor arguments for a class of modules. None: guess them."""
    skip: tuple[SampleData, ...] = ()
    """Calls to skip, because they ended an earlier process."""
    begun: bool = False
    """Whether drafting has begun. It does not if the time is over."""
    hangs: bool = False
    """Whether the process was killed because it took too long."""
    call: SampleData | None = None
    """The call that was about to be made. None before the first call, and after the search for samples."""
    step: str = "before it was called"
    """What was about to be done, in words."""
    refusal: str = ""
    """Why there is no draft."""
    draft: Draft | None = None
    records: dict[str, Record] = field(default_factory=dict)
    """The records of the cases that have run, by id."""
    left: int = 0
    """The number of cases for which there was no time."""
    ended: list[str] = field(default_factory=list)
    """Descriptions of what ended a process of the operator, or would have ended it."""

    def recorded(self, *outcomes: str) -> list[Record]:
        """Return the records of the cases with one of these outcomes."""
        return [record for record in self.records.values() if record["outcome"] in outcomes]

    @property
    def is_slow(self) -> bool:
        """Whether the process was killed in a case, which calls the operator many times, and not in a single call."""
        return self.hangs and self.left > 0

    @property
    def is_called(self) -> bool:
        """Whether the operator itself was running, and not the examples in its documentation."""
        return self.call != EXAMPLES

    def note(self, seconds: float | None = None, **news: Any) -> None:
        """Set attributes, here and in the process that waits for this one, before the next step.

        seconds: the wall-clock limit of the next step. None: the limit does not change.
        """
        vars(self).update(news)
        tell(seconds, **news)

    def ended_by(self, ended: Ended) -> Trial:
        """Return the trial in the state last noted by its process, with the way in which the process ended."""
        own = replace(self, **{**ended.news, "begun": True, "hangs": ended.is_late})
        what = f"{ended.why}, {own.step}"
        if own.is_called:
            own.ended = [*own.ended, what]
        own.refusal = "" if own.draft else what
        return own
