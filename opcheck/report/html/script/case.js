// One case: what is wrong with it, by what evidence, how to run it again, and how it fares elsewhere.

/** Show a case. */
function showCase(root, index, cases) {
  const outcome = outcomeOf(index);
  const details = detailsOf(index);
  const rerun = rerunOf(index);
  LAST_OPENED = index;
  const back = el("a.back", { href: link({}) }, icon(ICONS.back), `Back to ${VIEWS[STATE.view].toLowerCase()}`);
  root.append(
    el("div.crumbs", {}, back, neighbours(index, cases)),
    el(
      "article.case",
      {},
      el(
        "header",
        {},
        badge(outcome),
        el("h2", { id: "view-title", tabIndex: -1 }, idOf(index)),
        el("p.lead", {}, linked(textOf("reason", index) || outcome.about)),
        claimOf(index) ? el("p.muted", {}, `The claim: ${claimOf(index)}.`) : null,
      ),
      looksLike(details),
      pictures(details),
      worstEntries(details),
      sample(index, details),
      rerun ? block("Run it again", rerun, "the command") : null,
      facts(index, details),
      elsewhere(index),
      message(details),
    ),
  );
}

/** Return links to the cases before and after, of those that the filters leave. */
function neighbours(index, cases) {
  const ordered = [...cases].sort((SORTS[STATE.sort] ?? SORTS[""]).key);
  const place = ordered.indexOf(index);
  const found = [
    ["Previous", ordered[place - 1]],
    ["Next", ordered[place + 1]],
  ].filter(([, other]) => place >= 0 && other !== undefined);
  const where = place >= 0 ? el("span.muted", {}, `${count(place + 1)} of ${count(ordered.length)}`) : null;
  return el(
    "nav.neighbours",
    { "aria-label": "Cases" },
    where,
    found.map(([name, other]) =>
      el("a", { href: linkToCase(other), title: idOf(other), "aria-label": `${name} case: ${idOf(other)}` }, name),
    ),
  );
}

function looksLike({ findings, fields }) {
  const cause = fields?.blocked_by;
  const lines = [
    ...(findings ?? []),
    ...(cause ? [`Blocked by the check ${cause}: it does not hold either, and comes first.`] : []),
  ];
  if (!lines.length) return null;
  return el(
    "section.finding",
    {},
    el("h3", {}, "It looks like this"),
    el(
      "ul",
      {},
      lines.map((line) => el("li", {}, line)),
    ),
  );
}

function pictures({ jacobians }) {
  if (!jacobians?.length) return null;
  return el(
    "section",
    {},
    el("h3", {}, jacobians.length > 1 ? `Jacobians (${jacobians.length})` : "The Jacobians"),
    jacobians.map((data, number) => jacobianPictures(data, number)),
  );
}

function worstEntries({ worst }) {
  if (!worst?.length) return null;
  const rows = worst.map(([name, numerical, analytical]) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, el("code", {}, name)),
      el("td.right", {}, shown(analytical)),
      el("td.right", {}, shown(numerical)),
      el("td.right", {}, shown(Number(analytical) - Number(numerical), 4)),
    ),
  );
  const names = ["Entry", "Analytical", "Numerical", "Difference"].map((name, k) => [name, k ? "right" : ""]);
  return el("section", {}, el("h3", {}, "Worst entries"), table("Worst entries", "", names, rows));
}

function sample(index, { toml, sample: name }) {
  if (!toml) return null;
  const title = name ? `Sample ${name}` : "Sample";
  return block(title, toml, "the sample", placeOf(index));
}

function placeOf(index) {
  const file = textOf("file", index);
  return file ? `${file}${COLUMNS.line[index] ? `:${COLUMNS.line[index]}` : ""}` : "";
}

/** Return a text to copy. */
function block(title, text, what, beside = "") {
  return el(
    "section.block",
    {},
    el("div.title", {}, el("h3", {}, title), beside ? el("code.muted", {}, beside) : null, copyButton(text, what)),
    el("pre", { tabIndex: 0, role: "region", "aria-label": title }, text),
  );
}

function facts(index, { fields }) {
  const run = COLUMNS.run[index];
  const found = [
    ["Operator", textOf("operator", index)],
    ["Variant", textOf("variant", index)],
    ["Check", textOf("check", index)],
    ["Device", textOf("device", index)],
    ["Dtype", textOf("dtype", index)],
    ["torch", torchOf(index)],
    ["Family", textOf("family", index)],
    ["Spec", placeOf(index)],
    ["Time", time(secondsOf(index))],
    ["Run", RUNS.length > 1 ? String(run + 1) : ""],
    ...Object.entries(fields ?? {}).map(([name, value]) => [
      name,
      typeof value === "string" ? value : JSON.stringify(value),
    ]),
  ].filter(([, value]) => value);
  return el(
    "section",
    {},
    el("h3", {}, "Facts"),
    el(
      "dl.facts",
      {},
      found.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
    ),
  );
}

/** Return the outcomes of the same claim on other devices, in other dtypes, with other versions of torch. */
function elsewhere(index) {
  const others = [];
  for (let other = 0; other < SIZE; other++) {
    if (["operator", "variant", "check"].every((name) => COLUMNS[name][other] === COLUMNS[name][index]))
      others.push(other);
  }
  if (others.length < 2) return null;
  others.sort(inOrder);
  return el(
    "section",
    {},
    el("h3", {}, "The same claim elsewhere"),
    bullets(
      "elsewhere",
      others.map((other) =>
        el(
          "a",
          { href: linkToCase(other), "aria-current": other === index ? "true" : null },
          badge(outcomeOf(other), false),
          el("span", {}, `${textOf("device", other)} ${textOf("dtype", other)}${andTorch(torchOf(other))}`),
          el("span.muted", {}, outcomeOf(other).name),
        ),
      ),
    ),
  );
}

function message({ message: text }) {
  if (!text) return null;
  return el(
    "details.message",
    {},
    el("summary", {}, "The whole message"),
    el("pre", { tabIndex: 0, role: "region", "aria-label": "The whole message" }, text),
  );
}
