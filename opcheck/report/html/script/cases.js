// The list of cases. Only those in sight exist.

/** Return a heading of a view, with what it counts, and something at its side. */
function heading(title, counts, aside = null) {
  return el("div.heading", {}, el("h2", { id: "view-title", tabIndex: -1 }, title), el("p.muted", {}, counts), aside);
}

const nothing = () =>
  el("p.nothing", {}, "No case is left by these filters. ", el("a", { href: linkTo(STATE.view) }, "Clear filters"));

/** Return a field that chooses an order. */
function sorting(sorts) {
  const field = el("select", { "aria-label": "Order" });
  for (const [value, { title }] of Object.entries(sorts)) field.append(el("option", { value }, title));
  field.value = sorts[STATE.sort] ? STATE.sort : "";
  field.addEventListener("change", () => go(link({ sort: field.value })));
  return field;
}

/** Show the list. */
function showCases(root, { cases }) {
  const ordered = [...cases].sort((SORTS[STATE.sort] ?? SORTS[""]).key);
  root.append(heading("Cases", plural(ordered.length, "case"), sorting(SORTS)));
  if (!ordered.length) return root.append(nothing());
  const list = el("ol.list", { "aria-label": "Cases; arrow keys move, Enter opens" });
  root.append(list);
  const rows = { list, cases: ordered, at: Math.max(0, ordered.indexOf(LAST_OPENED)), shown: [-1, -1], height: 0 };
  list.addEventListener("keydown", (event) => moveInList(event, rows));
  watchScrolling(() => list.isConnected && drawList(rows));
  drawList(rows);
  return undefined;
}

/** Make the cases that are in sight. */
function drawList(rows) {
  const { list, cases } = rows;
  const height = innerWidth < 720 ? 74 : 38;
  if (height !== rows.height) {
    rows.height = height;
    rows.shown = [-1, -1];
    list.style.height = `${cases.length * height}px`;
    list.replaceChildren();
  }
  const above = -list.getBoundingClientRect().top;
  const first = clamped(Math.floor(above / height) - 10, 0, Math.max(0, cases.length - 1));
  const last = Math.min(cases.length, first + Math.ceil(innerHeight / height) + 20);
  if (first === rows.shown[0] && last === rows.shown[1]) return;
  const kept = new Map([...list.children].map((node) => [Number(node.dataset.place), node]));
  const [before, after] = rows.shown;
  rows.shown = [first, last];
  for (const [place, node] of kept) if (place < first || place >= last) node.remove();
  const added = [];
  for (let place = first; place < last; place++) if (!kept.has(place)) added.push(caseRow(rows, place));
  if (first < before || before < 0)
    list.prepend(...added.filter((node) => Number(node.dataset.place) < before || before < 0));
  list.append(...added.filter((node) => before >= 0 && Number(node.dataset.place) >= Math.min(before, after)));
  setListStop(rows);
}

function caseRow(rows, place) {
  const index = rows.cases[place];
  const outcome = outcomeOf(index);
  const where = `${textOf("device", index)} ${textOf("dtype", index)}${andTorch(torchOf(index), " · ")}`;
  const row = el(
    "li",
    { "data-place": place, "aria-posinset": place + 1, "aria-setsize": rows.cases.length },
    el(
      "a",
      { href: linkToCase(index), tabIndex: -1 },
      badge(outcome, false),
      el("span.unseen", {}, `${outcome.name}: `),
      el("span.subject", {}, subjectOf(index)),
      el("span.of", {}, textOf("check", index)),
      el("span.where", {}, where),
      el("span.reason", {}, textOf("reason", index)),
      el("span.time", {}, time(secondsOf(index))),
    ),
  );
  row.style.top = `${place * rows.height}px`;
  row.style.height = `${rows.height}px`;
  return row;
}

function setListStop(rows) {
  const place = clamped(rows.at, rows.shown[0], rows.shown[1] - 1);
  for (const node of rows.list.children) node.firstChild.tabIndex = Number(node.dataset.place) === place ? 0 : -1;
}

function moveInList(event, rows) {
  const own = Number(event.target.closest("li")?.dataset.place ?? rows.at);
  const last = rows.cases.length - 1;
  const places = { ArrowUp: own - 1, ArrowDown: own + 1, PageUp: own - 12, PageDown: own + 12, Home: 0, End: last };
  if (!(event.key in places) || isModified(event)) return;
  event.preventDefault();
  focusRow(rows, clamped(places[event.key], 0, last));
}

function focusRow(rows, place) {
  rows.at = place;
  const top = rows.list.getBoundingClientRect().top + place * rows.height;
  const margin = rows.height * 2;
  if (top < margin) scrollBy(0, top - margin);
  if (top + margin > innerHeight) scrollBy(0, top + margin - innerHeight);
  drawList(rows);
  setListStop(rows);
  rows.list.querySelector(`[data-place="${place}"] a`).focus({ preventScroll: true });
}

let LAST_OPENED = -1; // the case that was open last: where the list goes on
let watching = new AbortController();

/** Call a function as the page scrolls or changes its size, until the next view asks for the same. */
function watchScrolling(action) {
  watching.abort();
  watching = new AbortController();
  const later = () => requestAnimationFrame(action);
  addEventListener("scroll", later, { passive: true, signal: watching.signal });
  addEventListener("resize", later, { signal: watching.signal });
}
