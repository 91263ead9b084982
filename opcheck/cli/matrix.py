"""`opcheck matrix`: prints the jobs of `[tool.opcheck.matrix]` in the form that a CI service reads, without torch."""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator

from opcheck.cli.selecting import loaded
from opcheck.cli.stdout import warn
from opcheck.matrix import Job, Matrix
from opcheck.planning import plan
from opcheck.settings import Settings
from opcheck.spec import SpecError
from opcheck.spec.dtypes import declared, expand
from opcheck.spec.problems import RequestError
from opcheck.text import counted, separated

NO_MATRIX = "no matrix here: write [tool.opcheck.matrix] in pyproject.toml, with devices = [...] for example"

MOST_ON_GITHUB = 256
"""The maximum number of jobs of a matrix on GitHub."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--format", choices=["github", "gitlab", "json"], default="json",
        help="the value of strategy.matrix, the jobs of a child pipeline, or an array of objects; default: json",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Print the jobs. Raises SpecError for mistakes in the matrix, RequestError if the project has no matrix."""
    settings = Settings.find()
    matrix = settings.matrix
    if matrix is None:
        raise RequestError([NO_MATRIX])
    with declared(settings.dtypes):
        unknown = list(matrix.unknown_names(settings.profiles))
        if unknown:
            raise SpecError(
                settings.problem(("matrix", *one.place), one.what, one.expected, one.nearest) for one in unknown
            )
        for line in _left_out(settings, matrix):
            warn(line)
    if options.format == "github":
        print(json.dumps({"include": _for_github(matrix)}))
    elif options.format == "gitlab":
        for job in matrix.jobs():  # valid YAML; a file that defines the job `.opcheck` can be appended
            print(f"{json.dumps(job['name'])}: {json.dumps(_for_gitlab(job))}")
    else:
        print(json.dumps(matrix.jobs(), indent=1))
    return 0


def _left_out(settings: Settings, matrix: Matrix) -> Iterator[str]:
    """Yield a warning for each device with cases in dtypes that no job tests."""
    groups = defaultdict[str, list[str]](list)
    for job in matrix.jobs():
        groups[str(job["device"])].append(str(job["dtype"]))
    narrow = {name: separated(several) for name, several in groups.items() if "" not in several}
    if not narrow:
        return
    profiles = settings.profiles
    try:
        library = loaded([], settings)
    except SpecError:
        return  # each job reports the mistakes in specs
    for name, several in narrow.items():
        covered = expand(several)
        counts = Counter(case.dtype for case in plan(library, [profiles[name]]))
        lost = {dtype: count for dtype, count in counts.items() if dtype not in covered}
        if lost:
            some = f"{sum(lost.values())} of {counted(sum(counts.values()), 'case')}"
            advice = "add these dtypes to [tool.opcheck.matrix] dtypes"
            yield f"no job tests {', '.join(lost)} on {name}: {some} will not run; {advice}"


def _for_github(matrix: Matrix) -> list[Job]:
    """Return the jobs as entries of `include`. Raises RequestError if there are more than GitHub allows."""
    jobs = matrix.jobs(runner="ubuntu-latest")
    if len(jobs) > MOST_ON_GITHUB:
        raise RequestError([f"the matrix has {len(jobs)} jobs; expected at most {MOST_ON_GITHUB}, which GitHub allows"])
    return jobs


def _for_gitlab(job: Job) -> dict[str, object]:
    """Return a job that extends `.opcheck`. Its device, dtypes etc. are variables `OPCHECK_*`."""
    variables = {f"OPCHECK_{key.upper()}": text for key, text in job.items() if text and key not in ("name", "runner")}
    runner = job["runner"]
    tags = {"tags": [runner] if isinstance(runner, str) else runner} if runner else {}
    return {"extends": ".opcheck", **tags, "variables": variables}
