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
  const told = `${plural(rows.length, "operator")}, ${plural(cases.length, "case")}`;
  root.append(heading("Operators by checks", told, sorting(ROW_SORTS)));
  if (!rows.length) return root.append(nothing());
  const columns = placed(groups);
  const width = columns.at(-1).left + columns.at(-1).width;
  const frame = el("div.frame", {
    tabIndex: 0,
    role: "region",
    "aria-label": "Matrix of operators by checks; it scrolls",
  });
  const corner = el("div.corner", { role: "columnheader" }, "Operator");
  const body = el("div.body", { role: "rowgroup" });
  body.style.height = `${rows.length * CELL}px`;
  body.append(...columns.filter((column) => column.starts).map((column) => at(el("i"), column)));
  const table = el(
    "div.matrix",
    {
      role: "grid",
      "aria-label": "Worst outcome of each operator by check",
      "aria-rowcount": rows.length + 2,
      "aria-colcount": columns.length + 1,
      "aria-describedby": "matrix-help",
    },
    head(corner, groups, columns),
    body,
  );
  table.style.width = `calc(var(--names) + ${width}px)`;
  frame.append(table);
  const help = "A cell shows the worst outcome of its cases. Arrow keys move from cell to cell, Enter opens one.";
  root.append(frame, el("p.muted.help", { id: "matrix-help" }, help));
  const grid = { frame, corner, body, rows, columns, at: firstCell(rows, columns), shown: "", drawn: new Map() };
  frame.addEventListener("scroll", () => requestAnimationFrame(() => drawRows(grid)), { passive: true });
  new ResizeObserver(() => drawRows(grid)).observe(frame);
  body.addEventListener("keydown", (event) => moveInMatrix(event, grid));
  body.addEventListener("pointerover", ({ target }) => (target.title ||= target.ariaLabel ?? ""));
  body.addEventListener("focusin", (event) => {
    const cell = event.target.closest(".cell");
    if (cell) grid.at = [Number(cell.parentNode.dataset.row), Number(cell.dataset.column)];
    setTabStop(grid);
  });
  drawRows(grid);
  return undefined;
}

/** Return the columns of all groups, each with its place. */
function placed(groups) {
  let left = 0;
  return groups.flatMap((group) =>
    group.columns.map((column, k) => {
      const found = { ...group, ...column, left, starts: k === 0 && left > 0 };
      left += group.width;
      return found;
    }),
  );
}

/** Put a node where a column is. */
function at(node, column) {
  node.style.left = `${column.left}px`;
  return node;
}

/** Return the two rows of headings: groups, and their checks. */
function head(corner, groups, columns) {
  const first = el("div.groups", { role: "row", "aria-rowindex": 1 }, el("div.corner.above", { role: "presentation" }));
  for (const group of groups) {
    const version = TORCHES.length > 1 ? el("small", {}, `torch ${group.torch}`) : null;
    const name = el("span.group", {}, el("b", {}, group.device), ` ${group.dtype}`, version);
    const node = el("div", { role: "columnheader", "aria-colspan": group.columns.length }, name);
    node.style.width = `${group.columns.length * group.width}px`;
    first.append(node);
  }
  const second = el("div.checks", { role: "row", "aria-rowindex": 2 }, corner);
  for (const column of columns) {
    const node = el(
      "div.check",
      { role: "columnheader", title: DATA.claims[column.check] },
      el("span", {}, column.check),
    );
    node.classList.toggle("first", column.starts);
    node.style.width = `${column.width}px`;
    second.append(node);
  }
  return el("div.head", { role: "rowgroup" }, first, second);
}

/** Make the cells that are in sight, and some around them. */
function drawRows(grid) {
  const { frame, body, rows, columns, drawn } = grid;
  const above = Math.max(0, Math.floor(frame.scrollTop / CELL) - 6);
  const below = Math.min(rows.length, above + Math.ceil((frame.clientHeight || 800) / CELL) + 8);
  const step = 6 * CELL; // columns come and go by the half dozen
  const from = Math.floor(frame.scrollLeft / step) * step - step;
  const to = from + (Math.ceil((frame.clientWidth || 1200) / step) + 2) * step;
  const seen = [...columns.entries()].filter(([, column]) => column.left + column.width > from && column.left < to);
  if (grid.shown === `${above} ${below} ${from} ${to}`) return;
  if (!grid.shown.endsWith(` ${from} ${to}`)) for (const node of drawn.values()) fillRow(grid, node, seen);
  grid.shown = `${above} ${below} ${from} ${to}`;
  const focus = document.activeElement;
  for (const [place, node] of drawn) {
    if (place >= above && place < below) continue;
    if (node.contains(focus)) continue; // it goes once the focus does
    node.remove();
    drawn.delete(place);
  }
  const added = [];
  for (let place = above; place < below; place++) {
    if (drawn.has(place)) continue;
    const node = rowOf(grid, place);
    fillRow(grid, node, seen);
    drawn.set(place, node);
    added.push(node);
  }
  body.append(...added);
  setTabStop(grid);
}

