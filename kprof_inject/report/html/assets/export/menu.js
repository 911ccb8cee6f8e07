/** The button "Export" of a view, and its menu. */

import { element } from "#dom";
import { csvBlob, tableRows } from "#export/csv";
import { download } from "#export/download";
import { isTyping } from "#help";

/**
 * @typedef {Object} Format
 * @property {string} text what the menu says @property {string} title
 * @property {string} name of the file
 * @property {() => Blob | Promise<Blob>} blob
 */

/** @param {() => {formats: Format[], note: string}} offer what there is to export now; the note is below the formats */
export function exportMenu(offer) {
  const menu = element("div", { class: "export-menu", role: "menu", "aria-label": "Export", hidden: true });
  const button = element("button", {
    type: "button",
    class: "export-button",
    text: "Export",
    title: "Save what this view shows (x)",
    "aria-haspopup": "menu",
    "aria-expanded": "false",
  });
  const open = (isOpen) => {
    menu.hidden = !isOpen;
    button.setAttribute("aria-expanded", String(isOpen));
  };
  const close = () => {
    open(false);
    button.focus();
  };
  button.addEventListener("click", () => {
    if (!menu.hidden) return close();
    const { formats, note } = offer();
    menu.replaceChildren(...formats.map((format) => menuItem(format, close)), element("p", { class: "hint", text: note }));
    open(true);
    menu.querySelector("button")?.focus();
  });
  // Without it, Safari would take the focus away, and the menu with it, before the click.
  menu.addEventListener("pointerdown", (event) => event.preventDefault());
  menu.addEventListener("keydown", (event) => moveInMenu(event, menu, close));
  const place = element("div", { class: "export" }, [button, menu]);
  place.addEventListener("focusout", ({ relatedTarget }) => {
    if (!place.contains(relatedTarget)) open(false);
  });
  return place;
}

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

/** The key opens the menu of the view that is shown, or exports what has one format. */
export function exportOnKey() {
  addEventListener("keydown", (event) => {
    if (event.key !== "x" || isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    document.querySelector(".view:not([hidden]) .export-button")?.click();
  });
}

function menuItem({ text, title, name, blob }, close) {
  const save = async () => {
    close();
    download(await blob(), name);
  };
  return element("button", { type: "button", role: "menuitem", tabindex: -1, text, title, on: { click: save } });
}

function moveInMenu(event, menu, close) {
  const items = [...menu.querySelectorAll("button")];
  const at = items.indexOf(document.activeElement);
  const target = {
    ArrowUp: (at + items.length - 1) % items.length,
    ArrowDown: (at + 1) % items.length,
    Home: 0,
    End: items.length - 1,
  }[event.key];
  if (target === undefined && event.key !== "Escape") return;
  event.preventDefault();
  // The same keys move the timeline.
  event.stopPropagation();
  if (target === undefined) close();
  else items[target].focus();
}
