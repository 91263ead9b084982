// Operators by checks, in groups of columns for each device, dtype and version of torch. Only rows in sight exist.

const CELL = 24;
const NARROWEST = 92; // of a group of columns: its heading has to fit

/** Return the rows and columns of the matrix for some cases. */
function matrixOf(cases) {
  const groups = new Map();
  const rows = new Map();
  for (const index of cases) {
    const place = [COLUMNS.device[index], COLUMNS.dtype[index], COLUMN_OF_TORCH[index]].join();
    if (!groups.has(place)) groups.set(place, { index, checks: new Set(), bad: 0 });
    const group = groups.get(place);
    group.checks.add(COLUMNS.check[index]);
    group.bad += isBad(index);
    const operator = COLUMNS.operator[index];
    if (!rows.has(operator))
      rows.set(operator, { operator, family: textOf("family", index), worst: 9, bad: 0, cells: new Map() });
    const row = rows.get(operator);
    const key = `${place} ${COLUMNS.check[index]}`;
    const cell = row.cells.get(key) ?? { worst: 9, cases: [] };
    cell.worst = Math.min(cell.worst, COLUMN_OF_OUTCOMES[index]);
    cell.cases.push(index);
    row.cells.set(key, cell);
    row.worst = Math.min(row.worst, COLUMN_OF_OUTCOMES[index]);
    row.bad += isBad(index);
  }
  const troubled = (group) => (STATE.sort === "" && group.bad ? 0 : 1); // first, like rows: the others may be out of sight
  const ordered = [...groups.entries()]
    .sort(([, a], [, b]) => troubled(a) - troubled(b) || inOrder(a.index, b.index))
    .map(([place, { index, checks }]) => {
      const own = [...checks]
        .sort((a, b) => a - b)
        .map((check) => ({ key: `${place} ${check}`, check: TABLES.check[check] }));
      const width = Math.max(CELL, Math.ceil(NARROWEST / own.length));
      return {
        device: textOf("device", index),
        dtype: textOf("dtype", index),
        torch: torchOf(index),
        columns: own,
        width,
      };
    });
  return { groups: ordered, rows: [...rows.values()] };
}

/** Order groups by device, dtype and version of torch. Those of double precision come first: most checks run in them. */
function inOrder(a, b) {
  const fine = (index) => ["float64", "complex128"].indexOf(textOf("dtype", index)) >>> 0;
  return (
    COLUMNS.device[a] - COLUMNS.device[b] ||
    fine(a) - fine(b) ||
    compare(textOf("dtype", a), textOf("dtype", b)) ||
    COLUMN_OF_TORCH[a] - COLUMN_OF_TORCH[b]
  );
}

const ROW_SORTS = {
  "": { title: "Worst first", key: (a, b) => a.worst - b.worst || b.bad - a.bad || compare(nameOf(a), nameOf(b)) },
  name: { title: "By name", key: (a, b) => compare(nameOf(a), nameOf(b)) },
  family: { title: "By family", key: (a, b) => compare(a.family, b.family) || compare(nameOf(a), nameOf(b)) },
};
const nameOf = (row) => TABLES.operator[row.operator];