function rowOf(grid, place) {
  const row = grid.rows[place];
  const name = nameOf(row);
  const bad = row.bad ? el("span.bad", {}, count(row.bad), el("span.unseen", {}, " bad")) : null;
  const title = el("a", { href: link({ view: "cases", operator: name, sort: "" }), tabIndex: -1 }, name);
  const head = el("div.name", { role: "rowheader", title: `${name}, ${row.family}` }, title, bad);
  const node = el("div.row", { role: "row", "data-row": place, "aria-rowindex": place + 3 }, head);
  node.style.top = `${place * CELL}px`;
  return node;
}

/** Put the cells of some columns into a row. The one that has the focus stays. */
function fillRow(grid, node, seen) {
  const row = grid.rows[Number(node.dataset.row)];
  const focus = node.contains(document.activeElement) ? document.activeElement.dataset.column : undefined;
  const kept = [...node.children].filter((cell, k) => k === 0 || cell.dataset.column === focus);
  const cells = seen.filter(([k, column]) => String(k) !== focus && row.cells.has(column.key));
  for (const cell of [...node.children]) if (!kept.includes(cell)) cell.remove();
  node.append(...cells.map(([k, column]) => cellOf(row, k, column)));
}

function cellOf(row, k, column) {
  const found = row.cells.get(column.key);
  const name = nameOf(row);
  const outcome = OUTCOMES[found.worst];
  const alike = found.cases.filter((index) => COLUMN_OF_OUTCOMES[index] === found.worst).length;
  const where = `${column.device} ${column.dtype}${andTorch(column.torch)}`;
  const share = found.cases.length > 1 ? `, ${alike} of ${found.cases.length} cases` : "";
  const said = `${name}, ${column.check}, ${where}: ${outcome.name}${share}`;
  const cell = el(
    `a.cell.o-${outcome.name}`,
    {
      href: linkOfCell(found, name, column),
      role: "gridcell",
      tabIndex: -1,
      "aria-label": said,
      "aria-colindex": k + 2,
      "data-column": k,
    },
    outcome.sign,
  );
  cell.style.width = `${column.width}px`;
  return at(cell, column);
}

/** Return where a cell leads: to its case, or to the list of its cases. */
function linkOfCell(found, operator, column) {
  if (found.cases.length === 1) return linkToCase(found.cases[0]);
  const only = { check: new Set([column.check]), device: new Set([column.device]), dtype: new Set([column.dtype]) };
  const version = TORCHES.length > 1 ? { torch: new Set([column.torch]) } : {};
  return link({ view: "cases", operator, sort: "", ...only, ...version });
}

/** Return the first cell that there is. */
function firstCell(rows, columns) {
  return [0, columns.findIndex((column) => rows[0].cells.has(column.key))];
}

const cellAt = ({ drawn }, [row, column]) => drawn.get(row)?.querySelector(`[data-column="${column}"]`);

/** The cell where a person left the matrix is the one that Tab comes to; if it is out of sight, the first one in sight. */
function setTabStop(grid) {
  const cell = cellAt(grid, grid.at) ?? grid.body.querySelector(".cell");
  if (cell === grid.stop) return;
  if (grid.stop) grid.stop.tabIndex = -1;
  if (cell) cell.tabIndex = 0;
  grid.stop = cell;
}

function moveInMatrix(event, grid) {
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const jumps = { PageUp: [-15, 0], PageDown: [15, 0], Home: [0, -grid.columns.length], End: [0, grid.columns.length] };
  if (isModified(event) || !(steps[event.key] || jumps[event.key])) return;
  event.preventDefault();
  const last = [grid.rows.length - 1, grid.columns.length - 1];
  const [dy, dx] = steps[event.key] ?? jumps[event.key];
  let [y, x] = [grid.at[0] + dy, grid.at[1] + dx].map((value, k) => clamped(value, 0, last[k]));
  const [sy, sx] = jumps[event.key] ? [-Math.sign(dy), -Math.sign(dx)] : [dy, dx];
  while (grid.rows[y] && grid.columns[x] && !grid.rows[y].cells.has(grid.columns[x].key)) [y, x] = [y + sy, x + sx];
  if (grid.rows[y] && grid.columns[x]) focusCell(grid, y, x);
}

function focusCell(grid, y, x) {
  const { frame, corner, columns } = grid;
  const [above, names, column] = [corner.parentNode.parentNode.offsetHeight, corner.offsetWidth, columns[x]];
  const [height, width] = [frame.clientHeight - above, frame.clientWidth - names];
  if (y * CELL < frame.scrollTop) frame.scrollTop = y * CELL;
  if ((y + 1) * CELL > frame.scrollTop + height) frame.scrollTop = (y + 1) * CELL - height;
  if (column.left < frame.scrollLeft) frame.scrollLeft = column.left;
  if (column.left + column.width > frame.scrollLeft + width) frame.scrollLeft = column.left + column.width - width;
  grid.at = [y, x];
  drawRows(grid);
  cellAt(grid, grid.at).focus({ preventScroll: true });
}
