// A comparison of two Jacobians: both, and their difference, as pictures that share a scale and a cursor.

/** Return the pictures of a comparison, with their legend, what the cursor is at, and the numbers as a table. */
function jacobianPictures(data, number) {
  const numbers = (matrix) => matrix.map((row) => row.map(numberOf));
  const [numerical, analytical] = [numbers(data.numerical), numbers(data.analytical)];
  const difference = analytical.map((row, i) => row.map((value, j) => value - (numerical[i]?.[j] ?? NaN)));
  const matrices = [
    ["Analytical", analytical],
    ["Numerical", numerical],
    ["Difference", difference],
  ];
  const wrong = new Set(data.wrong.map(([i, j]) => `${i},${j}`));
  const first = data.wrong[0] ?? [0, 0];
  const view = { data, matrices, wrong, at: null, size: [analytical.length, analytical[0]?.length ?? 0] };
  view.logarithmic = hidden(difference, data.wrong, scaleOf([analytical, numerical], false).most);

  const help = `jacobian-help-${number}`;
  view.readout = el("div.readout", { role: "status" });
  view.pictures = el("div.pictures", {
    tabIndex: 0,
    role: "application",
    "aria-label": `Pictures of ${data.name}: ${view.size[0]} by ${view.size[1]}, ${data.wrong.length} wrong`,
    "aria-describedby": help,
  });
  view.canvases = matrices.map(([name]) => {
    const canvas = el("canvas", { role: "img", "aria-label": `${name} Jacobian` });
    canvas.addEventListener("pointermove", (event) => pointAt(view, event, canvas));
    canvas.addEventListener("pointerdown", (event) => pointAt(view, event, canvas));
    view.pictures.append(el("figure", {}, el("figcaption", {}, name), canvas));
    return canvas;
  });
  view.scale = el("canvas.scale", { role: "img" });
  view.ends = [el("span"), el("span", {}, "0"), el("span")];
  const log = el("input", { type: "checkbox", checked: view.logarithmic });
  log.addEventListener("change", () => {
    view.logarithmic = log.checked;
    drawJacobians(view);
  });
  const next = el("button", { type: "button" }, "Next wrong entry");
  next.addEventListener("click", () => toWrong(view, 1));
  view.pictures.addEventListener("keydown", (event) => moveInJacobian(event, view));
  view.pictures.addEventListener("focus", () => moveTo(view, view.at ?? first));
  const card = el(
    "section.jacobian",
    { "aria-label": data.name },
    el("h4", {}, data.name),
    el("p.muted", {}, extentOf(data)),
    view.pictures,
    view.readout,
    el(
      "div.under",
      {},
      el("div.ramp", {}, view.scale, el("div.ends", {}, view.ends)),
      el("label", {}, log, "logarithmic colors"),
      data.wrong.length ? next : null,
    ),
    el(
      "p.muted.help",
      { id: help },
      "Point at an entry, or use arrow keys. N and P go to the next and the previous wrong entry, which are framed.",
    ),
    numbersTable(view),
  );
  new ResizeObserver(() => drawJacobians(view)).observe(view.pictures);
  document.addEventListener("themechange", () => card.isConnected && drawJacobians(view));
  moveTo(view, first, false);
  return card;
}

/** Tell whether the wrong entries would look right in linear colors. */
function hidden(difference, wrong, most) {
  const sizes = wrong.map(([i, j]) => Math.abs(difference[i]?.[j] ?? 0)).filter(Number.isFinite);
  return sizes.length > 0 && Math.max(...sizes) < 0.15 * most;
}

/** Say how many entries there are, and which of them are shown. */
function extentOf({ rows, columns, first_row, first_column, analytical, wrong }) {
  const [height, width] = [analytical.length, analytical[0]?.length ?? 0];
  const whole = `${count(rows)} × ${count(columns)} entries`;
  const which =
    height === rows && width === columns
      ? whole
      : `rows ${first_row}–${first_row + height - 1} and columns ${first_column}–${first_column + width - 1} of ${whole}, around the worst one`;
  return `${which}; ${count(wrong.length)} wrong`;
}

function drawJacobians(view) {
  const [rows, columns] = view.size;
  const side = view.pictures.firstChild.clientWidth;
  if (!side || !rows || !columns) return;
  view.cell = Math.max(2, Math.min(46, Math.floor(Math.min((side - 2) / columns, 400 / rows))));
  const scale = scaleOf(
    view.matrices.map(([, matrix]) => matrix),
    view.logarithmic,
  );
  for (const [k, canvas] of view.canvases.entries()) drawMatrix(view, canvas, view.matrices[k][1], scale);
  drawRamp(view, scale);
}

