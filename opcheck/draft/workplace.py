"""What the processes that draft operators have in common, and what each of them knows of its operator."""

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
from opcheck.spec.render import render

Record = dict[str, Any]

MEMORY = 4096
"""The MiB that trying an operator may take."""

EXAMPLES = "examples"
"""The key of a call that stands for all calls of the examples in the documentation."""

BUSY = 3
"""How many times longer something may take by the clock than it may compute."""


class Deadline:
    """When to stop: after some seconds of computing, or a few times as many by the clock, on a machine that is busy."""

    def __init__(self, seconds: float, until: float = float("inf")) -> None:
        self.computing = time.process_time() + seconds
        self.until = min(until, time.monotonic() + BUSY * seconds)

    @property
    def is_over(self) -> bool:
        """Whether it is time to stop."""
        return time.process_time() > self.computing or time.monotonic() > self.until


def allowing(settings: Settings, package: str) -> Settings:
    """Return the settings of a project in which drafts may name a package, too."""
    return settings.model_copy(update={"modules": tuple(dict.fromkeys((*settings.modules, package)))})


@dataclass(frozen=True)
class Workplace:
    """What the processes that draft operators have in common."""

    settings: Settings
    budget: float
    """The seconds that an operator may take."""
    until: float = float("inf")
    """When the whole draft is to end, by `time.monotonic()`."""
    device: DeviceProfile = CPU.profile
    """The device on which operators are called."""
    changes: tuple[str, ...] = ()
    """What importing the target has changed in the process."""

    def enter(self) -> None:
        """Let this process, and those that it starts, import what the drafts name."""
        self.settings.put_on_path()
        sys.path += [folder for folder in [os.getcwd()] if folder not in sys.path]

    def alone(self) -> None:
        """Keep this process from printing, and from taking all of the memory."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        if self.device.device_string != "cpu":
            availability(self.device)  # imports what registers it
            return  # addresses are reserved for the memory of a device, too
        with suppress(ImportError, OSError, ValueError):  # where there are no such limits
            import resource

            own = psutil.Process().memory_info().vms + MEMORY * 2**20
            _, most = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (own if most < 0 else min(own, most), most))


@dataclass
class Trial:
    """What is known of an operator: all that there is to know, or as much as there was when its process ended."""

    name: str
    given: Sequence[Sequence[SampleData]] = ()
    """Samples that are given or recorded, of which one of each group is enough: instead of guesses."""
    module: SampleData | None = None
    """How a class of modules is constructed; None: by guesses."""
    skip: tuple[SampleData, ...] = ()
    """Calls that have ended an earlier process."""
    begun: bool = False
    """Whether there was time for it."""
    hangs: bool = False
    """Whether its process has been ended, for taking too long."""
    call: SampleData | None = None
    """The call that was about to be made; None: all samples have been looked for."""
    case: str = ""
    """The case that was about to run."""
    tried: str = ""
    """What the case was about to try."""
    refusal: str = ""
    """Why there is no draft."""
    is_constant: bool = False
    """Whether there is none because there is nothing to differentiate, which is certain, and no lack of guesses."""
    drafts: list[Draft] = field(default_factory=list)
    records: dict[str, Record] = field(default_factory=dict)
    """What has become of the cases, by id."""
    left: int = 0
    """The number of cases for which there was no time."""
    ended: list[str] = field(default_factory=list)
    """What has ended its process, or would have."""

    def recorded(self, *outcomes: str) -> list[Record]:
        """Return what has become of the cases with some outcomes."""
        return [record for record in self.records.values() if record["outcome"] in outcomes]

    def again(self) -> Trial:
        """Return what is to be done without the call that has ended the process."""
        assert self.call is not None
        return Trial(self.name, self.given, self.module, (*self.skip, self.call), ended=self.ended)

    @property
    def is_slow(self) -> bool:
        """Whether its process has been ended for a case that took too long. It called the operator many times."""
        return self.hangs and bool(self.case)

    @property
    def is_called(self) -> bool:
        """Whether it was the operator itself that ran, and not the examples in its documentation."""
        return self.call is None or EXAMPLES not in self.call

    def doing(self) -> str:
        """Return what was going on, in words."""
        if self.case:
            return f"in the case {self.case}" + (f", at {self.tried}" if self.tried else "")
        if not self.is_called:
            return "in the examples in its documentation"
        return f"in the call {render(self.call)}" if self.call is not None else "before it was called"

    def note(self, seconds: float | None = None, **news: Any) -> None:
        """Note what is known, here and in the process that waits for this one, before the next step.

        seconds: how long that may take. None: as said before.
        """
        vars(self).update(news)
        tell(seconds, **news)

    def ended_by(self, ended: Ended) -> Trial:
        """Return what its process has told last, with how the process has ended."""
        own = replace(self, **{**ended.news, "begun": True, "hangs": ended.is_late})
        what = f"{ended.why}, {own.doing()}"
        if own.is_called:
            own.ended = [*own.ended, what]
        own.refusal = "" if own.drafts else what
        return own
