/** The timeline of chosen CTAs: their warps one below the other, each CTA from its own begin on. */

import { element, tooltipIn } from "#dom";
import { counted, formatCount, formatNs } from "#format";
import { isCommand } from "#navigation";
import { scopeList } from "#tables";
import { draw, GUTTER, lookOf, RULER } from "#timeline/draw";
import { factsOf } from "#timeline/facts";
import { around, boxAt, clamped, LEVEL, panned, revealing, TimelineModel, wholeRange, zoomed } from "#timeline/model";
import { openInPerfetto } from "#timeline/perfetto";

export const title = "Timeline";

const WHOLE_TRACE = "All CTAs: kprof-inject trace CAPTURE --open";
const REMEMBER_AFTER_MS = 200;
const ZOOM = 1.4;
const PAN = 0.15;
const SCROLL = 60;
const WHEEL_ZOOM = 0.0022;
/** A press that moves less than this is a click; what is narrower than the reach can still be pointed at. In CSS pixels. */
const CLICK = 4;
const REACH = 2.5;

/** @param {HTMLElement} place @param {import("#data").Launch} launch @param {Object} context see `#main` */
export function show(place, launch, context) {
  const model = new TimelineModel(launch);
  const picks = launch.meta.picked_ctas.map(([name, cta]) => ({ name, cta: model.ctas.cta.indexOf(cta) }));
  if (!picks.length) {
    place.append(element("p", { class: "view-empty", text: "No CTA ran, or none kept a record." }));
    return null;
  }
  return new Timeline(place, model, picks, context);
}

class Timeline {
  #frame = 0;
  #remembering = 0;
  #at = null;
  #matches = [];
  #lit = null;
  #selected = -1;
  #hovered = -1;

