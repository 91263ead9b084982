#!/usr/bin/env bash
# The steps of action.yml: `opcheck.sh install|base|matrix|run|report|all`. All but `base` work without GitHub, too. They are
# given environment variables:
#
#   OPCHECK_ID, _DEVICE, _TORCH, _PYTHON, _DTYPE, _SHARD   one job of the matrix; what is empty is left open
#   OPCHECK_INSTALL    what pip installs beside torch and opcheck: the project
#   OPCHECK_OPTIONS    further arguments of `opcheck run`
#   OPCHECK_MATRIX     what `matrix` has put out: `report` asks for the report of each job
#   OPCHECK_REPORTS    the folder of the jobs' reports (default: opcheck-reports)
#   OPCHECK_BASE       the report to compare with, and to divide shards by (default: opcheck-base/opcheck.json)
#   OPCHECK_OUTPUT     the folder of the merged report and its page (default: opcheck-report)
#   OPCHECK_FOLDER     where the project is in its repository
set -euo pipefail
shopt -s nullglob

reports=${OPCHECK_REPORTS:-opcheck-reports}
base=${OPCHECK_BASE:-opcheck-base/opcheck.json}
output=${OPCHECK_OUTPUT:-opcheck-report}
summary=${GITHUB_STEP_SUMMARY:-/dev/stdout}
shard=${OPCHECK_SHARD:-}

# What planning and reporting need of opcheck comes without torch, which takes minutes to install.
install() {
  local -a project=()
  read -r -d '' -a project <<< "${OPCHECK_INSTALL:-}" || true
  if [ "$1" = whole ]; then
    python -m pip install "torch${OPCHECK_TORCH:+==$OPCHECK_TORCH}"
    python -m pip install "$(cd "$(dirname "$0")/.." && pwd)[reference]" "${project[@]}"
  else
    python -m pip install --no-deps "$(cd "$(dirname "$0")/.." && pwd)"
    python -c 'from importlib.metadata import requires
print(*(one for one in requires("opcheck") if "extra ==" not in one and not one.startswith("torch>")), sep="\n")' |
      python -m pip install --requirement /dev/stdin
  fi
}

# Fetches the last report of a branch, of this workflow, into the folder of the base. There need be none. The branch of a
# fork may have the same name: what a pull request has reported does not count.
fetch_base() {
  local id ids folder told failing=""
  folder=$(dirname "$base")
  if ! ids=$(gh run list --workflow "$GITHUB_WORKFLOW" --branch "$1" --status completed --limit 10 \
    --json databaseId,event --jq '.[] | select(.event | startswith("pull_request") | not) | .databaseId'); then
    echo "::warning title=opcheck::gh cannot list the runs of $1: nothing is compared"
    return
  fi
  for id in $ids; do
    if told=$(gh run download "$id" --name opcheck-report --dir "$folder" 2>&1); then
      echo "compared with the report of run $id"
      return
    fi
    [[ "$told" == *artifact* ]] || failing=$told  # else that run has left no report
  done
  if [ -n "$failing" ]; then
    echo "::warning title=opcheck::gh cannot fetch a report of $1: nothing is compared: ${failing//$'\n'/; }"
    return
  fi
  echo "::notice title=opcheck::$1 has no report yet: there is nothing to compare with"
}

# All jobs divide their shards by the same base: it is looked at once, here.
matrix() {
  local jobs told
  jobs=$(opcheck matrix --format github)
  echo "matrix=$jobs" >> "${GITHUB_OUTPUT:-/dev/stdout}"
  if [ -f "$base" ] && ! told=$(opcheck list --shard 1/2 --durations "$base" 2>&1 > /dev/null); then
    echo "::warning title=opcheck::nothing is compared, since the last report is of no use: ${told//$'\n'/; }"
    rm "$base"
  fi
}

