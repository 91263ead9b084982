"""What a process does that asks torch for devices, so that no other process imports a backend untried."""

from __future__ import annotations

import json
import os
import sys

from opcheck.devices.availability import availability
from opcheck.devices.presence import plain
from opcheck.spec.device import DeviceProfile


def main() -> None:
    """Read profiles, say that torch is imported, and write an answer for each. What a backend prints is dropped."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    profiles = [DeviceProfile.model_validate(one) for one in json.loads(sys.stdin.readline())]
    print("ready", file=answers, flush=True)
    text = json.dumps({profile.name: plain(availability(profile)) for profile in profiles})
    print(text, file=answers, flush=True)
    os._exit(0)  # what a backend does at the exit of a process is no concern of the answer