/** Show the matrix. */
function showMatrix(root, { cases }) {
  const { groups, rows } = matrixOf(cases);
  rows.sort((ROW_SORTS[STATE.sort] ?? ROW_SORTS[""]).key);
  const columns = groups.flatMap((group) => group.columns.map((column) => ({ ...group, ...column })));
  root.append(
    heading(
      "Operators by checks",
      `${plural(rows.length, "operator")}, ${plural(cases.length, "case")}`,
      sorting(ROW_SORTS),
    ),
  );
  if (!rows.length) return root.append(nothing());
  const frame = el("div.frame", {
    tabIndex: 0,
    role: "region",
    "aria-label": "Matrix of operators by checks; it scrolls",
  });
  const table = el("table.matrix", {
    role: "grid",
    "aria-label": "Worst outcome of each operator by check",
    "aria-rowcount": rows.length + 2,
    "aria-colcount": columns.length + 1,
    "aria-describedby": "matrix-help",
  });
  const body = el("tbody");
  table.append(colgroup(columns), head(groups, columns), body);
  frame.append(table);
  root.append(
    frame,
    el(
      "p.muted.help",
      { id: "matrix-help" },
      "A cell shows the worst outcome of its cases. Arrow keys move from cell to cell, Enter opens one.",
    ),
  );
  const grid = { frame, body, rows, columns, at: [0, 0], shown: [0, 0] };
  frame.addEventListener("scroll", () => requestAnimationFrame(() => drawRows(grid)), { passive: true });
  new ResizeObserver(() => drawRows(grid)).observe(frame);
  body.addEventListener("keydown", (event) => moveInMatrix(event, grid));
  body.addEventListener("focusin", (event) => {
    const cell = event.target.closest("[data-column]");
    if (cell) grid.at = [Number(cell.parentNode.dataset.row), Number(cell.dataset.column)];
  });
  drawRows(grid, true);
  return undefined;
}

function colgroup(columns) {
  const found = el("colgroup", {}, el("col.names"));
  for (const { width } of columns) {
    const column = el("col");
    column.style.width = `${width}px`;
    found.append(column);
  }
  return found;
}

/** Return the two rows of headings: groups, and their checks. */
function head(groups, columns) {
  const several = TORCHES.length > 1;
  const first = el("tr", { "aria-rowindex": 1 }, el("th.corner", { rowSpan: 2, scope: "col" }, "Operator"));
  for (const group of groups) {
    const name = el(
      "span.group",
      {},
      el("b", {}, group.device),
      ` ${group.dtype}`,
      several ? el("small", {}, `torch ${group.torch}`) : null,
    );
    first.append(el("th.first", { colSpan: group.columns.length, scope: "colgroup" }, name));
  }
  const second = el("tr", { "aria-rowindex": 2 });
  for (const [place, column] of columns.entries()) {
    const starts = place === 0 || columns[place - 1].key.split(" ")[0] !== column.key.split(" ")[0];
    column.starts = starts;
    second.append(el(starts ? "th.check.first" : "th.check", { scope: "col" }, el("span", {}, column.check)));
  }
  return el("thead", {}, first, second);
}

/** Make the rows that are in sight, and room for the others. */
function drawRows(grid, fresh = false) {
  const { frame, body, rows } = grid;
  const first = Math.max(0, Math.floor(frame.scrollTop / CELL) - 8);
  const last = Math.min(rows.length, first + Math.ceil((frame.clientHeight || 800) / CELL) + 16);
  if (!fresh && first === grid.shown[0] && last === grid.shown[1]) return;
  grid.shown = [first, last];
  const kept = new Map([...body.querySelectorAll("tr[data-row]")].map((node) => [Number(node.dataset.row), node]));
  const made = [];
  for (let place = first; place < last; place++) made.push(kept.get(place) ?? rowOf(grid, place));
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  body.replaceChildren(room(first), ...made, room(rows.length - last));
  if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
  setTabStop(grid);
}

function room(count) {
  const cell = el("td");
  cell.style.height = `${count * CELL}px`;
  const row = el("tr.room", { "aria-hidden": "true" }, cell);
  row.hidden = !count;
  return row;
}