/** Return the context of a canvas of a size in CSS pixels. */
function contextOf(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

function drawMatrix(view, canvas, matrix, scale) {
  const { cell, at, wrong } = view;
  const [rows, columns] = view.size;
  const context = contextOf(canvas, columns * cell + 2, rows * cell + 2);
  const gap = cell > 7 ? 1 : 0;
  const ink = isDark() ? "#fff" : "#16181d";
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.font = "11px ui-monospace, SFMono-Regular, Menlo, monospace";
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      const value = matrix[i][j];
      const odd = !Number.isFinite(value);
      const color = odd ? (isDark() ? ENDS.dark : ENDS.light).odd : colorOf(scale.place(value));
      const [x, y] = [1 + j * cell, 1 + i * cell];
      context.fillStyle = css(color);
      context.fillRect(x, y, cell - gap, cell - gap);
      context.fillStyle = inkOn(color);
      if (cell >= 40) context.fillText(shown(value, 3), x + cell / 2, y + cell / 2, cell - 4);
      else if (odd && cell >= 10) context.fillText("?", x + cell / 2, y + cell / 2);
      if (wrong.has(`${i},${j}`)) {
        context.strokeStyle = ink;
        context.lineWidth = cell >= 10 ? 1.5 : 1;
        context.strokeRect(x + 0.75, y + 0.75, cell - gap - 1.5, cell - gap - 1.5);
      }
    }
  }
  if (at) {
    context.strokeStyle = isDark() ? "#8ab4ff" : "#1b5bd8";
    context.lineWidth = 2.5;
    context.strokeRect(1 + at[1] * cell - 0.5, 1 + at[0] * cell - 0.5, cell - gap + 1, cell - gap + 1);
  }
}

function drawRamp(view, { most, place }) {
  const context = contextOf(view.scale, 180, 10);
  for (let x = 0; x < 180; x++) {
    const value = ((x - 90) / 90) * most;
    context.fillStyle = css(colorOf(view.logarithmic ? (x - 90) / 90 : place(value)));
    context.fillRect(x, 0, 1, 10);
  }
  view.ends[0].textContent = shown(-most, 3);
  view.ends[2].textContent = shown(most, 3);
  view.scale.setAttribute(
    "aria-label",
    `Colors from ${shown(-most, 3)} to ${shown(most, 3)}, the same in all pictures`,
  );
}

function pointAt(view, event, canvas) {
  const box = canvas.getBoundingClientRect();
  const j = Math.floor((event.clientX - box.left - 1) / view.cell);
  const i = Math.floor((event.clientY - box.top - 1) / view.cell);
  if (i >= 0 && j >= 0 && i < view.size[0] && j < view.size[1]) moveTo(view, [i, j]);
}

function moveInJacobian(event, view) {
  const [i, j] = view.at ?? [0, 0];
  const [rows, columns] = view.size;
  const places = {
    ArrowUp: [i - 1, j],
    ArrowDown: [i + 1, j],
    ArrowLeft: [i, j - 1],
    ArrowRight: [i, j + 1],
    Home: [i, 0],
    End: [i, columns - 1],
    PageUp: [0, j],
    PageDown: [rows - 1, j],
  };
  if (isModified(event)) return;
  if (places[event.key]) {
    const [y, x] = places[event.key];
    moveTo(view, [clamped(y, 0, rows - 1), clamped(x, 0, columns - 1)]);
  } else if (event.key === "n" || event.key === "N") toWrong(view, 1);
  else if (event.key === "p" || event.key === "P") toWrong(view, -1);
  else return;
  event.preventDefault();
}

/** Go to the next wrong entry, or to the one before, in reading order. */
function toWrong(view, step) {
  const found = [...view.data.wrong].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  if (!found.length) return;
  const [i, j] = view.at ?? [-1, -1];
  const after = found.findIndex(([y, x]) => y > i || (y === i && x > j));
  const before = found.findLastIndex(([y, x]) => y < i || (y === i && x < j));
  moveTo(view, step > 0 ? found[after < 0 ? 0 : after] : found[before < 0 ? found.length - 1 : before]);
}

/** Put the cursor at an entry, and say what is there. */
function moveTo(view, at, marked = true) {
  const { data, matrices, wrong } = view;
  const [i, j] = at;
  if (matrices[0][1][i]?.[j] === undefined) return;
  const [row, column] = [data.row_labels[i] ?? `[${i}]`, data.column_labels[j] ?? `[${j}]`];
  const off = wrong.has(`${i},${j}`);
  view.readout.replaceChildren(
    el("code", {}, `d ${data.output}${row} / d ${data.leaf}${column}`),
    el(
      "dl",
      {},
      matrices.map(([name, matrix]) => el("div", {}, el("dt", {}, name), el("dd", {}, shown(matrix[i][j])))),
    ),
    el(off ? "strong.off" : "span.muted", {}, off ? "wrong" : "within tolerance"),
  );
  if (!marked) return;
  view.at = at;
  drawJacobians(view);
}

/** Return the numbers as a table, which is made when it is opened. */
function numbersTable(view) {
  const details = el("details.numbers", {}, el("summary", {}, "Numbers as tables"));
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    const { data } = view;
    for (const [name, matrix] of view.matrices) {
      const top = el(
        "tr",
        {},
        el("td"),
        data.column_labels.map((label) => el("th", { scope: "col" }, label)),
      );
      const rows = matrix.map((row, i) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, data.row_labels[i] ?? i),
          row.map((value, j) =>
            view.wrong.has(`${i},${j}`)
              ? el("td.wrong", {}, shown(value, 6), el("span.unseen", {}, " wrong"))
              : el("td", {}, shown(value, 6)),
          ),
        ),
      );
      details.append(
        scrolling(
          `${name} Jacobian as a table`,
          el("table.plain.values", {}, el("caption", {}, name), el("thead", {}, top), el("tbody", {}, rows)),
        ),
      );
    }
  });
  return details;
}
