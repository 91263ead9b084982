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
  root.append(
    scrolling(
      "Slowest operators",
      el(
        "table.plain.slowest",
        {},
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            names.map(([name, side]) => el("th", { scope: "col", className: side }, name)),
          ),
        ),
        el("tbody", {}, rows),
      ),
    ),
  );
  if (found.length > most) root.append(el("p.muted", {}, `and ${count(found.length - most)} faster ones`));
  return undefined;
}

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
    root.append(
      el("h3", {}, "Runs that are not whole"),
      el(
        "ul.reasons",
        {},
        DATA.gaps.map((line) => el("li", {}, line)),
      ),
    );
  }
  root.append(
    el("h3", {}, "Skipped, by reason"),
    skipped.length ? reasons(skipped, "skipped") : el("p.muted", {}, "No case was skipped."),
  );
  root.append(el("h3", {}, "Left out by rules of device profiles and specs"));
  root.append(
    left.length
      ? el(
          "ul.reasons",
          {},
          left.map((rule) =>
            el(
              "li",
              {},
              el("p", {}, linked(rule.reason)),
              el(
                "p.muted",
                {},
                `${plural(rule.cases, "case")} on ${rule.device}${RUNS.length > 1 ? `, run ${rule.run + 1}` : ""}`,
              ),
            ),
          ),
        )
      : el("p.muted", {}, "Nothing was left out."),
  );
}

/** Return cases by reason, the most frequent one first. */
function reasons(cases, outcome) {
  const found = [...grouped(cases, (index) => COLUMNS.reason[index])].sort(([, a], [, b]) => b.length - a.length);
  return el(
    "ul.reasons",
    {},
    found.map(([reason, own]) => {
      const operators = new Set(own.map((index) => textOf("operator", index)));
      const some =
        [...operators].slice(0, 4).join(", ") + (operators.size > 4 ? ` and ${operators.size - 4} more` : "");
      const places = new Set(
        own.map((index) => `${textOf("device", index)}${TORCHES.length > 1 ? ` torch ${torchOf(index)}` : ""}`),
      );
      const href = link({ view: "cases", outcome: new Set([outcome]), reason: TABLES.reason[reason] });
      return el(
        "li",
        {},
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
      );
    }),
  );
}

/** Show the known failures with their reasons, and what is mended. */
function showFindings(root, { cases }) {
  const known = cases.filter((index) => outcomeOf(index).name === "xfailed");
  const mended = cases.filter((index) => outcomeOf(index).name === "xpassed");
  root.append(heading("Findings", `${plural(known.length, "known failure")}, ${count(mended.length)} mended`));
  root.append(el("h3", {}, "Mended: expected to fail, and holds"));
  root.append(mended.length ? reasons(mended, "xpassed") : el("p.muted", {}, "No expectation is out of date."));
  root.append(el("h3", {}, "Known failures"));
  root.append(known.length ? reasons(known, "xfailed") : el("p.muted", {}, "No failure was expected."));
}
