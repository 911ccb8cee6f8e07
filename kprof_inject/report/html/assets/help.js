/** The list of keys. */

import { element } from "#dom";

const KEYS = [
  ["W  S  or  +  −", "zoom in and out, around the pointer"],
  ["A  D  or  ←  →", "earlier, later"],
  ["↑  ↓", "scroll"],
  ["wheel", "scroll; with Ctrl, a pinch or on the ruler: zoom; with Shift: earlier, later"],
  ["drag", "pan and scroll"],
  ["double click", "zoom to that scope"],
  ["f", "fit the selected scope; again: all of the CTAs"],
  ["0", "all of the CTAs"],
  ["click", "select a scope; all of its kind are highlighted"],
  ["/", "search"],
  ["n  N  or  Enter", "next match, previous match"],
  ["x", "export the table as CSV"],
  ["Esc", "clear the selection and the search"],
  ["t", "light or dark"],
  ["?", "this list"],
];

/** @param {HTMLDialogElement} dialog @param {HTMLElement} button */
export function showHelp(dialog, button) {
  const rows = KEYS.flatMap(([keys, what]) => [element("dt", { text: keys }), element("dd", { text: what })]);
  const close = element("button", { type: "button", text: "Close", on: { click: () => dialog.close() } });
  dialog.append(element("h2", { text: "Keys" }), element("dl", {}, rows), close);
  button.addEventListener("click", () => dialog.showModal());
  addEventListener("keydown", (event) => {
    if (event.key !== "?" || isTyping(event)) return;
    if (dialog.open) dialog.close();
    else dialog.showModal();
  });
}

/** Returns whether a key is input for a field instead of a command. */
export function isTyping(event) {
  return event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
}
