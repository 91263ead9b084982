// The report: columns of numbers, tables of texts, and what is there about single cases.

const DATA = JSON.parse(byId("data").textContent);
const { tables: TABLES, columns: COLUMNS, runs: RUNS } = DATA;
const SIZE = COLUMNS.operator.length;

// The worst one first. A sign stands beside each color.
const OUTCOMES = [
  ["failed", "×", "a claim does not hold"],
  ["error", "!", "a claim could not be tested"],
  ["inconclusive", "?", "there is no derivative at the sample: it should move"],
  ["xpassed", "↑", "mended: it was expected to fail, and holds"],
  ["blocked", "→", "not judged, since a more basic claim does not hold"],
  ["xfailed", "≈", "a known failure, with its reason"],
  ["skipped", "–", "not run, with a reason"],
  ["passed", "✓", "tested, and it held"],
].map(([name, sign, about], rank) => ({ name, sign, about, rank }));

const BAD = 5; // outcomes of a lower rank fail a run
const RANK = DATA.outcomes.map((name) => OUTCOMES.findIndex((outcome) => outcome.name === name));
const COLUMN_OF_OUTCOMES = COLUMNS.outcome.map((kind) => RANK[kind]); // ranks

/** A version of torch, for each case: a property of its run. */
const TORCHES = [...new Set(RUNS.map((run) => run.torch))];
const COLUMN_OF_TORCH = COLUMNS.run.map((run) => TORCHES.indexOf(RUNS[run].torch));

// What cases can be told apart by. Each has a list of values, and their place for each case.
const FACETS = {
  outcome: { title: "Outcome", values: OUTCOMES.map((outcome) => outcome.name), column: COLUMN_OF_OUTCOMES },
  device: { title: "Device", values: TABLES.device, column: COLUMNS.device },
  dtype: { title: "Dtype", values: TABLES.dtype, column: COLUMNS.dtype },
  torch: { title: "torch", values: TORCHES, column: COLUMN_OF_TORCH },
  check: { title: "Check", values: TABLES.check, column: COLUMNS.check },
  family: { title: "Family", values: TABLES.family, column: COLUMNS.family },
};

const textOf = (name, index) => TABLES[name][COLUMNS[name][index]];
const outcomeOf = (index) => OUTCOMES[COLUMN_OF_OUTCOMES[index]];
const torchOf = (index) => TORCHES[COLUMN_OF_TORCH[index]];
/** Return the version of torch after other words, where a report has several. */
const andTorch = (version, between = " ") => (TORCHES.length > 1 ? `${between}torch ${version}` : "");
const secondsOf = (index) => COLUMNS.microseconds[index] / 1e6;
const detailsOf = (index) => DATA.details[index] ?? {};
const isBad = (index) => COLUMN_OF_OUTCOMES[index] < BAD;

/** Return what the check of a case claims; nothing for a check of others. */
const claimOf = (index) => DATA.claims[textOf("check", index)];

function subjectOf(index) {
  const variant = textOf("variant", index);
  return textOf("operator", index) + (variant === "function" ? "" : `[${variant}]`);
}

function idOf(index) {
  const usual = `${subjectOf(index)}::${textOf("check", index)}[${textOf("device", index)}-${textOf("dtype", index)}]`;
  return DATA.ids[index] ?? usual;
}

const rerunOf = (index) => textOf("rerun", index).replaceAll("\0", idOf(index));

/** Return what a search looks at, in lower case. */
function searched(index) {
  if (!SEARCHED[index]) {
    const words = [
      idOf(index),
      textOf("family", index),
      outcomeOf(index).name,
      torchOf(index),
      textOf("reason", index),
    ];
    SEARCHED[index] = words.join(" ").toLowerCase();
  }
  return SEARCHED[index];
}
const SEARCHED = new Array(SIZE);

/** Return the case with an id, of a run; undefined if there is none. */
function caseOf(id, run) {
  if (!PLACES.size)
    for (let index = 0; index < SIZE; index++) PLACES.set(`${COLUMNS.run[index]} ${idOf(index)}`, index);
  return PLACES.get(`${run} ${id}`);
}
const PLACES = new Map();

/** Return an outcome's sign, and its name if wanted, in its color. */
function badge(outcome, named = true) {
  const sign = el(`span.sign.o-${outcome.name}`, { "aria-hidden": "true" }, outcome.sign);
  return named ? el("span.badge", { title: outcome.about }, sign, outcome.name) : sign;
}
