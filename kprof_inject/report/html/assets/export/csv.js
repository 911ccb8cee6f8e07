/** Comma-separated values (RFC 4180), in UTF-8, with only a line feed at the end of a line. */

/** @param {(string | number)[][]} rows */
export function csvBlob(rows) {
  const lines = rows.map((cells) => `${cells.map(quoted).join(",")}\n`);
  return new Blob([lines.join("")], { type: "text/csv" });
}

function quoted(cell) {
  const text = String(cell);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/**
 * The texts of a table as it is shown: its visible rows in their order. Columns that only have bars are left out, and so
 * are rows that span columns.
 * @param {HTMLTableElement} table
 */
export function tableRows(table) {
  const rows = [...table.rows].filter((row) => !row.hidden && row.cells.length === table.rows[0].cells.length);
  return rows.map((row) => [...row.cells].filter((cell) => !cell.classList.contains("bar-column")).map(cellText));
}

/** Thousands are not set apart, and what is unknown is empty, so that figures can be read by programs. */
function cellText(cell) {
  const parts = [...cell.childNodes].map((node) => node.textContent.trim());
  return parts.filter(Boolean).join(" ").replaceAll("\u202f", "").replace(/^–$/, "");
}
