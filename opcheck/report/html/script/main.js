// The page: what the address says is shown, whenever it changes.

const SHOW = {
  matrix: showMatrix,
  cases: showCases,
  slowest: showSlowest,
  untested: showUntested,
  findings: showFindings,
};
const BAR = filterBar(byId("filters"));
const LEFT = new Map(); // how each view was left, by its fragment
let shownFragment = null;

/** Show what the address says. */
function arrived() {
  const before = STATE;
  remember();
  STATE = parsed(location.hash);
  shownFragment = location.hash;
  const found = selected(STATE);
  const index = STATE.case ? caseOf(STATE.case, Number(STATE.run || 0)) : undefined;
  const view = byId("view");
  view.replaceChildren();
  byId("runs").hidden = STATE.view !== "runs" || Boolean(STATE.case);
  view.hidden = !byId("runs").hidden;
  byId("filters").hidden = Boolean(STATE.case) || STATE.view === "runs";
  document.body.classList.toggle("of-case", Boolean(STATE.case));
  showViews();
  BAR.update(STATE, found.counts);
  if (index !== undefined) showCase(view, index, found.cases);
  else if (STATE.case) showMissing(view);
  else if (SHOW[STATE.view]) SHOW[STATE.view](view, found);
  if (before.case !== STATE.case || before.view !== STATE.view) settle();
  else if (!STATE.case) say(`${plural(found.cases.length, "case")}`);
}

function showMissing(view) {
  view.append(
    heading("No such case", ""),
    el(
      "p",
      {},
      "This report has no case ",
      el("code", {}, STATE.case),
      ". ",
      el("a", { href: linkTo("cases") }, "All cases"),
    ),
  );
}

/** Keep how far a view is scrolled and which link has the focus, for when Back returns to it. */
function remember() {
  if (shownFragment === null) return;
  const frame = document.querySelector(".frame");
  const link = document.activeElement?.closest("main a")?.getAttribute("href");
  LEFT.set(shownFragment, { y: scrollY, top: frame?.scrollTop ?? 0, left: frame?.scrollLeft ?? 0, link });
}

/** After another view is shown: scroll to where it was left, and put the focus where a person goes on. */
function settle() {
  const { y, top, left, link } = LEFT.get(location.hash) ?? { y: 0, top: 0, left: 0 };
  scrollTo(0, y);
  document.querySelector(".frame")?.scrollTo(left, top);
  dispatchEvent(new Event("scroll"));
  const title = byId(STATE.view === "runs" && !STATE.case ? "runs-title" : "view-title");
  const focus = () => {
    const left = link ? document.querySelector(`main a[href="${CSS.escape(link)}"]`) : null;
    (left ?? title)?.focus({ preventScroll: true });
  };
  requestAnimationFrame(() => requestAnimationFrame(focus)); // rows in sight are drawn in the first
}

function showViews() {
  const tabs = Object.entries(VIEWS).map(([view, title]) =>
    el("a", { href: link({ view, sort: "" }), "aria-current": STATE.view === view ? "page" : null }, title),
  );
  byId("views").replaceChildren(el("div.tabs", {}, tabs));
  document.title = `${STATE.case || VIEWS[STATE.view]} · ${TITLE}`;
}
const TITLE = document.title;

// light and dark

const THEME = byId("theme");

function showTheme() {
  THEME.setAttribute("aria-pressed", isDark());
  document.dispatchEvent(new Event("themechange"));
}

THEME.addEventListener("click", () => {
  const chosen = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = chosen;
  try {
    localStorage.setItem("opcheck-theme", chosen);
  } catch {
    /* a file may have no storage */
  }
  showTheme();
});
try {
  const chosen = localStorage.getItem("opcheck-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  /* a file may have no storage */
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
showTheme();

// keys

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || isModified(event)) return;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || byId("filters").hidden) return;
  event.preventDefault();
  BAR.search.focus();
});

history.scrollRestoration = "manual";
addEventListener("hashchange", arrived);
arrived();
