// Short views: the slowest operators, what was not run, what is known and what is mended.

/** Show which operators take the time. */
function showSlowest(root, { cases }, most = 50) {
  const all = cases.reduce((sum, index) => sum + secondsOf(index), 0);
  const found = [...grouped(cases, (index) => COLUMNS.operator[index])]
    .map(([operator, own]) => ({
      name: TABLES.operator[operator],
      seconds: own.reduce((sum, index) => sum + secondsOf(index), 0),
      slowest: own.reduce((a, b) => (secondsOf(b) > secondsOf(a) ? b : a)),
      cases: own.length,
    }))
    .sort((a, b) => b.seconds - a.seconds);
  root.append(heading("Slowest operators", `${time(all)} in ${plural(cases.length, "case")}`));
  if (!found.length) return root.append(nothing());
  const rows = found.slice(0, most).map(({ name, seconds, slowest, cases: number }) => {
    const bar = el("span.fill");
    bar.style.width = `${(100 * seconds) / found[0].seconds}%`;
    return el(
      "tr",
      {},
      el(
        "th",
        { scope: "row" },
        el("a", { href: link({ view: "cases", operator: name, sort: "slow" }) }, name),
        el("span.meter", { "aria-hidden": "true" }, bar),
      ),
      el("td.right", {}, time(seconds)),
      el("td.right", {}, `${((100 * seconds) / (all || 1)).toFixed(1)} %`),
      el("td.right", {}, count(number)),
      el(
        "td",
        {},
        el(
          "a",
          { href: linkToCase(slowest) },
          `${textOf("check", slowest)} ${textOf("device", slowest)}-${textOf("dtype", slowest)}`,
        ),
        ` ${time(secondsOf(slowest))}`,
      ),
    );
  });
  const names = [
    ["Operator", ""],
    ["Time", "right"],
    ["Share", "right"],
    ["Cases", "right"],
    ["Slowest case", ""],
  ];
  root.append(table("Slowest operators", ".slowest", names, rows));
  if (found.length > most) root.append(el("p.muted", {}, `and ${count(found.length - most)} faster ones`));
  return undefined;
}

/** Return a table, which scrolls. names: pairs of a heading and its class. */
const table = (name, kind, names, rows) =>
  scrolling(
    name,
    el(
      `table.plain${kind}`,
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          names.map(([title, side]) => el("th", { scope: "col", className: side }, title)),
        ),
      ),
      el("tbody", {}, rows),
    ),
  );

/** Return something wide in a box of its own, which scrolls instead of the page. */
const scrolling = (name, ...children) =>
  el("div.wide", { tabIndex: 0, role: "region", "aria-label": name }, ...children);

/** Show what was not run, and why. */
function showUntested(root, { cases }) {
  const skipped = cases.filter((index) => outcomeOf(index).name === "skipped");
  const left = RUNS.flatMap((run, place) => run.left_out.map((rule) => ({ ...rule, run: place })))
    .filter((rule) => !STATE.device.size || STATE.device.has(rule.device))
    .sort((a, b) => b.cases - a.cases);
  const leftCases = left.reduce((sum, rule) => sum + rule.cases, 0);
  root.append(heading("Not run", `${plural(skipped.length, "case")} skipped, ${count(leftCases)} left out`));
  if (DATA.gaps.length) {
    root.append(el("h3", {}, "Runs that are not whole"), bullets("reasons", DATA.gaps));
  }
  const rules = left.map((rule) => {
    const where = `${rule.device}${RUNS.length > 1 ? `, run ${rule.run + 1}` : ""}`;
    return [el("p", {}, linked(rule.reason)), el("p.muted", {}, `${plural(rule.cases, "case")} on ${where}`)];
  });
  root.append(
    el("h3", {}, "Skipped, by reason"),
    reasons(skipped, "skipped", "No case was skipped."),
    el("h3", {}, "Left out by rules of device profiles and specs"),
    rules.length ? bullets("reasons", rules) : el("p.muted", {}, "Nothing was left out."),
  );
}

/** Return cases by reason, the most frequent one first. none: what to say if there are no cases. */
function reasons(cases, outcome, none) {
  if (!cases.length) return el("p.muted", {}, none);
  const found = [...grouped(cases, (index) => COLUMNS.reason[index])].sort(([, a], [, b]) => b.length - a.length);
  return bullets(
    "reasons",
    found.map(([reason, own]) => {
      const operators = new Set(own.map((index) => textOf("operator", index)));
      const some =
        [...operators].slice(0, 4).join(", ") + (operators.size > 4 ? ` and ${operators.size - 4} more` : "");
      const places = new Set(own.map((index) => textOf("device", index) + andTorch(torchOf(index))));
      const href = link({ view: "cases", outcome: new Set([outcome]), reason: TABLES.reason[reason] });
      return [
        el("p", {}, linked(TABLES.reason[reason] || "no reason given")),
        el(
          "p.muted",
          {},
          el(
            "a",
            { href, "aria-label": `${plural(own.length, "case")}: ${TABLES.reason[reason]}` },
            plural(own.length, "case"),
          ),
          ` on ${[...places].join(", ")} · ${some}`,
        ),
      ];
    }),
  );
}

/** Show the known failures with their reasons, and what is mended. */
function showFindings(root, { cases }) {
  const known = cases.filter((index) => outcomeOf(index).name === "xfailed");
  const mended = cases.filter((index) => outcomeOf(index).name === "xpassed");
  root.append(heading("Findings", `${plural(known.length, "known failure")}, ${count(mended.length)} mended`));
  root.append(
    el("h3", {}, "Mended: expected to fail, and holds"),
    reasons(mended, "xpassed", "No expectation is out of date."),
    el("h3", {}, "Known failures"),
    reasons(known, "xfailed", "No failure was expected."),
  );
}
