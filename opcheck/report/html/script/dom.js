// Elements, and numbers as text. Text from the report becomes text nodes only, never markup.

/** Return an element with properties, attributes (names with a dash, and role), and children: nodes or text. */
function el(tag, properties = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const node = document.createElement(name || "div");
  if (classes.length) node.className = classes.join(" ");
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (key.includes("-") || key === "role") node.setAttribute(key, value);
    else node[key] = value;
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

const byId = (id) => document.getElementById(id);

/** Put an SVG line icon together. The paths are ours. */
function icon(path, size = 16) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  for (const [key, value] of Object.entries({
    viewBox: "0 0 16 16",
    width: size,
    height: size,
    "aria-hidden": "true",
  })) {
    node.setAttribute(key, value);
  }
  line.setAttribute("d", path);
  node.append(line);
  node.classList.add("icon");
  return node;
}

const ICONS = {
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  link: "M6.5 9.5l3-3M7 4.5l1.5-1.5a3 3 0 0 1 4.5 4.5L11.5 9M9 11.5L7.5 13A3 3 0 0 1 3 8.5L4.5 7",
  back: "M9.5 3.5L5 8l4.500 4.500",
  close: "M4 4l8 8M12 4l-8 8",
};

/** Tell people who cannot see it what has changed. */
function say(text) {
  byId("said").textContent = text;
}

const count = (number) => number.toLocaleString("en");
const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** Return a time as text of two or three digits. */
function time(seconds) {
  if (seconds >= 60) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds >= 1) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
}

/** Return a number of a Jacobian. What is not finite comes as text, as Python writes it. */
const numberOf = (value) => Number(String(value).replace("inf", "Infinity"));

/** Return a number of a Jacobian as text. */
function shown(value, digits = 8) {
  const number = numberOf(value);
  if (Number.isNaN(number)) return "NaN";
  if (!Number.isFinite(number)) return number > 0 ? "∞" : "−∞";
  const size = Math.abs(number);
  const short = Number(number.toPrecision(digits));
  const text = size !== 0 && (size < 1e-4 || size >= 1e7) ? short.toExponential() : String(short);
  return text.replaceAll("-", "−").replace("e+", "e");
}

/** Return a list of texts or nodes, as an element of a class. */
const bullets = (kind, items) =>
  el(
    `ul.${kind}`,
    {},
    items.map((item) => el("li", {}, item)),
  );

const clamped = (value, least, most) => Math.min(Math.max(value, least), most);
const isModified = (event) => event.altKey || event.ctrlKey || event.metaKey;

/** Return a button that copies a text. */
function copyButton(text, what) {
  const label = el("span", {}, "Copy");
  const button = el("button.copy", { type: "button", "aria-label": `Copy ${what}` }, icon(ICONS.copy), label);
  button.addEventListener("click", async () => {
    const done = await copied(text);
    label.textContent = done ? "Copied" : "Press Ctrl+C";
    say(done ? `Copied ${what}` : `Select and copy ${what}`);
    setTimeout(() => (label.textContent = "Copy"), 1600);
  });
  return button;
}

/** Copy a text, also from a file, where the clipboard may be out of reach. */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea.unseen", { value: text, "aria-hidden": "true" });
    const focused = document.activeElement;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    focused?.focus();
    return done;
  }
}

/** Return a text in which web addresses are links. */
function linked(text) {
  return text
    .split(/(https?:\/\/[^\s<>"'`]+[^\s<>"'`.,;:!?)\]])/)
    .map((part, place) => (place % 2 ? el("a", { href: part, rel: "noopener noreferrer" }, part) : part));
}
