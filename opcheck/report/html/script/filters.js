// The bar of filters: outcomes as buttons, other facets as menus, a search, and what else narrows the view.

/** Build the bar once. `update` shows a state in it, and the counts of a selection. */
function filterBar(root) {
  const share = el("div.share", { "aria-hidden": "true" });
  const chips = el("div.chips", { role: "group", "aria-label": "Outcomes" });
  const search = el("input", {
    type: "search",
    id: "search",
    placeholder: "Search operators, checks, reasons",
    autocomplete: "off",
    "aria-label": "Search",
    "aria-keyshortcuts": "/",
  });
  const menus = el("div.menus");
  const further = el("div.further");
  root.append(el("div.bar", {}, search, menus), share, chips, further);

  let waiting = 0;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => go(link({ q: search.value.trim() }), true), 120);
  });
  const toggle = (name, value) => {
    const own = new Set(STATE[name]);
    if (!own.delete(value)) own.add(value);
    go(link({ [name]: own }));
  };

  const buttons = FACETS.outcome.values.map((value, rank) => {
    const number = el("span.number");
    const button = el(
      "button.chip",
      { type: "button", title: OUTCOMES[rank].about },
      badge(OUTCOMES[rank], false),
      value,
      number,
    );
    button.addEventListener("click", () => toggle("outcome", value));
    chips.append(button);
    return { button, number, value };
  });
  const boxes = NAMES.filter((name) => name !== "outcome" && FACETS[name].values.length > 1).map((name) =>
    menu(menus, name, toggle),
  );
  document.addEventListener("click", (event) => {
    for (const open of menus.querySelectorAll("details[open]")) if (!open.contains(event.target)) open.open = false;
  });

  const update = (state, counts) => {
    if (document.activeElement !== search || !state.q) search.value = state.q;
    for (const [rank, { button, number, value }] of buttons.entries()) {
      number.textContent = count(counts.outcome[rank]);
      button.setAttribute("aria-pressed", state.outcome.has(value));
      button.hidden = !counts.outcome[rank] && !state.outcome.has(value);
    }
    share.replaceChildren(
      ...OUTCOMES.filter(({ rank }) => counts.outcome[rank]).map(({ name, rank }) => {
        const part = el(`span.o-${name}`);
        part.style.flexGrow = counts.outcome[rank];
        return part;
      }),
    );
    for (const box of boxes) box(state, counts);
    further.replaceChildren(...furtherFilters(state));
  };
  return { update, search };
}

/** Build the menu of a facet. Return a function that updates it. */
function menu(root, name, toggle) {
  const { title, values } = FACETS[name];
  const chosen = el("span.chosen");
  const fields = el("fieldset", {}, el("legend.unseen", {}, title));
  const details = el("details.menu", {}, el("summary", {}, title, chosen), fields);
  const rows = [...values.entries()]
    .sort(([, a], [, b]) => compare(a, b))
    .map(([place, value]) => {
      const box = el("input", { type: "checkbox" });
      const number = el("span.number");
      box.addEventListener("change", () => toggle(name, value));
      fields.append(el("label", {}, box, el("span", {}, value || "(none)"), number));
      return { place, value, box, number };
    });
  details.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !details.open) return;
    details.open = false;
    details.querySelector("summary").focus();
    event.stopPropagation();
  });
  root.append(details);
  return (state, counts) => {
    const own = state[name];
    chosen.textContent = own.size ? (own.size === 1 ? [...own][0] : String(own.size)) : "";
    details.classList.toggle("active", own.size > 0);
    for (const { place, value, box, number } of rows) {
      box.checked = own.has(value);
      number.textContent = count(counts[name][place]);
    }
  };
}

/** Return links that take out what else narrows the view, and one that takes out all of it. */
function furtherFilters(state) {
  const found = [];
  for (const name of ["operator", "reason"]) {
    if (!state[name]) continue;
    const label = `Remove the filter ${name}: ${state[name]}`;
    found.push(
      el(
        "a.tag",
        { href: link({ [name]: "" }), "aria-label": label },
        el("span", {}, state[name]),
        icon(ICONS.close, 12),
      ),
    );
  }
  const any = found.length || state.q || NAMES.some((name) => state[name].size);
  if (any) found.push(el("a.clear", { href: linkTo(state.view, { sort: state.sort }) }, "Clear filters"));
  return found;
}