  constructor(place, model, picks, context) {
    Object.assign(this, { model, picks, context });
    this.look = lookOf(context.theme, model.meta.scopes);
    this.#build(place);
    this.#listen();
    const { ctas, range } = context.timeline;
    const known = ctas.map((cta) => model.ctas.cta.indexOf(cta)).filter((cta) => model.has(cta));
    this.#showCtas(known.length ? known : [picks[0].cta]);
    if (range) this.#show(range);
    // The address is the reader's until something changes.
    clearTimeout(this.#remembering);
  }

  /** @param {{cta?: number, warp?: number, startNs?: number, endNs?: number, scope?: number}} target times since the launch */
  goTo({ cta: number, startNs, endNs, scope, index = -1 }) {
    const { model } = this;
    const cta = model.ctas.cta.indexOf(number);
    if (!model.has(cta)) return this.#sayMissing(number, cta);
    if (!this.ctas.includes(cta)) this.#showCtas([cta]);
    const begin = model.ctas.begin[cta];
    if (startNs !== undefined && endNs !== undefined) this.#show([startNs - begin, endNs - begin]);
    if (scope !== undefined) this.#light(scope);
    if (index >= 0) this.#select(index, true);
    else this.#reveal(this.rows.find((row) => row.cta === cta));
  }

  /** Shows what an address names. @param {{ctas: number[], range: [number, number] | null}} view */
  follow({ ctas, range }) {
    const known = ctas.map((cta) => this.model.ctas.cta.indexOf(cta)).filter((cta) => this.model.has(cta));
    if (known.length) this.#showCtas(known);
    if (range) this.#show(range);
  }

  #build(place) {
    const { model } = this;
    const { meta } = model;
    place.classList.add("timeline");
    const button = (text, name, action, properties = {}) => element("button", { type: "button", title: name, text, on: { click: action }, ...properties });
    this.toggles = this.picks.map(({ name, cta }) => button(`${name} ${model.ctas.cta[cta]}`, `Show or hide ${meta.cta_name} ${model.ctas.cta[cta]}`, () => this.#toggle(cta)));
    this.number = element("input", { type: "number", min: 0, class: "cta-number", placeholder: "number", "aria-label": `Show or hide a ${meta.cta_name} by its number`, on: { change: () => this.#toggleNumber() } });
    this.input = element("input", { type: "search", class: "search-input", placeholder: "Search: name or source", "aria-label": "Search scopes", spellcheck: "false", on: { input: () => this.#find(), keydown: (event) => this.#searchKey(event) } });
    this.count = element("span", { class: "search-count view-hint", role: "status" });
    this.shownRange = element("span", { class: "shown-range view-hint" });
    const group = (...parts) => element("div", { class: "bar-group" }, parts);
    const bar = element("div", { class: "view-toolbar timeline-bar" }, [
      element("div", { class: "bar-group", role: "group", "aria-label": `Shown ${meta.cta_name}s` }, [`${meta.cta_name}s`, ...this.toggles, this.number]),
      group(this.input, button("‹", "Previous match (N)", () => this.#jump(-1)), button("›", "Next match (n)", () => this.#jump(1)), this.count),
      group(this.shownRange, button("−", "Zoom out (s)", () => this.#zoom(ZOOM)), button("+", "Zoom in (w)", () => this.#zoom(1 / ZOOM)), button("Whole", "Show all of the CTAs (0)", () => this.#showAll())),
      button("Open in Perfetto", perfettoHint(meta), () => openInPerfetto(model) || this.#say("The browser opened no window: allow this page to open some."), { class: "perfetto-button" }),
    ]);
    this.list = scopeList(meta, (kind) => this.#light(this.#isLitAlone(kind) ? -1 : kind));
    this.chosen = element("div", { class: "timeline-chosen", role: "status" });
    this.canvas = element("canvas", { class: "timeline-rows" });
    this.sizer = element("div", { class: "timeline-sizer" });
    this.room = element("div", { class: "timeline-room", tabindex: 0, role: "application", "aria-label": "Timeline; press ? for its keys" }, [this.canvas, this.sizer]);
    const side = element("aside", { class: "timeline-side", "aria-label": "Scopes" }, [this.list.element, this.chosen]);
    place.append(bar, element("div", { class: "side-by-side" }, [side, this.room]));
    this.tooltip = tooltipIn(place);
    this.#say("Click a scope for its figures; press ? for the keys.");
  }

  #listen() {
    const { context, canvas, room } = this;
    const onKey = (event) => this.#key(event);
    addEventListener("keydown", onKey);
    context.onForget(() => removeEventListener("keydown", onKey));
    const observer = new ResizeObserver(() => this.#draw());
    observer.observe(room);
    context.onForget(() => observer.disconnect());
    context.onForget(() => clearTimeout(this.#remembering));
    context.onThemeChange(() => {
      this.look = lookOf(context.theme, this.model.meta.scopes);
      this.#change();
    });
    room.addEventListener("scroll", () => this.#change(), { passive: true });
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    canvas.addEventListener("pointermove", (event) => this.#hover(event));
    canvas.addEventListener("pointerleave", () => this.#hover(null));
    canvas.addEventListener("pointerdown", (event) => this.#press(event));
    canvas.addEventListener("dblclick", (event) => this.#zoomToHit(this.#hitAt(event)));
  }

  // What is shown

  #showCtas(ctas) {
    this.ctas = ctas;
    this.rows = this.model.rowsOf(ctas);
    this.spanNs = Math.max(...ctas.map((cta) => this.model.spanOf(cta)));
    const { y, height } = this.rows.at(-1);
    this.sizer.style.height = `${y + height + RULER}px`;
    this.picks.forEach(({ cta }, at) => this.toggles[at].setAttribute("aria-pressed", String(ctas.includes(cta))));
    this.#setMatches();
    this.#showAll();
  }

  /** The last one stays: a timeline of nothing helps nobody. */
  #toggle(cta) {
    const without = this.ctas.filter((shown) => shown !== cta);
    if (without.length === this.ctas.length) this.#showCtas([...this.ctas, cta]);
    else if (without.length) this.#showCtas(without);
  }

  #toggleNumber() {
    if (!this.number.value) return;
    const cta = this.model.ctas.cta.indexOf(Number(this.number.value));
    if (this.model.has(cta)) this.#toggle(cta);
    else this.#sayMissing(this.number.value, cta);
    this.number.value = "";
  }

  #show(range) {
    this.range = clamped(range, this.spanNs);
    const [from, to] = this.range;
    this.shownRange.textContent = `${formatNs(from)} to ${formatNs(to)}`;
    clearTimeout(this.#remembering);
    this.#remembering = setTimeout(() => this.#remember(), REMEMBER_AFTER_MS);
    this.#change();
  }

  #remember() {
    const [[from, to], whole] = [this.range, wholeRange(this.spanNs)];
    const isFirst = this.ctas.length === 1 && this.ctas[0] === this.picks[0].cta;
    this.context.onTimeline({ ctas: isFirst ? [] : this.ctas.map((cta) => this.model.ctas.cta[cta]), range: from <= whole[0] && to >= whole[1] ? null : this.range });
  }

  #showAll() {
    this.#show(wholeRange(this.spanNs));
  }

  #zoom(factor) {
    const x = this.#at?.x ?? 0;
    const atNs = x >= GUTTER ? this.#nsAt(x) : (this.range[0] + this.range[1]) / 2;
    this.#show(zoomed(this.range, factor, atNs, this.spanNs));
  }

  #pan(lengths) {
    this.#show(panned(this.range, lengths, this.spanNs));
  }

  /** The selected scope; if that is shown already, or none is selected, all of the CTAs. */
  #fit() {
    if (this.#selected < 0) return this.#showAll();
    const target = around(...this.#timesOf(this.#selected), this.spanNs);
    const isThere = Math.abs(target[0] - this.range[0]) < 1 && Math.abs(target[1] - this.range[1]) < 1;
    return isThere ? this.#showAll() : this.#show(target);
  }

  /** A scope's start and end since its CTA's begin. */
  #timesOf(index) {
    const { scopes, ctas } = this.model;
    const begin = ctas.begin[this.model.ctaOf(scopes.track[index])];
    return [scopes.start[index] - begin, scopes.end[index] - begin];
  }

  #reveal({ y, height }, line = 0) {
    const { scrollTop, clientHeight } = this.room;
    const top = y + line * LEVEL;
    if (top < scrollTop || top + Math.min(height, 3 * LEVEL) > scrollTop + clientHeight - RULER) this.room.scrollTop = top - clientHeight / 3;
    this.#change();
  }

  // Search, highlight and selection

  #find() {
    this.#lit = this.model.kindsWith(this.input.value);
    this.list.select(-1);
    this.#setMatches();
  }

  /** Highlights a kind of scopes, to walk through with n and N; -1 for none. */
  #light(kind) {
    this.input.value = kind < 0 ? "" : this.model.meta.scopes[kind].name;
    this.#lit = kind < 0 ? null : Uint8Array.from(this.model.meta.scopes, (_, other) => Number(other === kind));
    this.list.select(kind);
    this.#setMatches();
  }

  #isLitAlone(kind) {
    return this.#lit?.[kind] === 1 && this.#lit.reduce((sum, lit) => sum + lit, 0) === 1;
  }

  #setMatches() {
    this.#matches = this.#lit ? this.model.matches(this.ctas, this.#lit) : [];
    this.#showCount();
    this.#change();
  }

  #showCount() {
    const number = this.#matches.indexOf(this.#selected) + 1;
    const count = this.#matches.length;
    const text = !count ? "nothing found" : number ? `${formatCount(number)} of ${formatCount(count)}` : counted(count, "scope");
    this.count.textContent = this.#lit ? text : "";
  }

  #jump(step) {
    const count = this.#matches.length;
    if (!count) return;
    const at = this.#matches.indexOf(this.#selected);
    this.#select(this.#matches[at < 0 ? (step > 0 ? 0 : count - 1) : (at + step + count) % count], true);
  }

  #select(index, isRevealed = false) {
    const { model } = this;
    this.#selected = index;
    if (index < 0) this.#say("");
    else this.chosen.replaceChildren(...factsOf(model, { scope: index }));
    if (isRevealed && index >= 0) {
      this.#show(revealing(this.range, ...this.#timesOf(index), this.spanNs));
      this.#reveal(this.rows.find(({ track }) => track === model.scopes.track[index]), model.levelOf(index));
    }
    this.#showCount();
    this.#change();
  }

  #say(text) {
    this.chosen.replaceChildren(element("p", { class: "view-hint", text }));
  }

  #sayMissing(number, cta) {
    const name = `${this.model.meta.cta_name} ${number}`;
    this.#say(cta < 0 ? `${name} was not recorded.` : `${name} is not in this page. ${WHOLE_TRACE}`);
  }

  // Pointer and keys

  #nsAt(x) {
    return this.range[0] + ((x - GUTTER) / (this.canvas.clientWidth - GUTTER)) * (this.range[1] - this.range[0]);
  }

  #placeOf(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  /** @returns {{scope?: number, cta?: number, flight?: number, lost?: number}} what is there */
  #hitAt(event) {
    const { x, y } = this.#placeOf(event);
    const down = y - RULER + this.room.scrollTop;
    const row = y < RULER || x < GUTTER ? null : this.rows.find((one) => one.y <= down && down < one.y + one.height);
    if (!row) return {};
    const { model } = this;
    const { scopes, flights, ctas } = model;
    const ns = this.#nsAt(x) + ctas.begin[row.cta];
    const reach = (REACH * (this.range[1] - this.range[0])) / (this.canvas.clientWidth - GUTTER);
    const line = row.lines[Math.floor((down - row.y - 2) / LEVEL)] ?? [];
    if (row.kind === "cta") return { cta: row.cta };
    if (row.kind === "flight") return { flight: boxAt(line, flights, ns, reach) };
    const scope = boxAt(line, scopes, ns, reach);
    const lost = model.lostOfTrack.get(row.track);
    const isLost = lost !== undefined && scopes.incomplete.lostStart[lost] <= ns && ns < scopes.incomplete.lostEnd[lost];
    return { scope, lost: scope === undefined && isLost ? lost : undefined };
  }

  #hover(event) {
    this.#at = event && this.#placeOf(event);
    if (event?.buttons) return;
    const hit = event ? this.#hitAt(event) : {};
    const facts = factsOf(this.model, hit);
    if (facts.length) this.tooltip.show(event, facts);
    else this.tooltip.hide();
    this.canvas.classList.toggle("can-open", hit.scope !== undefined);
    if (this.#hovered !== (this.#hovered = hit.scope ?? -1)) this.#change();
  }

  // As in Perfetto: the wheel scrolls, with Ctrl (which a pinch sends too) it zooms. Over the ruler it always zooms.
  #wheel(event) {
    const { scrollHeight, clientHeight } = this.room;
    const { y } = (this.#at = this.#placeOf(event));
    const isZoom = event.ctrlKey || event.metaKey || y < RULER || (scrollHeight <= clientHeight && !event.shiftKey);
    const sideways = event.shiftKey ? event.deltaY + event.deltaX : event.deltaX;
    if (isZoom && event.deltaY) this.#zoom(Math.exp(event.deltaY * WHEEL_ZOOM));
    else if (Math.abs(sideways) > (event.shiftKey ? 0 : Math.abs(event.deltaY))) this.#pan(sideways / (this.canvas.clientWidth - GUTTER));
    else return;
    event.preventDefault();
  }

  #press(event) {
    if (event.button !== 0) return;
    const [begin, range, top] = [this.#placeOf(event), this.range, this.room.scrollTop];
    const nsPerPixel = (range[1] - range[0]) / (this.canvas.clientWidth - GUTTER);
    let isDrag = false;
    const move = (moved) => {
      const at = this.#placeOf(moved);
      isDrag ||= Math.hypot(at.x - begin.x, at.y - begin.y) >= CLICK;
      if (!isDrag) return;
      this.room.scrollTop = top + begin.y - at.y;
      this.#show(range.map((ns) => ns + (begin.x - at.x) * nsPerPixel));
    };
    const stop = () => {
      this.canvas.removeEventListener("pointermove", move);
      for (const name of ["pointerup", "pointercancel"]) this.canvas.removeEventListener(name, stop);
      if (isDrag || begin.x < GUTTER || begin.y < RULER) return;
      const { scope = -1 } = this.#hitAt(event);
      this.#light(scope < 0 ? -1 : this.model.scopes.scope[scope]);
      this.#select(scope);
    };
    this.tooltip.hide();
    this.canvas.setPointerCapture(event.pointerId);
    this.canvas.addEventListener("pointermove", move);
    for (const name of ["pointerup", "pointercancel"]) this.canvas.addEventListener(name, stop);
  }

  #zoomToHit({ scope }) {
    if (scope !== undefined) this.#show(around(...this.#timesOf(scope), this.spanNs));
  }

  #searchKey(event) {
    event.stopPropagation();
    if (event.key === "Enter") this.#jump(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") this.#clear();
  }

