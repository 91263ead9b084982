"""A report of many cases, made up: two devices, three dtypes, two versions of torch, all outcomes."""

from __future__ import annotations

from typing import Any

from opcheck.report.content import Report, Run

CHECKS = (
    "backward", "forward_ad", "batched_grad", "undefined_grad", "grad_dtypes", "nondeterminism", "purity", "context",
    "linearity", "saved", "rev_over_rev", "fwd_over_rev", "vmap", "dtypes", "variants",
)  # fmt: skip
PLACES = [(run, device, dtype) for run in (0, 1) for device in ("cpu", "npu") for dtype in ("float64", "complex128")]
EACH = len(CHECKS) * len(PLACES)
OUTCOMES = {
    "failed": "the reverse-mode Jacobian is not the numerical one",
    "error": "the operator refuses the sample: RuntimeError: no kernel",
    "skipped": "npu is not present",
    "xfailed": "https://example.org/issues/12: no derivative at ties",
    "xpassed": "expected to fail, and holds",
    "inconclusive": "the function has a kink here",
    "blocked": "not judged, since backward does not hold",
}
WINDOW = {
    "name": "output 0 with respect to x", "output": "output 0", "leaf": "x", "rows": 3, "columns": 2, "first_row": 0,
    "first_column": 0, "row_labels": ["[0]", "[1]", "[2]"], "column_labels": ["[0]", "[1]"],
    "numerical": [[1.0, 0.0], [0.0, 2.0], [-4.0, 0.5]], "analytical": [[1.0, 0.0], [0.0, 3.5], ["nan", 0.5]],
    "wrong": [[1, 1], [2, 0]],
}  # fmt: skip


def many_cases(count: int, text: str = "") -> Report:
    """Return a report of so many cases. One of 20 is not passed; those that failed have Jacobians.

    text: stands before each operator, reason and message.
    """
    records = [_record(number, text) for number in range(count)]
    runs = [_run("2.13.0"), _run("2.14.1")]
    return Report([Run(**run, records=[one for own, one in records if own == k]) for k, run in enumerate(runs)])


def _run(torch: str) -> dict[str, Any]:
    return {
        "opcheck": "0.1.0", "torch": torch, "python": "3.11.7", "platform": "Linux x86_64", "engine": "batched",
        "seed": 0, "devices": ["cpu", "npu"], "details": {"npu": "NPU 3"}, "command": ["opcheck", "run"],
        "shard": "", "started": "2026-01-02T03:04:05+00:00", "seconds": 1234.5, "complete": torch == "2.13.0",
        "left_out": [{"device": "npu", "reason": "lacks float16", "cases": 77}],
    }  # fmt: skip


def _record(number: int, text: str) -> tuple[int, dict[str, Any]]:
    """Return the number of a run, and a record of it."""
    operator, rest = divmod(number, EACH)
    check, (run, device, dtype) = CHECKS[rest // len(PLACES)], PLACES[rest % len(PLACES)]
    name = f"{text}torch.operator_{operator:03}"
    case = f"{name}::{check}[{device}-{dtype}]"
    record = {
        "id": case, "operator": name, "variant": "function", "check": check, "device": device, "dtype": dtype,
        "family": f"family {operator % 9}", "outcome": "passed", "seconds": 0.001 * (number % 97),
        "seed": 0, "file": "specs/made.toml", "line": 3 + operator, "rerun": f"opcheck run 'specs/made.toml::{case}'",
    }  # fmt: skip
    if number % 20:
        return run, record
    outcome = list(OUTCOMES)[number // 20 % len(OUTCOMES)]
    record |= {"outcome": outcome, "reason": f"{text}{OUTCOMES[outcome]}", "message": f"{text}{case}\nin several lines"}
    if outcome == "failed":
        finding = {"kind": "factor", "text": f"{text}the gradient is 2 times what it should be"}
        record |= {
            "fields": {
                "sample": "0",
                "diagnosis": [finding],
                "jacobians": [WINDOW | {"name": f"{text}{WINDOW['name']}"}],
            }
        }
        record |= {"toml": f'{{ args = [{{ shape = [2] }}], note = "{text}" }}'}
    return run, record
