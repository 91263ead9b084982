"""Runs the reproduction of a finding with the installed torch, and tells what happens instead of what is right."""

from __future__ import annotations

import warnings
from typing import Any

from opcheck.report.findings import Finding
from opcheck.text import ending


def observed(finding: Finding) -> str:
    """Return what happens instead of what is right, or an empty string if the fault is not there.

    Where the device of the fault is absent, it returns that nothing has run. Raises what the reproduction raises for
    another reason than the one that is known.
    """
    if is_out_of_reach(finding):
        return f"not run: {finding.device} is absent"
    if finding.crashes:
        from opcheck.running.reproduction import executed

        status, _ = executed(finding.reproduction)
        return ending(status) if status < 0 else ""
    return _result(finding)


def is_out_of_reach(finding: Finding) -> bool:
    """Tell whether a fault is one of a device that is absent."""
    import torch

    return bool(finding.device) and not torch.get_device_module(finding.device).is_available()


def _result(finding: Finding) -> str:
    import torch

    names: dict[str, Any] = {}
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            exec(finding.reproduction, names)
    except Exception as error:
        if not finding.raises or finding.raises not in str(error):
            raise
        return f"{type(error).__name__}: {error}".strip()
    if finding.raises:
        return ""
    try:
        torch.testing.assert_close(names["actual"], names["expected"], rtol=1e-3, atol=1e-4, check_dtype=False)
    except AssertionError:
        return f"actual = {names['actual']}\nexpected = {names['expected']}"
    return ""
