// Which cases the filters leave, in which order, and how many each further filter would.

const NAMES = Object.keys(FACETS);

/** Return the cases that pass all filters, and for each facet how many its values would leave beside the other filters. */
function selected(state) {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const operator = state.operator ? TABLES.operator.indexOf(state.operator) : -1;
  const reason = state.reason ? TABLES.reason.indexOf(state.reason) : -1;
  const chosen = NAMES.map((name) => {
    const { values } = FACETS[name];
    return state[name].size ? values.map((value) => state[name].has(value)) : null;
  });
  const columns = NAMES.map((name) => FACETS[name].column);
  const counts = NAMES.map((name) => new Array(FACETS[name].values.length).fill(0));
  const cases = [];
  for (let index = 0; index < SIZE; index++) {
    if (state.operator && COLUMNS.operator[index] !== operator) continue;
    if (state.reason && COLUMNS.reason[index] !== reason) continue;
    let refused = -1; // the one facet that refuses it; -2: there are more
    for (let k = 0; k < NAMES.length && refused !== -2; k++) {
      if (chosen[k] && !chosen[k][columns[k][index]]) refused = refused === -1 ? k : -2;
    }
    if (refused === -2 || !words.every((word) => searched(index).includes(word))) continue;
    if (refused === -1) cases.push(index);
    for (let k = 0; k < NAMES.length; k++) if (refused === -1 || refused === k) counts[k][columns[k][index]]++;
  }
  return { cases, counts: Object.fromEntries(NAMES.map((name, k) => [name, counts[k]])) };
}

const SORTS = {
  "": { title: "Worst first", key: (a, b) => COLUMN_OF_OUTCOMES[a] - COLUMN_OF_OUTCOMES[b] || a - b },
  name: { title: "By name", key: (a, b) => compare(subjectOf(a), subjectOf(b)) || a - b },
  slow: { title: "Slowest first", key: (a, b) => COLUMNS.microseconds[b] - COLUMNS.microseconds[a] || a - b },
};

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

/** Return cases in groups, by a key. */
function grouped(cases, key) {
  const found = new Map();
  for (const index of cases) {
    const own = key(index);
    if (found.has(own)) found.get(own).push(index);
    else found.set(own, [index]);
  }
  return found;
}
