/** The panel at the side: the chosen scope, how its kind does, and all kinds with their colours. */

import { element } from "#dom";
import { counted, formatCount, formatNs, formatShare, shortNs } from "#format";
import { inPartitions } from "#partitions";
import { kindFigures, rankText, scopeFacts } from "#timeline/facts";
import { totalsIn } from "#timeline/range_shares";
import { factList, scopeHead } from "#timeline/tooltip";

export class Panel {
  #figures = new Map();
  #counts;
  #shownMarked = null;
  /** @type {[number, HTMLElement][]} kinds, and their rows in the totals of the range */
  #markedRows = [];

  /** @param {HTMLElement} place @param {import("#timeline/state").TimelineState} state */
  constructor(place, state, theme) {
    this.place = place;
    this.state = state;
    this.theme = theme;
    this.#counts = countsByKind(state.model);
    this.chosen = element("div", { class: "chosen" });
    this.marked = element("div", { class: "marked-range", hidden: true });
    this.legendTitle = element("h2", { text: "Scopes" });
    this.legend = element("div", { class: "side-legend", role: "group", "aria-label": "Scopes" });
    place.append(this.marked, this.chosen, this.legendTitle, this.legend);
    this.buttons = this.#legendButtons();
    if (state.model.flights.length) place.append(flightHint());
    this.legend.append(...inPartitions(this.buttons, state.model.meta.partitions));
    this.update();
    this.showShares();
  }

  /**
   * Shows the shares in the whole launch, or in the visible window if that is a part of it; while a range is selected, the
   * totals of the range.
   */
  showShares() {
    const { model, range, marked, isWhole } = this.state;
    const part = marked ?? (isWhole ? null : range);
    const totals = part && totalsIn(model, part);
    this.#showMarked(marked, totals);
    this.legend.hidden = this.legendTitle.hidden = marked !== null;
    if (marked) return;
    const shares = totals ? totals.map(({ share }) => share) : model.meta.scopes.map(({ share }) => share);
    this.legendTitle.textContent = `Scopes: share of ${isWhole ? `the ${model.meta.warp_name}s' time` : "the visible window"}`;
    shares.forEach((share, kind) => {
      this.buttons[kind].querySelector(".count").textContent = share === null ? "" : formatShare(share);
    });
  }

  update() {
    const { selected, kind, litKinds } = this.state;
    this.chosen.replaceChildren(...(kind >= 0 ? this.#about(selected, kind) : [hint()]));
    if (this.state.marked !== this.#shownMarked) this.showShares();
    for (const [index, button] of [...this.buttons.entries(), ...this.#markedRows]) {
      button.setAttribute("aria-pressed", String(index === kind));
      button.classList.toggle("dim", litKinds !== null && !litKinds[index]);
    }
  }

  #showMarked(marked, totals) {
    if (marked === this.#shownMarked) return;
    this.#shownMarked = marked;
    this.#markedRows = [];
    this.marked.hidden = !marked;
    if (!marked) return;
    const { scopes } = this.state.model.meta;
    const found = totals.filter(({ count }) => count).sort((one, other) => other.ns - one.ns);
    const rows = found.map(({ kind, ns, count, share }) => {
      const swatch = element("span", { class: "color-chip" });
      swatch.style.background = this.theme.scopeColor(kind);
      const isMark = scopes[kind].kind === "mark";
      const name = element("span", { class: "name", text: scopes[kind].name });
      const button = element("button", { type: "button", class: "legend-row", title: scopes[kind].name, on: { click: () => this.state.selectKind(kind) } }, [swatch, name]);
      this.#markedRows.push([kind, button]);
      return element("tr", {}, [
        element("th", { scope: "row" }, [button]),
        element("td", { text: formatCount(count) }),
        element("td", { text: isMark ? "" : shortNs(ns) }),
        element("td", { text: isMark ? "" : formatShare(share) }),
      ]);
    });
    const titles = ["scope", "count", "total", "share"].map((text) => element("th", { scope: "col", text }));
    const [from, to] = marked;
    this.marked.replaceChildren(
      element("h2", { text: `Range of ${formatNs(to - from)}` }),
      element("p", { class: "hint", text: `${formatNs(from)} to ${formatNs(to)}; totals, without what records take, cover all ${this.state.model.meta.warp_name}s in this page` }),
      found.length ? element("table", { class: "range-totals" }, [element("tr", {}, titles), ...rows]) : hintOf("It contains no scope."),
      element("div", { class: "actions" }, [
        element("button", { type: "button", text: "Zoom in", on: { click: () => this.state.show(marked) } }),
        element("button", { type: "button", text: "Clear range", on: { click: () => this.state.mark(null) } }),
      ]),
    );
  }

  #about(selected, kind) {
    const { model } = this.state;
    const { sorted, facts } = this.#figuresOf(kind);
    const parts = scopeHead(model.meta.scopes[kind], this.theme.scopeColor(kind));
    const isShown = selected >= 0;
    if (isShown) parts.push(factList(scopeFacts(model, selected)));
    const isPart = model.meta.shown_scopes < model.meta.scope_count;
    const heading = `All of ${model.meta.scopes[kind].name}${isPart ? " in this page" : ""}`;
    parts.push(element("h2", { text: heading }), factList(facts));
    const rank =
      isShown && model.meta.scopes[kind].kind !== "mark" ? rankText(sorted, model.scopes.duration[selected]) : "";
    if (rank) parts.push(element("p", { class: "hint", text: `This one took ${rank}.` }));
    const act = (text, action) => element("button", { type: "button", text, on: { click: action } });
    const actions = [act("Clear", () => this.state.select(-1))];
    if (isShown) actions.unshift(act("Fit", () => this.state.fit()));
    const change = isShown ? model.flagArrows.changeOf(selected) : -1;
    if (change >= 0) actions.push(act("What ended it", () => this.state.reveal(change)));
    return [...parts, element("div", { class: "actions" }, actions)];
  }

  #figuresOf(kind) {
    if (!this.#figures.has(kind)) this.#figures.set(kind, kindFigures(this.state.model, kind));
    return this.#figures.get(kind);
  }

  #legendButtons() {
    return this.state.model.meta.scopes.map(({ name, source, parent }, kind) => {
      const swatch = element("span", { class: "color-chip" });
      swatch.style.background = this.theme.scopeColor(kind);
      const button = element(
        "button",
        {
          type: "button",
          class: "legend-row",
          title: [name, source, `${counted(this.#counts[kind], "time")} in this page`].filter(Boolean).join(", "),
          on: { click: () => this.state.selectKind(kind) },
        },
        [
          swatch,
          element("span", { class: "name", text: name }),
          element("span", { class: "count" }),
        ],
      );
      button.style.paddingLeft = `${6 + 12 * this.#depth(parent)}px`;
      return button;
    });
  }

  #depth(parent) {
    const { scopes } = this.state.model.meta;
    let depth = 0;
    for (let at = parent; at >= 0 && depth < 8; at = scopes[at].parent) depth++;
    return depth;
  }
}

function hint() {
  return hintOf(
    "Click a scope for its figures and to highlight all of its kind. Shift and drag for the totals of a range. Press ? for the keys.",
  );
}

function flightHint() {
  return hintOf("In flight: full colour while the work was certainly in flight, hatched while it may already have been complete.");
}

function hintOf(text) {
  return element("p", { class: "hint", text });
}

function countsByKind({ meta, scopes }) {
  const counts = new Float64Array(meta.scopes.length);
  for (let index = 0; index < scopes.length; index++) counts[scopes.scope[index]]++;
  return counts;
}
