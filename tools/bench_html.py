"""Measures the HTML report of many cases in Chromium: the times to write it, to load it and to draw a frame.

`python tools/bench_html.py [--cases 20000]`. Needs playwright and Chromium.
At 60 frames a second, a frame may take 16.7 ms.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import CDPSession, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]

from draw_html_report import FLAGS, chromium  # noqa: E402
from many_cases import many_cases  # noqa: E402

from opcheck.report.html import rendered  # noqa: E402

SCROLL = """async (selector) => {
  const area = selector ? document.querySelector(selector) : document.scrollingElement;
  const frame = () => new Promise(requestAnimationFrame);
  const found = [];
  let before = await frame();
  for (let k = 0; k < 60; k++) {
    area.scrollTop += 60;
    const now = await frame();
    found.push(now - before);
    before = now;
  }
  return found.sort((a, b) => a - b);
}"""


def frames(page: Page, what: str, selector: str) -> None:
    """Scroll, and print the times of frames, and the mean CPU time of the page's thread for a frame."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = busy(session)
    found = page.evaluate(SCROLL, selector)
    cpu = 1000 * (busy(session) - before) / len(found)
    median, late = found[len(found) // 2], found[int(len(found) * 0.95)]
    print(
        f"{what:<28} {median:6.1f} ms a frame, 95 % below {late:.1f} ms, at most {found[-1]:.1f} ms; CPU {cpu:.1f} ms"
    )


def busy(session: CDPSession) -> float:
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    return metrics["TaskDuration"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000)
    count = parser.parse_args().cases
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path, report = Path(folder) / "page.html", many_cases(count)
        start = time.perf_counter()
        path.write_text(rendered(report), encoding="utf-8")
        print(f"{'written':<28} {time.perf_counter() - start:6.2f} s, {path.stat().st_size / 1e6:.1f} MB")
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        for what, fragment, selector in (
            ("the matrix", "", ".frame"),
            ("the list of cases", "#view=cases", ""),
        ):
            page.goto("about:blank")
            page.goto(path.as_uri() + fragment)
            loaded = page.evaluate("performance.timing.loadEventEnd - performance.timing.navigationStart")
            print(f"{what + ' is loaded':<28} {loaded / 1000:6.2f} s")
            frames(page, f"{what} scrolls", selector)
        start = time.perf_counter()
        page.get_by_label("Search").fill("operator_01 backward")
        page.wait_for_url("**q=operator*")
        print(
            f"{'a search is answered':<28} {time.perf_counter() - start:6.2f} s, of which 0.12 s wait for further keys"
        )
        browser.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
