/** The row above the timeline: search, zoom, and which time is shown. */

import { element } from "#dom";
import { counted, formatCount, formatNs } from "#format";

export class Toolbar {
  /**
   * @param {HTMLElement} place @param {import("#timeline/state").TimelineState} state
   * @param {HTMLElement} exports the menu "Export"
   */
  constructor(place, state, exports) {
    this.state = state;
    this.input = element("input", {
      type: "search",
      class: "search-input",
      placeholder: "Search: name, source, cta:12, sm:3, warp:0-3",
      "aria-label": "Search scopes",
      spellcheck: "false",
      on: { input: () => this.#search(), keydown: (event) => this.#key(event) },
    });
    this.count = element("span", { class: "search-count", role: "status" });
    const button = (text, name, action) =>
      element("button", { type: "button", title: name, "aria-label": name, text, on: { click: action } });
    this.before = button("‹", "Previous match (N)", () => state.jump(-1));
    this.next = button("›", "Next match (n)", () => state.jump(1));
    this.range = element("span", { class: "shown-range" });
    place.append(
      element("div", { class: "search-group" }, [this.input, this.before, this.next, this.count]),
      this.range,
      element("div", { class: "zoom-group" }, [
        button("−", "Zoom out (s)", () => state.zoom(1.6)),
        button("+", "Zoom in (w)", () => state.zoom(1 / 1.6)),
        button("Whole launch", "Show the whole launch (0)", () => state.showAll()),
        button("Open all", "Open all SMs and CTAs (e)", () => state.openAll()),
        button("Close all", "Close all SMs and CTAs (c)", () => state.closeAll()),
        exports,
      ]),
    );
    this.update();
  }

  /** Empties the search. */
  clear() {
    this.input.value = "";
    this.input.blur();
    this.#search();
  }

  update() {
    const { search, selected, range } = this.state;
    const [from, to] = range;
    this.range.textContent = `${formatNs(from)} to ${formatNs(to)} (${formatNs(to - from)})`;
    this.before.disabled = this.next.disabled = !search?.count;
    const number = search ? search.numberOf(selected) : 0;
    if (!search) this.count.textContent = "";
    else if (!search.count) this.count.textContent = "nothing found";
    else
      this.count.textContent = number
        ? `${formatCount(number)} of ${formatCount(search.count)}`
        : counted(search.count, "scope");
  }

  #search() {
    this.state.find(this.input.value);
  }

  #key(event) {
    event.stopPropagation();
    if (event.key === "Enter") this.state.jump(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") this.clear();
  }
}
