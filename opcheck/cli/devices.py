"""`opcheck devices`: the devices that have a profile, and whether they are present."""

from __future__ import annotations

import argparse
import json
from typing import Any

from opcheck.cli.selecting import add_profiles, settings_of
from opcheck.spec.device import DeviceProfile
from opcheck.spec.dtypes import expand
from opcheck.text import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--json", action="store_true", help="print an array of objects")
    add_profiles(parser)


def run(options: argparse.Namespace) -> int:
    """Print one line or one JSON object per device. Imports torch."""
    settings = settings_of(options)
    settings.put_on_path()  # a project may have the module of its device
    records = [record(profile) for profile in settings.profiles().values()]
    if options.json:
        print(json.dumps(records, indent=1))
        return 0
    for found in records:
        state = f"present ({found['count']})  {found['detail']}" if found["present"] else f"absent: {found['reason']}"
        print(printable(f"{found['name']:<8} {state}", most=1000))
    return 0


def record(profile: DeviceProfile) -> dict[str, Any]:
    """Return a profile as plain data, with what it inherits, and whether its device is present."""
    from opcheck.devices.availability import availability

    found = availability(profile)
    return {
        "name": profile.name,
        "torch": profile.device_string,
        "about": profile.about,
        "file": profile.file,
        "inherits": profile.inherits,
        "module": profile.module,
        "present": found.present,
        "reason": found.reason,
        "count": found.count,
        "detail": found.detail,
        "lacks": list(expand(profile.lacks)),
        "dtypes": list(profile.dtypes),
        "allow": None if profile.allow is None else list(profile.allow),
        "deny": list(profile.deny),
        "expect": len(profile.expect),
        "seed": profile.seed,
        "synchronize": profile.synchronize,
        "resources": profile.resources,
    }
