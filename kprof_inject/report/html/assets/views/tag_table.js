/** The time of a scope by the values of one of its tags. `tag` is a `TagTable` of page_schema.py. */

import { element } from "#dom";
import { formatCount, shortNs } from "#format";

const HEADS = [
  ["count", "how often it ran with the value"],
  ["total", "over all warps"],
  ["p50", "median duration"],
  ["vs. others", "the median over that of all other values"],
];

/**
 * @param {{name: string, values: (number | null)[][]}} tag each of `values` has its value, count, total, p50, and that
 *     over the others'
 * @param {{color: string, onChoose: (value: number) => void}} options
 */
export function tagTable({ name, values }, { color, onChoose }) {
  const most = Math.max(...values.map(([, count, total]) => total ?? count), 1);
  const head = element("tr", {}, [
    element("th", { scope: "col", text: name }),
    element("th", { "aria-label": "share" }),
    ...HEADS.map(([text, title]) => element("th", { scope: "col", class: "figure", text, title })),
  ]);
  const rows = values.map(([value, count, total, p50, ratio]) =>
    element("tr", {}, [
      element("th", { scope: "row" }, [link(value, onChoose)]),
      element("td", { class: "tag-bar" }, [bar((total ?? count) / most, color)]),
      element("td", { class: "figure", text: formatCount(count) }),
      element("td", { class: "figure", text: shortNs(total) }),
      element("td", { class: "figure", text: shortNs(p50) }),
      element("td", { class: "figure", text: ratio === null ? "–" : `${ratio.toFixed(2)} ×` }),
    ]),
  );
  return element("div", { class: "table-room" }, [
    element("table", { class: "plain-table" }, [element("thead", {}, [head]), element("tbody", {}, rows)]),
  ]);
}

function link(value, onChoose) {
  return element("button", { type: "button", class: "link", text: value, title: "one of them in the timeline", on: { click: () => onChoose(value) } });
}

function bar(share, color) {
  const filled = element("span", { class: "bar-self" });
  filled.style.width = `${100 * share}%`;
  filled.style.background = color;
  return element("span", { class: "bar-track" }, [filled]);
}
