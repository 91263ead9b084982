"""`opcheck devices`: the devices that have a profile, and whether they are present."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from opcheck.cli.stdout import say
from opcheck.devices.presence import Availability, ask, may_be_present
from opcheck.pytest_plugin.options import add_options
from opcheck.settings import Settings
from opcheck.spec.device_profile import DeviceProfile
from opcheck.spec.dtypes import expand


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--json", action="store_true", help="print an array of objects")
    add_options(parser, "profiles")


def run(options: argparse.Namespace) -> int:
    """Print one line or one JSON object per device. Separate processes import torch and look for the devices."""
    settings = Settings.find(profiles=options.device_profile)
    profiles = settings.profiles
    answers = ask(profiles.values(), settings)
    if options.json:
        print(json.dumps([record(one, answers[name]) for name, one in profiles.items()], indent=1))
        return 0
    for name, profile in profiles.items():
        one = answers[name]
        state = f"present ({one.count})  {one.detail}" if one.present else f"absent: {one.reason}"
        if one.present and not may_be_present(profile, settings):
            state += "; tested only if it is named: no sign of its hint is there"
        say(f"{name:<8} {state}")
    return 0


def record(profile: DeviceProfile, answer: Availability) -> dict[str, Any]:
    """Return a profile, inherited keys included, and whether its device is present, as plain data."""
    keys = {"about", "inherits", "module", "dtypes", "allow", "deny", "seed", "synchronize", "resources"}
    return {
        "name": profile.name,
        "torch": profile.device_string,
        "file": profile.file,
        **profile.model_dump(mode="json", include=keys),
        **asdict(answer),
        "lacks": list(expand(profile.lacks)),
        "expect": len(profile.expect),
    }