run() {
  local -a options=() further=()
  local split word
  split=$(words "${OPCHECK_OPTIONS:-}") || return 2
  while IFS= read -r word; do further+=("$word"); done <<< "$split"
  [ -n "$split" ] || further=()
  if [ -n "${OPCHECK_DEVICE:-}" ]; then
    is_present "$OPCHECK_DEVICE" || return 2
    options+=(--device "$OPCHECK_DEVICE")
  fi
  [ -z "${OPCHECK_DTYPE:-}" ] || options+=(--dtype "$OPCHECK_DTYPE")
  [ -z "$shard" ] || options+=(--shard "$shard")
  if [ -n "$shard" ] && [ -f "$base" ]; then options+=(--durations "$base"); fi
  mkdir -p "$reports"
  opcheck run "${further[@]}" "${options[@]}" --report-json "$reports/${OPCHECK_ID:-opcheck}.json"
}

# Splits options as a shell would, one a line, and runs nothing in them.
words() {
  python -c 'import shlex, sys
try:
    print(*shlex.split(sys.argv[1]), sep="\n")
except ValueError as error:
    sys.exit(f"the options cannot be split: {error}: {sys.argv[1]}")' "$1"
}

# Cases on an absent device are skipped. A job that is about the device must not pass for that.
is_present() {
  opcheck devices --json | python -c 'import json, sys
device = next((one for one in json.load(sys.stdin) if one["name"] == sys.argv[1]), {"reason": "no such device"})
sys.exit(None if device.get("present") else "the device " + sys.argv[1] + " is not present: " + device["reason"])' "$1"
}

# Goes on after a failure, so that what is found is shown in any case, and fails in the end.
report() {
  local code=0 lost merged=$output/opcheck.json files=("$reports"/*.json)
  keep() { "$@" || { local new=$?; [ "$new" -le "$code" ] || code=$new; }; }
  lost=$(lost_jobs) || return 2
  if [ -n "$lost" ]; then
    echo "::error title=opcheck::no report of: ${lost//$'\n'/; }"
    { echo "There is no report of these jobs:"; echo; echo "- ${lost//$'\n'/$'\n'- }"; echo; } >> "$summary"
    code=1
  fi
  if [ ${#files[@]} -eq 0 ]; then
    echo "::error title=opcheck::there is no report"
    return 1
  fi
  mkdir -p "$output"
  keep opcheck report merge "${files[@]}" -o "$merged"
  [ -f "$merged" ] || return "$code"
  keep opcheck report markdown "$merged" >> "$summary"
  keep opcheck report github-annotations "$merged" --folder "${OPCHECK_FOLDER:-}"
  keep opcheck report html "$merged" -o "$output/opcheck.html"
  if [ -f "$base" ]; then
    keep opcheck report diff "$base" "$merged" > "$output/diff.txt"
    { echo; echo "### Since the last report"; echo; sed 's/^/    /' "$output/diff.txt"; } >> "$summary"
    cat "$output/diff.txt"
  else
    keep has_no_failure "$merged"
  fi
  return "$code"
}

# Without a report to compare with, whatever fails counts.
has_no_failure() {
  python -c 'import sys
from pathlib import Path
from opcheck.report.store import read
sys.exit(any(record.is_bad for record in read(Path(sys.argv[1])).records))' "$1"
}

# The names of the jobs that have left no report, one a line.
lost_jobs() {
  python -c 'import json, os, pathlib, sys
try:
    jobs = json.loads(os.environ.get("OPCHECK_MATRIX") or "{}").get("include", [])
    named = [(job["name"], job["id"] + ".json") for job in jobs]
except (ValueError, AttributeError, TypeError, KeyError):
    sys.exit("OPCHECK_MATRIX is no matrix; expected what opcheck matrix --format github prints")
print(*(name for name, file in named if not pathlib.Path(sys.argv[1], file).exists()), sep="\n")' "$reports"
}

case "${1:-}" in
  install) install "${2:-whole}" ;;
  base) fetch_base "$2" ;;
  matrix) matrix ;;
  run) run ;;
  report) report ;;
  all)
    code=0
    run || code=$?
    report || { other=$?; [ "$other" -le "$code" ] || code=$other; }
    exit "$code"
    ;;
  *)
    echo "opcheck.sh: unknown step \"${1:-}\"; expected one of install, base, matrix, run, report, all" >&2
    exit 2
    ;;
esac
