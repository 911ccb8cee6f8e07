/** The timeline: what ran when, by SM, CTA and warp. */

import { element } from "#dom";
import { exportMenu } from "#export/menu";
import { isTyping } from "#help";
import { Frame } from "#timeline/frame";
import { goTo } from "#timeline/goto";
import { actOnKey } from "#timeline/keys";
import { RULER } from "#timeline/layout";
import { highlighted, lookOf } from "#timeline/look";
import { Minimap } from "#timeline/minimap";
import { TimelineModel } from "#timeline/model";
import { Panel } from "#timeline/panel";
import { Pointer } from "#timeline/pointer";
import { TimelineState } from "#timeline/state";
import { Toolbar } from "#timeline/toolbar";
import { Tooltip } from "#timeline/tooltip";
import { visiblePart } from "#timeline/visible_part";

export const title = "Timeline";

const REMEMBER_AFTER_MS = 200;

/** @param {HTMLElement} place @param {import("#data").Launch} launch @param {Object} context see `#main` */
export function show(place, launch, context) {
  return new TimelineView(place, launch, context);
}

class TimelineView {
  #frameAsked = 0;
  #changed = { range: false, look: false, selection: false };
  #remembering = 0;

  constructor(place, launch, context) {
    this.context = context;
    this.model = new TimelineModel(launch);
    this.state = new TimelineState(this.model, context.range, (what) => this.#change(what));
    this.#build(place);
    this.look = lookOf(this.model, context.theme);
    this.shownLook = highlighted(this.look, this.state.litKinds);
    this.#listen();
    this.#resize();
    this.#draw();
  }

  /** @param {{cta?: number, warp?: number, startNs?: number, endNs?: number, scope?: number}} target */
  goTo(target) {
    goTo(this.state, target);
  }

  /** @param {[number, number]} range in ns since the start of the launch */
  showRange(range) {
    this.state.show(range);
  }

  #build(place) {
    place.classList.add("timeline");
    const canvas = element("canvas", {
      class: "timeline-rows",
      tabindex: 0,
      role: "application",
      "aria-label": "Timeline; press ? for its keys",
    });
    const minimap = element("canvas", { class: "minimap", "aria-hidden": "true" });
    this.band = element("div", { class: "time-band", hidden: true });
    this.marked = element("div", { class: "time-band marked", hidden: true });
    this.room = element("div", { class: "canvas-room" }, [canvas, this.marked, this.band]);
    const bar = element("div", { class: "timeline-bar" });
    const side = element("aside", { class: "side-panel", "aria-label": "Chosen scope" });
    place.append(
      bar,
      element("div", { class: "timeline-body" }, [element("div", { class: "pictures" }, [minimap, this.room]), side]),
    );
    this.canvas = canvas;
    this.frame = new Frame(canvas);
    this.minimap = new Minimap(minimap, this.state);
    this.toolbar = new Toolbar(bar, this.state, exportMenu(() => visiblePart(this.state, () => this.#picture())));
    this.panel = new Panel(side, this.state, this.context.theme);
    this.tooltip = new Tooltip(this.room, this.model, this.context.theme);
    this.pointer = new Pointer(canvas, this.state, {
      hover: (hit) => this.#hover(hit),
      band: (band) => showBand(this.band, band),
    });
  }

  #listen() {
    const { context } = this;
    const onKey = (event) => this.#key(event);
    addEventListener("keydown", onKey);
    context.onForget(() => removeEventListener("keydown", onKey));
    const observer = new ResizeObserver(() => {
      this.#resize();
      this.#draw();
    });
    observer.observe(this.room);
    context.onForget(() => observer.disconnect());
    context.onForget(() => clearTimeout(this.#remembering));
    context.onThemeChange(() => {
      this.look = lookOf(this.model, context.theme);
      this.#change({ look: true });
    });
  }

  get #isShown() {
    return this.room.clientWidth > 0;
  }

  #resize() {
    if (!this.#isShown) return;
    const { height } = this.frame.resize();
    this.state.resize(height - RULER);
    this.minimap.resize();
  }

  #key(event) {
    if (!this.#isShown || isTyping(event) || document.querySelector("dialog[open]")) return;
    actOnKey(event, this.state, {
      pointerNs: () => this.pointer.ns(),
      focusSearch: () => this.toolbar.input.focus(),
      clearSearch: () => this.toolbar.clear(),
    });
  }

  #hover(hit) {
    this.tooltip.show(hit, this.pointer.at);
    const scope = hit?.scope ?? -1;
    if (scope !== this.hovered) {
      this.hovered = scope;
      this.#change({});
    }
  }

  hovered = -1;

  /** The range that is selected, as far as it is shown. */
  #markedBand() {
    const { range, marked } = this.state;
    if (!marked || marked[1] < range[0] || marked[0] > range[1]) return null;
    const { x, width } = this.pointer.plot;
    return marked.map((ns) => x + Math.min(Math.max((ns - range[0]) / (range[1] - range[0]), 0), 1) * width);
  }

  /** Draws several changes in one frame. */
  #change(what) {
    for (const name of Object.keys(what)) this.#changed[name] = true;
    this.#frameAsked ||= requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    cancelAnimationFrame(this.#frameAsked);
    this.#frameAsked = 0;
    if (!this.#isShown) return;
    const { range, look, selection } = this.#changed;
    this.#changed = { range: false, look: false, selection: false };
    if (look) this.shownLook = highlighted(this.look, this.state.litKinds);
    if (range) this.#rememberRange();
    showBand(this.marked, this.#markedBand());
    if (range || selection) this.toolbar.update();
    if (selection) this.panel.update();
    const begin = performance.now();
    this.frame.draw(this.state, this.shownLook, this.hovered);
    this.minimap.draw(this.shownLook);
    this.canvas.dataset.drawMs = (performance.now() - begin).toFixed(2);
  }

  /** @returns {Promise<Blob>} what the canvas shows, without what the pointer is on */
  #picture() {
    this.frame.draw(this.state, this.shownLook, -1);
    return new Promise((done) => this.canvas.toBlob(done, "image/png"));
  }

  #rememberRange() {
    clearTimeout(this.#remembering);
    const { state } = this;
    this.#remembering = setTimeout(() => {
      this.context.onRange(state.isWhole ? null : state.range);
      this.panel.showShares();
    }, REMEMBER_AFTER_MS);
  }
}

/** @param {HTMLElement} place @param {number[] | null} band from where to where, in the canvas */
function showBand(place, band) {
  place.hidden = !band;
  if (!band) return;
  place.style.left = `${band[0]}px`;
  place.style.width = `${band[1] - band[0]}px`;
}
