// The colors of Jacobians: one scale for all pictures of a comparison, zero in its middle.

const ENDS = {
  light: { zero: [247, 247, 244], positive: [190, 88, 12], negative: [38, 88, 168], odd: [110, 110, 118] },
  dark: { zero: [34, 37, 44], positive: [240, 150, 72], negative: [104, 164, 245], odd: [150, 152, 160] },
};

/** Tell whether the page is dark. */
function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Return the scale for some matrices: from a number to -1..1, linear or by its logarithm. */
function scaleOf(matrices, logarithmic) {
  let most = 0;
  for (const matrix of matrices)
    for (const row of matrix)
      for (const value of row) if (Number.isFinite(value)) most = Math.max(most, Math.abs(value));
  const small = most * 1e-4 || 1;
  const place = (value) => {
    if (!most) return 0;
    if (!logarithmic) return value / most;
    return (Math.sign(value) * Math.log1p(Math.abs(value) / small)) / Math.log1p(most / small);
  };
  return { most, place };
}

/** Return the color of a place on the scale. */
function colorOf(place) {
  const { zero, positive, negative } = isDark() ? ENDS.dark : ENDS.light;
  const end = place < 0 ? negative : positive;
  const part = Math.min(1, Math.abs(place));
  return zero.map((from, k) => Math.round(from + (end[k] - from) * part));
}

const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;

/** Return black or white, whichever is easier to read on a color. */
const inkOn = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#111" : "#fff");
