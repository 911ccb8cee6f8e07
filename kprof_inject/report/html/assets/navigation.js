/** Where the reader is: the row of tabs with a view below, targets from one view to another, the address; and the keys. */

import { element } from "#dom";

export class Tabs {
  #bar;
  #room;
  #views;
  #selected;
  #launch = null;
  #context = null;

  /** Called with a view's name when the reader chose it. */
  onChange = () => {};

  /**
   * @param {HTMLElement} bar
   * @param {HTMLElement} room
   * @param {{name: string, view: {title: string, show: Function}}[]} views
   */
  constructor(bar, room, views) {
    this.#bar = bar;
    this.#room = room;
    this.#views = new Map();
    this.#selected = views[0].name;
    for (const { name, view } of views) {
      const button = element("button", {
        type: "button",
        role: "tab",
        id: `tab-${name}`,
        "aria-controls": `view-${name}`,
        text: view.title,
        on: { click: () => this.#choose(name) },
      });
      const panel = element("section", {
        role: "tabpanel",
        id: `view-${name}`,
        "aria-labelledby": `tab-${name}`,
        class: "view",
      });
      this.#views.set(name, { view, button, panel, isFilled: false, shown: null });
      bar.append(button);
      room.append(panel);
    }
    bar.addEventListener("keydown", (event) => this.#moveByKey(event));
    this.#mark();
  }

  /** Shows another launch; `name` is the view to begin with, if there is one of that name. */
  open(launch, context, name) {
    this.#launch = launch;
    this.#context = context;
    for (const entry of this.#views.values()) {
      entry.panel.replaceChildren();
      Object.assign(entry, { isFilled: false, shown: null });
    }
    this.select(this.#views.has(name) ? name : this.#selected);
  }

  /** Shows the view of this name; an unknown name changes nothing. */
  select(name) {
    if (!this.#views.has(name)) return;
    const changed = name !== this.#selected;
    this.#selected = name;
    this.#mark();
    this.#fill();
    if (changed) this.onChange(name);
  }

  /** Returns what the view's `show` returned. */
  shown(name) {
    return this.#views.get(name)?.shown;
  }

  #choose(name) {
    this.select(name);
    this.#views.get(name).button.focus();
  }

  #mark() {
    for (const [name, { button, panel }] of this.#views) {
      const selected = name === this.#selected;
      button.setAttribute("aria-selected", String(selected));
      button.tabIndex = selected ? 0 : -1;
      panel.hidden = !selected;
    }
  }

  #fill() {
    const entry = this.#views.get(this.#selected);
    if (entry.isFilled || !this.#launch) return;
    entry.isFilled = true;
    entry.shown = entry.view.show(entry.panel, this.#launch, this.#context);
  }

  #moveByKey(event) {
    const names = [...this.#views.keys()];
    const at = names.indexOf(this.#selected);
    const target = {
      ArrowLeft: (at + names.length - 1) % names.length,
      ArrowRight: (at + 1) % names.length,
      Home: 0,
      End: names.length - 1,
    }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.#choose(names[target]);
  }
}

/**
 * @typedef {{launch: number | null, tab: string | null, ctas: number[], range: [number, number] | null}} State
 * Without a `launch` it is the one that the page opens with. `ctas` and `range` are what the timeline shows: the CTAs by
 * number (none: the median one), and the time in ns since the begin of each (null: all of it)
 */

/** @param {string} hash as `location.hash` has it; what is wrong in it is as if it was not there @returns {State} */
export function readHash(hash) {
  const values = new URLSearchParams(hash.replace(/^#/, ""));
  const launch = Number(values.get("launch") ?? Number.NaN);
  const range = [values.get("from"), values.get("to")].map((text) => (text ? Number(text) : Number.NaN));
  return {
    launch: Number.isInteger(launch) && launch >= 0 ? launch : null,
    tab: values.get("tab"),
    ctas: (values.get("ctas") ?? "").split(",").filter((cta) => /^\d+$/.test(cta)).map(Number),
    range: range[0] < range[1] && range.every(Number.isFinite) ? range : null,
  };
}

/** @param {State} state @param {string} firstTab @param {number} firstLaunch @returns {string} with `#`; empty if all is as at first */
export function writeHash({ launch, tab, ctas, range }, firstTab, firstLaunch) {
  const values = new URLSearchParams();
  if (launch !== firstLaunch) values.set("launch", String(launch));
  if (tab && tab !== firstTab) values.set("tab", tab);
  if (ctas.length) values.set("ctas", ctas.join(","));
  if (range) {
    values.set("from", range[0].toFixed(0));
    // A range of less than a nanosecond would come back as none.
    values.set("to", Math.max(range[1], Math.round(range[0]) + 1).toFixed(0));
  }
  const text = values.toString();
  return text && `#${text.replaceAll("%2C", ",")}`;
}

const receivers = new Map();

/** Sets what a view does with a target from another view. Each view sets it again for each launch it shows. */
export function receive(name, callback) {
  receivers.set(name, callback);
}

/** Opens the tab of this name, and hands its view the target. */
export function openView(name, target) {
  document.getElementById(`tab-${name}`)?.click();
  receivers.get(name)?.(target);
}

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
  onKey("?", () => (dialog.open ? dialog.close() : dialog.showModal()));
}

/** Does something when a key is pressed that is not input for a field. */
export function onKey(key, action) {
  addEventListener("keydown", (event) => {
    if (event.key === key && isCommand(event)) action();
  });
}

/** Returns whether a key is a command instead of input for a field, or one of the browser's. */
export function isCommand({ target, ctrlKey, metaKey, altKey }) {
  const isTyped = target instanceof HTMLElement && target.matches("input, textarea, select");
  return !isTyped && !ctrlKey && !metaKey && !altKey;
}
