/** Tables of scopes and lists to choose from, by nesting and partition; and tables as comma-separated values (RFC 4180). */

import { chip, element, link, tableRoom, totalBar } from "#dom";
import { formatCount, formatShare, resolvedNs, shortNs } from "#format";
import { onKey, openView } from "#navigation";

/**
 * @param {Object} meta of the launch
 * @param {(index: number) => void} onChoose
 * @param {(scope: Object) => boolean} [canChoose]
 * @returns {{element: HTMLElement, select: (index: number) => void}} the scopes, below the titles of their partitions if
 *     the kernel is warp specialised
 */
export function scopeList({ scopes, partitions }, onChoose, canChoose = () => true) {
  const items = scopes.map((scope, index) => {
    const item = element("button", { type: "button", class: "scope-item", disabled: !canChoose(scope), title: scope.source || null }, [
      chip(scope.colour),
      element("span", { class: "scope-list-name", text: scope.name }),
      element("span", { class: "scope-list-share", text: scope.kind === "mark" ? "mark" : formatShare(scope.share) }),
    ]);
    item.style.paddingInlineStart = `${8 + 14 * Math.min(scope.depth, 12)}px`;
    item.addEventListener("click", () => onChoose(index));
    return item;
  });
  const trees = partitions.flatMap((one) => [element("h3", { class: "partition-title", text: one.title }), ...one.scopes.map((index) => items[index])]);
  const list = element("nav", { class: "scope-list", "aria-label": "Scopes" }, partitions.length ? trees : items);
  return {
    element: list,
    select: (index) => {
      for (const [number, item] of items.entries()) item.setAttribute("aria-current", String(number === index));
      items[index]?.scrollIntoView({ block: "nearest" });
    },
  };
}

const COLUMNS = [
  { title: "per CTA", says: "executions by one of a CTA's warps, and the mean time of each, without the cost of records", value: (scope) => scope.per_cta_ns, text: (_, scope) => scope.per_cta || "–" },
  { title: "total", says: "over all warps", value: (scope) => scope.total_ns, text: shortNs },
  { title: "self", says: "the part of it outside inner scopes; for a loop with iterations, the time between these", value: (scope) => scope.self_ns, text: shortNs },
  { title: "share", says: "of the time of all warps", value: (scope) => scope.share, text: formatShare },
  { title: "count", says: "how often it ran", value: (scope) => scope.count, text: formatCount },
  { title: "mean", says: "duration without the cost of records", value: (scope) => scope.mean_ns, text: resolvedNs },
  { title: "p50", says: "median duration", value: (scope) => scope.p50_ns, text: resolvedNs },
  { title: "p99", says: "1 % take longer", value: (scope) => scope.p99_ns, text: resolvedNs },
  { title: "max", says: "longest duration", value: (scope) => scope.max_ns, text: resolvedNs },
];

export function scopeTable({ scopes, partitions }) {
  if (!scopes.length) return element("p", { class: "view-empty", text: "This kernel has no scopes." });
  const rows = scopes.map(rowOf);
  const inTrees = partitions.length
    ? partitions.flatMap((partition) => [partitionRow(partition), ...partition.scopes.map((index) => rows[index])])
    : rows;
  const body = element("tbody", { class: partitions.length ? "partitioned" : null }, inTrees);
  const heads = [
    head("scope", "in the order of the code", () => sortBy(null)),
    element("th", { class: "bar-column", text: "time", title: "total, of which self is the full colour" }),
    ...COLUMNS.map((column) => {
      const inPartition = partitions.length && column.title === "share" ? " of its partition" : "";
      return head(column.title, column.says + inPartition, () => sortBy(column));
    }),
    element("th", { text: "source", class: "text-column" }),
  ];
  const sortBy = (column) => {
    const order = scopes.map((_, index) => index);
    if (column) order.sort((one, other) => (column.value(scopes[other]) ?? -1) - (column.value(scopes[one]) ?? -1));
    body.replaceChildren(...(column ? order.map((index) => rows[index]) : inTrees));
    body.classList.toggle("flat", column !== null);
    for (const cell of heads) cell.ariaSort = cell.dataset.column === column?.title ? "descending" : null;
  };
  return tableRoom(element("table", { class: "scope-table" }, [element("thead", {}, [element("tr", {}, heads)]), body]));
}

/** All of the time of a partition's warps, of which self is in none of its scopes. */
function partitionRow({ title, whole_ns: total, outside_ns: self }) {
  const figures = { total: shortNs(total), self: shortNs(self), share: formatShare(1) };
  return element("tr", { class: "partition-row" }, [
    element("th", { scope: "rowgroup", class: "text-column", text: title }),
    element("td", { class: "bar-column" }),
    ...COLUMNS.map((column) => element("td", { text: total ? (figures[column.title] ?? "") : "" })),
    element("td"),
  ]);
}

function head(title, says, onClick) {
  const button = element("button", { type: "button", text: title, title: says, on: { click: onClick } });
  return element("th", { scope: "col", class: title === "scope" ? "text-column" : null, data: { column: title } }, [button]);
}

function rowOf(scope, index) {
  const { colour, share, self_name: selfName } = scope;
  const name = link(scope.name, () => openView("scopes", { scope: index }));
  const nameCell = element("th", { scope: "row", class: "text-column scope-cell" }, [chip(colour), name]);
  nameCell.style.setProperty("--depth", String(Math.min(scope.depth, 12)));
  const source = link(scope.place, () => openView("source", { scope: index }), { title: scope.source });
  return element("tr", {}, [
    nameCell,
    element("td", { class: "bar-column" }, share === null ? [] : [totalBar(share, scope.total_ns ? scope.self_ns / scope.total_ns : 0, colour)]),
    ...COLUMNS.map((column) => element("td", { text: column.text(column.value(scope), scope), title: column.title === "self" && selfName !== "self" ? selfName : null })),
    element("td", { class: "text-column" }, scope.source ? [source] : []),
  ]);
}

/** A button that saves a table as it is then. @param {string} name of the file @param {() => HTMLTableElement} table */
export function exportTable(name, table, title = "Save the table as shown (x)") {
  return element("button", {
    type: "button",
    class: "export-button",
    text: "Export CSV",
    title,
    on: {
      click: () => {
        const lines = tableRows(table()).map((cells) => `${cells.map(quoted).join(",")}\n`);
        download(new Blob([lines.join("")], { type: "text/csv" }), name);
      },
    },
  });
}

/** The key exports the table of the view that is shown. */
export function exportOnKey() {
  onKey("x", () => {
    if (!document.querySelector("dialog[open]")) document.querySelector(".view:not([hidden]) .export-button")?.click();
  });
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
export function fileName({ title, launch }, what, extension) {
  const plain = title.replace(/[^\w.-]+/g, "_").slice(0, MAX_NAME);
  return `${plain}-launch-${launch}-${what}.${extension}`;
}
