/** The row of tabs, and the view below it. A view is filled when it is first looked at. */

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
