"""Writes a report as one self-contained HTML file: template, style, script and data."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from opcheck.report.content import Report, Run
from opcheck.report.html.encoding import encoded
from opcheck.report.remarks import wide_lines

HERE = Path(__file__).resolve().parent

SCRIPTS = (
    "dom", "data", "address", "selection", "filters", "matrix", "cases", "lists", "jacobian", "colors", "case", "main",
)  # fmt: skip
"""The parts of the script. They share one scope; `main` starts the page."""


def rendered(report: Report) -> str:
    """Return the HTML page of a report.

    Text of the report never becomes markup: the template escapes it, and the script creates text nodes. As a second
    barrier, the content security policy of the page allows no script but its own, and loads nothing.
    """
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"duration": duration, "moment": moment}
    data = encoded(report)
    script, style = _script(), (HERE / "style.css").read_text(encoding="utf-8")
    return environment.get_template("page.html.j2").render(
        report=report,
        gaps=data["gaps"],
        wide=wide_lines(report.records),
        title=title(report.runs),
        data=Markup(_embedded(data)),
        script=Markup(script),
        style=Markup(style),
        policy={"script": _digest(script), "style": _digest(style)},
    )


def title(runs: list[Run]) -> str:
    """Return the title of the page, with the devices and the versions of torch."""
    devices = list(dict.fromkeys(device for run in runs for device in run.devices))
    versions = list(dict.fromkeys(run.torch for run in runs if run.torch))
    parts = [", ".join(devices), f"torch {', '.join(versions)}" if versions else ""]
    return " \N{MIDDLE DOT} ".join(["opcheck report", *filter(None, parts)])


def duration(seconds: float) -> str:
    """Return a duration in words, as in `2 h 5 min`, `3 min 10 s` or `4.2 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def moment(text: str) -> str:
    """Return an ISO 8601 time in a readable form. Return any other text unchanged."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).strftime("%d %b %Y, %H:%M %Z").strip()
    except ValueError:
        return text


def _script() -> str:
    parts = [(HERE / "script" / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "})();\n"


def _embedded(data: Mapping[str, Any]) -> str:
    """Return data as JSON in which `&`, `<` and `>` are escaped, so that it is safe inside HTML."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _digest(text: str) -> str:
    """Return the source expression by which a content security policy allows an inline script or style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
