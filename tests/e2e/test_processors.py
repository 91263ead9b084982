"""Shipped specs of recurrent modules hold on other processors, which variables of oneDNN and torch imitate."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from demo_project import BIN

ROOT = Path(__file__).parents[2]


@pytest.mark.nightly
@pytest.mark.parametrize(("onednn", "aten"), [("SSE41", "default"), ("AVX2", "avx2")])
def test_recurrent_modules_hold(onednn, aten):
    environ = {**os.environ, "ONEDNN_MAX_CPU_ISA": onednn, "ATEN_CPU_CAPABILITY": aten}
    options = ("--device", "cpu", "--check", "low_precision_grad")
    run = subprocess.run(
        [BIN / "opcheck", "run", "specs/modules/recurrent.toml", *options],
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "cases in" in run.stdout