function rowOf(grid, place) {
  const row = grid.rows[place];
  const name = nameOf(row);
  const title = el(
    "th.name",
    { scope: "row", title: `${name}, ${row.family}` },
    el("a", { href: link({ view: "cases", operator: name, sort: "" }), tabIndex: -1 }, name),
    row.bad ? el("span.bad", { title: `${row.bad} bad` }, count(row.bad), el("span.unseen", {}, " bad")) : null,
  );
  const node = el("tr", { "data-row": place, "aria-rowindex": place + 3 }, title);
  for (const [k, column] of grid.columns.entries()) {
    const found = row.cells.get(column.key);
    const cell = el(column.starts ? "td.first" : "td", { role: "gridcell", "data-column": k, "aria-colindex": k + 2 });
    if (found) {
      const outcome = OUTCOMES[found.worst];
      const alike = found.cases.filter((index) => COLUMN_OF_OUTCOMES[index] === found.worst).length;
      const where = `${column.device} ${column.dtype}${TORCHES.length > 1 ? ` torch ${column.torch}` : ""}`;
      const said =
        `${name}, ${column.check}, ${where}: ${outcome.name}` +
        (found.cases.length > 1 ? `, ${alike} of ${found.cases.length} cases` : "");
      cell.append(
        el(
          `a.cell.o-${outcome.name}`,
          { href: linkOfCell(found, name, column), tabIndex: -1, title: said, "aria-label": said },
          outcome.sign,
        ),
      );
    } else {
      cell.append(
        el("span.cell.none", { tabIndex: -1, role: "img", "aria-label": `${name}, ${column.check}: no case` }),
      );
    }
    node.append(cell);
  }
  return node;
}

/** Return where a cell leads: to its case, or to the list of its cases. */
function linkOfCell(found, operator, column) {
  if (found.cases.length === 1) return linkToCase(found.cases[0]);
  const only = { check: new Set([column.check]), device: new Set([column.device]), dtype: new Set([column.dtype]) };
  return link({
    view: "cases",
    operator,
    sort: "",
    ...only,
    ...(TORCHES.length > 1 ? { torch: new Set([column.torch]) } : {}),
  });
}

function setTabStop(grid) {
  const [row, column] = grid.at;
  for (const node of grid.body.querySelectorAll(".cell[tabindex='0']")) node.tabIndex = -1;
  const place = Math.min(Math.max(row, grid.shown[0]), grid.shown[1] - 1);
  const cell = grid.body.querySelector(`tr[data-row="${place}"] [data-column="${column}"] .cell`);
  if (cell) cell.tabIndex = 0;
}

function moveInMatrix(event, grid) {
  const steps = {
    ArrowUp: [-1, 0],
    ArrowDown: [1, 0],
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
    PageUp: [-15, 0],
    PageDown: [15, 0],
  };
  const ends = { Home: [grid.at[0], 0], End: [grid.at[0], grid.columns.length - 1] };
  if (event.altKey || event.metaKey || !(steps[event.key] || ends[event.key])) return;
  event.preventDefault();
  const [dy, dx] = steps[event.key] ?? [0, 0];
  const [y, x] = ends[event.key] ?? [grid.at[0] + dy, grid.at[1] + dx];
  if (event.ctrlKey && ends[event.key]) return;
  const inside = (value, size) => Math.min(Math.max(value, 0), size - 1);
  focusCell(grid, inside(y, grid.rows.length), inside(x, grid.columns.length));
}

function focusCell(grid, row, column) {
  grid.at = [row, column];
  const { frame } = grid;
  const above = frame.querySelector("thead").offsetHeight;
  const y = row * CELL;
  if (y < frame.scrollTop) frame.scrollTop = y;
  if (y + CELL + above > frame.scrollTop + frame.clientHeight) frame.scrollTop = y + CELL + above - frame.clientHeight;
  drawRows(grid);
  setTabStop(grid);
  const cell = grid.body.querySelector(`tr[data-row="${row}"] [data-column="${column}"] .cell`);
  const names = frame.querySelector(".corner").offsetWidth;
  const [left, right] = [cell.parentNode.offsetLeft, cell.parentNode.offsetLeft + cell.offsetWidth];
  if (left - names < frame.scrollLeft) frame.scrollLeft = left - names;
  if (right > frame.scrollLeft + frame.clientWidth) frame.scrollLeft = right - frame.clientWidth + 4;
  cell.focus({ preventScroll: true });
}
