"""`opcheck devices`: the devices that have a profile, and whether they are present."""

from __future__ import annotations

import argparse
import json

from opcheck.settings import Settings
from opcheck.spec.device import profiles


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--json", action="store_true", help="print an array of objects")


def run(options: argparse.Namespace) -> int:
    """Print one line or one JSON object per device. Imports torch."""
    from opcheck.devices.availability import availability

    records = []
    for profile in profiles(Settings.find().device_folders()).values():
        found = availability(profile)
        records.append(
            {
                "name": profile.name, "torch": profile.device_string, "present": found.present, "count": found.count,
                "detail": found.detail, "reason": found.reason, "lacks": list(profile.lacks), "about": profile.about,
            }
        )  # fmt: skip
    if options.json:
        print(json.dumps(records, indent=1))
        return 0
    for record in records:
        state = (
            f"present ({record['count']})  {record['detail']}" if record["present"] else f"absent: {record['reason']}"
        )
        print(f"{record['name']:<8} {state}")
    return 0