  #clear() {
    this.input.blur();
    this.#light(-1);
    this.#select(-1);
  }

  #scroll(pixels) {
    this.room.scrollTop += pixels;
  }

  #keys = {
    w: () => this.#zoom(1 / ZOOM),
    s: () => this.#zoom(ZOOM),
    "+": () => this.#zoom(1 / ZOOM),
    "=": () => this.#zoom(1 / ZOOM),
    "-": () => this.#zoom(ZOOM),
    a: () => this.#pan(-PAN),
    d: () => this.#pan(PAN),
    ArrowLeft: () => this.#pan(-PAN),
    ArrowRight: () => this.#pan(PAN),
    ArrowUp: () => this.#scroll(-SCROLL),
    ArrowDown: () => this.#scroll(SCROLL),
    PageUp: () => this.#scroll(-0.9 * this.room.clientHeight),
    PageDown: () => this.#scroll(0.9 * this.room.clientHeight),
    Home: () => this.#scroll(-this.room.scrollHeight),
    End: () => this.#scroll(this.room.scrollHeight),
    f: () => this.#fit(),
    0: () => this.#showAll(),
    n: () => this.#jump(1),
    N: () => this.#jump(-1),
    "/": () => this.input.focus(),
    Escape: () => this.#clear(),
  };

  #key(event) {
    if (!this.room.clientWidth || !isCommand(event) || document.querySelector("dialog[open]")) return;
    // With the shift lock on, W is w still; N alone differs from n.
    const action = this.#keys[event.key] ?? this.#keys[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    action();
  }

  // Drawing

  /** Draws several changes in one frame. */
  #change() {
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const { clientWidth: width, clientHeight: height, scrollTop: top } = this.room;
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d", { alpha: false });
    pen.scale(ratio, ratio);
    const { model, rows, range } = this;
    const begin = performance.now();
    draw(pen, { model, rows, range, top, width, height, lit: this.#lit, selected: this.#selected, hovered: this.#hovered }, this.look);
    this.canvas.dataset.drawMs = (performance.now() - begin).toFixed(2);
  }
}

function perfettoHint({ shown_ctas: shown, ctas, cta_name: name }) {
  const which = shown < ctas ? `the ${counted(shown, name)} of this page` : `all ${counted(ctas, name)}`;
  return `Opens ${which} in ui.perfetto.dev; they stay in your browser.${shown < ctas ? ` ${WHOLE_TRACE}` : ""}`;
}
