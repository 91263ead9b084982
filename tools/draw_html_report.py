"""Takes the screenshots of the HTML report in docs: a run on two devices, one of them with faults, in Chromium.

`python tools/draw_html_report.py [REPORT] [--output docs]`. Without a report, it runs shipped operators on the CPU and
on the device of examples/backend. Needs playwright and Chromium. The font is Inter if it is installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from opcheck.report.html import rendered
from opcheck.report.store import read

ROOT = Path(__file__).resolve().parent.parent
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
FAULTS = "gradient,conj,noncontiguous,on_cpu,float64"
OPERATORS = (
    "torch.tanh,torch.atan,torch.dot,torch.sigmoid,torch.logaddexp2,torch.cos,torch.sin,torch.exp,torch.mv,torch.cumsum,"
    "torch.atan2,torch.erf,torch.log1p,torch.hypot,torch.outer,torch.logit"
)
CASE = "#view=cases&outcome=failed&case=torch.tanh::backward[sim-float64]"
PICTURES = {  # name: fragment, color scheme, size
    "html-report-light": ("", "light", (1280, 800)),
    "html-report-dark": (CASE, "dark", (1280, 960)),
    "html-report-phone": (CASE, "light", (390, 844)),
}
MOST = 200_000
"""The maximum size of a picture, in bytes."""


def chromium() -> str:
    """Return the path of the system's Chromium. Raises FileNotFoundError if there is none."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        raise FileNotFoundError("Chromium is not installed: `make browser` installs it")
    return found


def report_of_two_devices(folder: Path) -> Path:
    """Run shipped operators in a copy of examples/backend, with faults. Return the path of the report.

    Raises RuntimeError unless the run finds a fault.
    """
    shutil.copytree(ROOT / "examples" / "backend", folder, dirs_exist_ok=True)
    program = str(Path(sys.executable).parent / "opcheck")
    command = [
        program,
        "run",
        "builtin",
        "--device",
        "cpu,sim",
        "--operator",
        OPERATORS,
        "--report-json",
        "report.json",
    ]
    done = subprocess.run(
        [*command, "-n", "2"], cwd=folder, env={**os.environ, "SIM_FAULTS": FAULTS}, capture_output=True, text=True
    )
    if done.returncode != 1:
        raise RuntimeError(f"the run exited with {done.returncode}, not 1\n{done.stdout}{done.stderr}")
    return folder / "report.json"


def draw(page: Path, output: Path) -> None:
    """Take the screenshots of a page. Raises ValueError if a picture is too large."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        for name, (fragment, scheme, (width, height)) in PICTURES.items():
            tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            tab.goto(page.as_uri() + fragment)
            tab.wait_for_timeout(300)
            if fragment:
                tab.evaluate("document.activeElement.blur()")
            path = output / f"{name}.png"
            tab.screenshot(path=path)
            size = path.stat().st_size
            print(f"{path.name}: {size:,} bytes")
            if size > MOST:
                raise ValueError(f"{path} has {size:,} bytes, more than {MOST:,}")
        browser.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", nargs="?", type=Path, metavar="REPORT")
    parser.add_argument("--output", type=Path, default=ROOT / "docs", metavar="FOLDER")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        report = options.report or report_of_two_devices(Path(name))
        page = Path(name) / "page.html"
        page.write_text(rendered(read(report)), encoding="utf-8")
        draw(page, options.output)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
