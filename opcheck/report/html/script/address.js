// What is shown is in the fragment of the address: each view has a link, and Back works.

const VIEWS = {
  matrix: "Matrix",
  cases: "Cases",
  slowest: "Slowest",
  untested: "Not run",
  findings: "Findings",
  runs: RUNS.length > 1 ? "Runs" : "The run",
};
const SINGLE = ["q", "operator", "reason", "sort", "case", "run"];

/** Return what a fragment says: the view, a set for each facet, and single values. Unknown words are left out. */
function parsed(fragment) {
  const given = new URLSearchParams(fragment.replace(/^#/, ""));
  const state = { view: VIEWS[given.get("view")] ? given.get("view") : "matrix" };
  for (const name of SINGLE) state[name] = given.get(name) ?? "";
  for (const [name, facet] of Object.entries(FACETS)) {
    state[name] = new Set(given.getAll(name).filter((value) => facet.values.includes(value)));
  }
  return state;
}

/** Return the fragment for a state. */
function fragmentOf(state) {
  const found = new URLSearchParams({ view: state.view }); // an empty fragment would scroll the page
  for (const name of Object.keys(FACETS)) for (const value of state[name]) found.append(name, value);
  for (const name of SINGLE) if (state[name]) found.set(name, state[name]);
  return `#${found}`;
}

let STATE = parsed(location.hash);

/** Return a link to the present view with some changes. Whatever it leads to, no case is open unless one is named. */
const link = (changes) => fragmentOf({ ...STATE, case: "", run: "", ...changes });

/** Return a link to a case. There are many of them: what they have in common is made once. */
function linkToCase(index) {
  if (COMMON.state !== STATE) Object.assign(COMMON, { state: STATE, link: link({}) });
  const run = COLUMNS.run[index];
  return `${COMMON.link}&${new URLSearchParams({ case: idOf(index), ...(run ? { run } : {}) })}`;
}
const COMMON = { state: null, link: "" };

/** Return a link that filters by values, and by nothing else. */
function linkTo(view, only = {}) {
  const state = { ...parsed(""), view };
  for (const [name, value] of Object.entries(only)) state[name] = FACETS[name] ? new Set([].concat(value)) : value;
  return fragmentOf(state);
}

/** Go to a fragment. `replace`: without a step for Back. */
function go(fragment, replace = false) {
  if (fragment === location.hash) return;
  if (replace) {
    history.replaceState(history.state, "", fragment);
    arrived();
  } else {
    location.hash = fragment;
  }
}
