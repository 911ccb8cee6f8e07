/** A few lines next to the pointer. */

import { element } from "#dom";

const GAP = 14;

/** @returns {{show: (event: MouseEvent, lines: (string | Node)[]) => void, hide: () => void}} */
export function tooltipIn(place) {
  const box = element("div", { class: "view-tooltip", hidden: true });
  place.append(box);
  return {
    show: (event, lines) => {
      box.replaceChildren(...lines.map((line) => (typeof line === "string" ? element("div", { text: line }) : line)));
      box.hidden = false;
      const { width, height } = box.getBoundingClientRect();
      const x = event.clientX + GAP + width > innerWidth ? event.clientX - GAP - width : event.clientX + GAP;
      const y = event.clientY + GAP + height > innerHeight ? event.clientY - GAP - height : event.clientY + GAP;
      box.style.left = `${Math.max(x, 0)}px`;
      box.style.top = `${Math.max(y, 0)}px`;
    },
    hide: () => {
      box.hidden = true;
    },
  };
}
