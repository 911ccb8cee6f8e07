/** Tables as comma-separated values (RFC 4180), made in the browser: nothing is sent. */

import { element } from "#dom";
import { isTyping } from "#help";

/** A button that saves a table as it is then. @param {string} name of the file @param {() => HTMLTableElement} table */
export function exportTable(name, table, title = "Save the table as shown (x)") {
  return element("button", {
    type: "button",
    class: "export-button",
    text: "Export CSV",
    title,
    on: { click: () => download(csvBlob(tableRows(table())), name) },
  });
}

/** The key exports the table of the view that is shown. */
export function exportOnKey() {
  addEventListener("keydown", (event) => {
    if (event.key !== "x" || isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    document.querySelector(".view:not([hidden]) .export-button")?.click();
  });
}

/** @param {(string | number)[][]} rows */
function csvBlob(rows) {
  const lines = rows.map((cells) => `${cells.map(quoted).join(",")}\n`);
  return new Blob([lines.join("")], { type: "text/csv" });
}

function quoted(cell) {
  // Spreadsheets would evaluate a name as a formula: https://owasp.org/www-community/attacks/CSV_Injection
  const isFormula = /^[=+\-@\t\r]/.test(cell) && !/^[+-][\d.]+( \S{1,2})?$/.test(cell);
  const text = isFormula ? `'${cell}` : String(cell);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/**
 * The texts of a table as it is shown: its visible rows in their order. Columns that only have bars are left out, and so
 * are rows that span columns.
 * @param {HTMLTableElement} table
 */
function tableRows(table) {
  const rows = [...table.rows].filter((row) => !row.hidden && row.cells.length === table.rows[0].cells.length);
  return rows.map((row) => [...row.cells].filter((cell) => !cell.classList.contains("bar-column")).map(cellText));
}

/** Thousands are not set apart, and what is unknown is empty, so that figures can be read by programs. */
function cellText(cell) {
  const parts = [...cell.childNodes].map((node) => node.textContent.trim());
  return parts.filter(Boolean).join(" ").replaceAll("\u202f", "").replace(/^–$/, "");
}

const KEEP_URL_MS = 60_000;
const MAX_NAME = 80;

/** @param {Blob} blob @param {string} name of the file */
function download(blob, name) {
  const url = URL.createObjectURL(blob);
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), KEEP_URL_MS);
}

/** `matmul-launch-29-timeline.csv`: names in a capture may have any characters. */
export function fileName({ kernel, launch }, what, extension) {
  const plain = kernel.replace(/[^\w.-]+/g, "_").slice(0, MAX_NAME);
  return `${plain}-launch-${launch}-${what}.${extension}`;
}
