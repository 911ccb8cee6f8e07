/** The box next to the pointer. */

import { element } from "#dom";
import { ctaFacts, flightFacts, lostFacts, scopeFacts } from "#timeline/facts";

const DISTANCE = 14;

export class Tooltip {
  #box = element("div", { class: "timeline-tip", role: "tooltip", hidden: true });

  /** @param {HTMLElement} room what it must stay in */
  constructor(room, model, theme) {
    this.#room = room;
    this.#model = model;
    this.#theme = theme;
    room.append(this.#box);
  }

  #room;
  #model;
  #theme;

  hide() {
    this.#box.hidden = true;
  }

  /** @param {import("#timeline/hit").Hit | null} hit @param {{x: number, y: number}} at in the room */
  show(hit, at) {
    const content = hit && this.#content(hit);
    if (!content) return this.hide();
    this.#box.replaceChildren(...content);
    this.#box.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.#box;
    const left = at.x + DISTANCE + width > this.#room.clientWidth ? at.x - DISTANCE - width : at.x + DISTANCE;
    const top = Math.min(at.y + DISTANCE, this.#room.clientHeight - height - 4);
    this.#box.style.left = `${Math.max(left, 4)}px`;
    this.#box.style.top = `${Math.max(top, 4)}px`;
  }

  #content({ scope, cta, flight, lost }) {
    const model = this.#model;
    if (scope !== undefined) {
      const kind = model.scopes.scope[scope];
      return scopeHead(model.meta.scopes[kind], this.#theme.scopeColor(kind)).concat(
        factList(scopeFacts(model, scope)),
      );
    }
    if (flight !== undefined) {
      const title = `${model.meta.flight_works[model.flights.work[flight]]} in flight`;
      return [element("strong", { text: title }), factList(flightFacts(model, flight))];
    }
    if (lost !== undefined) return [element("strong", { text: "lost records" }), factList(lostFacts(model, lost))];
    if (cta !== undefined)
      return [element("strong", { text: `${model.meta.cta_name} ${model.ctas.cta[cta]}` }), factList(ctaFacts(model, cta))];
    return null;
  }
}

/** A scope's name, its source line, and the text of that line. */
export function scopeHead({ name, kind, source, path, text, called_from: calledFrom }, color) {
  const swatch = element("span", { class: "color-chip" });
  swatch.style.background = color;
  const head = [
    element("strong", { class: "tip-name" }, [swatch, name]),
    element("span", { class: "scope-kind", text: kind }),
  ];
  const parts = [element("div", { class: "scope-title" }, head)];
  if (source) {
    const called = calledFrom.length ? ` from ${calledFrom.join(", ")}` : "";
    parts.push(element("div", { class: "scope-place", title: path, text: source + called }));
  }
  if (text) parts.push(element("code", { class: "scope-line", text }));
  return parts;
}

/** @param {[string, string][]} facts */
export function factList(facts) {
  return element(
    "dl",
    { class: "fact-list" },
    facts.flatMap(([label, text]) => [element("dt", { text: label }), element("dd", { text })]),
  );
}
