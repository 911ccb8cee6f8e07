/** A list of the launch's scopes to choose from, by nesting and partition. */

import { element } from "#dom";
import { formatShare } from "#format";
import { inPartitions } from "#partitions";

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
