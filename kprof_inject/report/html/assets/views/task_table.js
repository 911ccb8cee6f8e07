/** The tasks of a scope. `table` is a `TaskTable` of page_schema.py. */

import { element } from "#dom";
import { formatCount, formatShare, shortNs } from "#format";

const HEADS = [
  ["runs", "how often it ran, by CTA"],
  ["total", "of its runs"],
  ["share", "of all tasks"],
  ["p50", "median duration"],
  ["waits", "part of its time in which it waits for flags"],
  ["SMs", "how many it ran on"],
  ["busiest SM", "that one's time over the mean"],
];

/** @param {{onChoose: (task: number) => void}} options */
export function taskTable({ rows }, { onChoose }) {
  const head = element("tr", {}, [
    element("th", { scope: "col", text: "task" }),
    ...HEADS.map(([text, title]) => element("th", { scope: "col", class: "figure", text, title })),
    element("th", { scope: "col", text: "waits for", title: "tasks that ended its waits, and the time" }),
  ]);
  const body = rows.map((row) =>
    element("tr", {}, [
      element("th", { scope: "row" }, [
        element("button", { type: "button", class: "link", text: row.task, title: "one of its runs in the timeline", on: { click: () => onChoose(row.task) } }),
      ]),
      ...figures(row).map((text) => element("td", { class: "figure", text })),
      element("td", { text: others(row) }),
    ]),
  );
  return element("div", { class: "table-room" }, [
    element("table", { class: "plain-table task-table" }, [element("thead", {}, [head]), element("tbody", {}, body)]),
  ]);
}

function figures(row) {
  return [
    formatCount(row.runs),
    shortNs(row.total_ns),
    formatShare(row.share),
    shortNs(row.p50_ns),
    row.waits_share === null ? "–" : formatShare(row.waits_share),
    formatCount(row.sms),
    `${row.uneven.toFixed(2)} ×`,
  ];
}

function others({ waits_for: waitsFor, more }) {
  const named = waitsFor.map(([task, ns]) => `${task} (${shortNs(ns)})`);
  return [...named, ...(more ? [`${more} more`] : [])].join(", ");
}
