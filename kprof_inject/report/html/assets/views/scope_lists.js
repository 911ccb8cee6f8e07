/** The launch's scopes as a list to choose from, and as a table; both by nesting and partition. */

import { element } from "#dom";
import { formatCount, formatShare, resolvedNs, shortNs } from "#format";
import { openView } from "#navigation";

/**
 * @param {Object[]} scopes those of `launch.sections.scopes`
 * @param {Object[]} partitions those of `launch.meta`
 * @param {{theme: Object}} context
 * @param {(index: number) => void} onChoose
 * @param {(index: number) => boolean} [canChoose]
 * @returns {{element: HTMLElement, select: (index: number) => void}}
 */
export function scopeList(scopes, partitions, context, onChoose, canChoose = () => true) {
  const items = scopes.map((scope, index) => {
    const chip = element("span", { class: "scope-chip" });
    chip.style.background = context.theme.scopeColor(index);
    const name = element("span", { class: "scope-list-name", text: scope.name });
    const item = element("button", { type: "button", class: "scope-item", disabled: !canChoose(index), title: scope.source || null }, [
      chip,
      name,
      element("span", { class: "scope-list-share", text: scope.kind === "mark" ? "mark" : formatShare(scope.share) }),
    ]);
    item.style.paddingInlineStart = `${8 + 14 * Math.min(scope.depth, 12)}px`;
    item.addEventListener("click", () => onChoose(index));
    return item;
  });
  const list = element("nav", { class: "scope-list", "aria-label": "Scopes" }, inPartitions(items, partitions));
  return {
    element: list,
    select: (index) => {
      for (const [number, item] of items.entries()) item.setAttribute("aria-current", String(number === index));
      items[index]?.scrollIntoView({ block: "nearest" });
    },
  };
}

const COLUMNS = [
  { title: "per CTA", says: "executions by one of a CTA's warps, and the mean time of each", value: (scope) => scope.per_cta_ns, text: (_, scope) => scope.per_cta || "–" },
  { title: "total", says: "over all warps", value: (scope) => scope.total_ns, text: shortNs },
  { title: "self", says: "the part of it outside inner scopes; for a loop with iterations, the time between these", value: (scope) => scope.self_ns, text: shortNs },
  { title: "share", says: "of the time of all warps", value: (scope) => scope.share, text: formatShare },
  { title: "count", says: "how often it ran", value: (scope) => scope.count, text: formatCount },
  { title: "mean", says: "duration", value: (scope) => scope.mean_ns, text: resolvedNs },
  { title: "p50", says: "median duration", value: (scope) => scope.p50_ns, text: resolvedNs },
  { title: "p99", says: "1 % take longer", value: (scope) => scope.p99_ns, text: resolvedNs },
  { title: "max", says: "longest duration", value: (scope) => scope.max_ns, text: resolvedNs },
];

export function scopeTable(launch, context) {
  const scopes = launch.sections.scopes;
  if (!scopes.length) return element("p", { class: "view-empty", text: "This kernel has no scopes." });
  const rows = scopes.map((scope, index) => rowOf(scope, index, launch, context));
  const { partitions } = launch.meta;
  const inTrees = partitions.length
    ? partitions.flatMap((partition) => [partitionRow(partition), ...partition.scopes.map((index) => rows[index])])
    : rows;
  const body = element("tbody", { class: partitions.length ? "partitioned" : null }, inTrees);
  const heads = [
    head("scope", "in the order of the code", () => sortBy(null)),
    element("th", { class: "bar-column", text: "time", title: "total, of which self is the full colour" }),
    ...COLUMNS.map((column) => head(column.title, saysOf(column, partitions), () => sortBy(column))),
    element("th", { text: "source", class: "text-column" }),
  ];
  const sortBy = (column) => {
    const order = scopes.map((_, index) => index);
    if (column) order.sort((one, other) => (column.value(scopes[other]) ?? -1) - (column.value(scopes[one]) ?? -1));
    body.replaceChildren(...(column ? order.map((index) => rows[index]) : inTrees));
    body.classList.toggle("flat", column !== null);
    for (const cell of heads) cell.ariaSort = cell.dataset.column === column?.title ? "descending" : null;
  };
  return element("div", { class: "table-room" }, [
    element("table", { class: "scope-table" }, [element("thead", {}, [element("tr", {}, heads)]), body]),
  ]);
}

function saysOf({ title, says }, partitions) {
  return partitions.length && title === "share" ? "of the time of all warps of its partition" : says;
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

function rowOf(scope, index, launch, context) {
  const color = context.theme.scopeColor(index);
  const { self_name: selfName } = launch.meta.scopes[index];
  const chip = element("span", { class: "scope-chip" });
  chip.style.background = color;
  const name = element("button", { type: "button", class: "link", text: scope.name, on: { click: () => openView("scopes", { scope: index }) } });
  const nameCell = element("th", { scope: "row", class: "text-column scope-cell" }, [chip, name]);
  nameCell.style.setProperty("--depth", String(Math.min(scope.depth, 12)));
  return element("tr", {}, [
    nameCell,
    element("td", { class: "bar-column" }, scope.share === null ? [] : [bar(scope, color)]),
    ...COLUMNS.map((column) => element("td", { text: column.text(column.value(scope), scope), title: column.title === "self" && selfName !== "self" ? selfName : null })),
    element("td", { class: "text-column" }, scope.source ? [sourceLink(index, launch)] : []),
  ]);
}

function bar(scope, color) {
  const [total, self] = [element("span", { class: "bar-total" }), element("span", { class: "bar-self" })];
  total.style.width = `${Math.min(100 * scope.share, 100)}%`;
  self.style.width = scope.total_ns ? `${(100 * scope.self_ns) / scope.total_ns}%` : "0";
  self.style.background = color;
  total.style.setProperty("--color", color);
  total.append(self);
  return element("span", { class: "bar-track" }, [total]);
}

function sourceLink(index, launch) {
  const { source, path } = launch.meta.scopes[index];
  return element("button", { type: "button", class: "link", text: source, title: path, on: { click: () => openView("source", { scope: index }) } });
}

/**
 * Returns the items of the scopes, with each partition's title above those of its scopes.
 * @param {HTMLElement[]} items one for each scope
 * @param {{title: string, scopes: number[]}[]} partitions none unless the kernel is warp specialised
 */
export function inPartitions(items, partitions) {
  if (!partitions.length) return items;
  return partitions.flatMap(({ title, scopes }) => [
    element("h3", { class: "partition-title", text: title }),
    ...scopes.map((index) => items[index]),
  ]);
}
