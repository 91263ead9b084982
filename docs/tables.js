// Gives each long table of the documentation a field that shows only the rows with all of the words typed into it.
// Without scripts the tables are there as they are.

function searchable(table) {
  const rows = [...table.tBodies[0].rows].map((row) => [row, row.textContent.toLowerCase()]);
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "Search this table";
  field.ariaLabel = field.placeholder;
  field.className = "md-input md-input--stretch";
  const count = document.createElement("output");
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const [row, text] of rows) row.hidden = !words.every((word) => text.includes(word));
    count.value = `${rows.filter(([row]) => !row.hidden).length} of ${rows.length} rows`;
  });
  table.closest("article > *").before(field, count);
}

function searchTables() {
  for (const table of document.querySelectorAll("article table"))
    if (table.tBodies[0].rows.length > 100) searchable(table);
}

// Material for MkDocs replaces pages without loading them anew, and tells by `document$`.
if (typeof document$ === "undefined") searchTables();
else document$.subscribe(searchTables);
