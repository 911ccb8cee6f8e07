/** The state of the view, and its changes. Nothing here draws. */

import { around, clamped, panned, revealing, wholeRange, zoomed } from "#timeline/range";
import { CTA, SM, WARP, findRow, layoutRows } from "#timeline/rows";
import { Search, parseQuery } from "#timeline/search";

/** A launch with no more rows than this is opened in full at first. */
const OPEN_UP_TO_ROWS = 40;
const MANY_TRACKS = 200_000;

export class TimelineState {
  #onChange;

  /**
   * @param {import("#timeline/model").TimelineModel} model
   * @param {[number, number] | null} range to begin with; null: the whole launch
   * @param {(what: {range?: boolean, look?: boolean, selection?: boolean}) => void} onChange
   */
  constructor(model, range, onChange) {
    this.model = model;
    this.range = range ? clamped(range, model.spanNs) : wholeRange(model.spanNs);
    this.top = 0;
    this.height = 0;
    this.open = { sms: new Set(), ctas: new Set() };
    /** A scope, or -1. */
    this.selected = -1;
    /** The kind of scope that is highlighted, or -1. */
    this.kind = -1;
    /** @type {Search | null} */
    this.search = null;
    /** @type {[number, number] | null} the range of which the reader wants totals */
    this.marked = null;
    this.#onChange = onChange;
    this.#openAtFirst();
  }

  get contentHeight() {
    return this.rows.y[this.rows.count];
  }

  /** True if the range is the whole launch. */
  get isWhole() {
    const whole = wholeRange(this.model.spanNs);
    return this.range[0] <= whole[0] && this.range[1] >= whole[1];
  }

  /** By kind, whether it is highlighted; null if all are. */
  get litKinds() {
    if (this.search) return this.search.kinds;
    if (this.kind < 0) return null;
    return Uint8Array.from(this.model.meta.scopes, (_, kind) => Number(kind === this.kind));
  }

  isLitTrack = (track) => !this.search || this.search.matchesTrack(track);

  resize(height) {
    this.height = height;
    this.#scrollTo(this.top);
  }

  show(range) {
    this.range = clamped(range, this.model.spanNs);
    this.#onChange({ range: true });
  }

  /** @param {[number, number] | null} range null: none */
  mark(range) {
    this.marked = range;
    this.#onChange({ range: true, selection: true });
  }

  zoom(factor, atNs = (this.range[0] + this.range[1]) / 2) {
    this.show(zoomed(this.range, factor, atNs, this.model.spanNs));
  }

  pan(lengths) {
    this.show(panned(this.range, lengths, this.model.spanNs));
  }

  scroll(pixels) {
    this.scrollTo(this.top + pixels);
  }

  scrollTo(top) {
    this.#scrollTo(top);
    this.#onChange({});
  }

  showAll() {
    this.show(wholeRange(this.model.spanNs));
  }

  /** The chosen scope in full; if that is shown already, or none is chosen, the whole launch. */
  fit() {
    const { scopes, spanNs } = this.model;
    const [from, to] = this.range;
    if (this.selected < 0) return this.showAll();
    const target = around(scopes.start[this.selected], scopes.end[this.selected], spanNs);
    const isThere = Math.abs(target[0] - from) + Math.abs(target[1] - to) < 0.01 * (to - from);
    return isThere ? this.showAll() : this.show(target);
  }

  /** Opens or closes an SM or a CTA. */
  toggle(kind, ref) {
    const set = { [SM]: this.open.sms, [CTA]: this.open.ctas }[kind];
    if (!set) return;
    if (!set.delete(ref)) set.add(ref);
    this.#layout();
  }

  openAll() {
    const { groups, ctas, warps } = this.model;
    const all = (length) => new Set(Array.from({ length }, (_, index) => index));
    // Beyond that a row each is more than anybody scrolls through, and more than the browser should hold.
    this.open = {
      sms: all(groups.length),
      ctas: ctas.length * warps.length <= MANY_TRACKS ? all(ctas.length) : this.open.ctas,
    };
    this.#layout();
  }

  closeAll() {
    this.open = { sms: new Set(), ctas: new Set() };
    this.#layout();
  }

  /** @param {number} index a scope, or -1 for none */
  select(index) {
    this.selected = index;
    this.kind = index < 0 ? -1 : this.model.scopes.scope[index];
    this.#onChange({ look: true, selection: true });
  }

  /** Highlights all scopes of a kind and selects none; the same kind again ends the highlight. */
  selectKind(kind) {
    this.selected = -1;
    this.kind = kind === this.kind ? -1 : kind;
    this.#onChange({ look: true, selection: true });
  }

  /** Chooses a scope and moves to it. */
  reveal(index) {
    const { scopes, spanNs } = this.model;
    this.revealRow(WARP, scopes.track[index]);
    this.range = revealing(this.range, scopes.start[index], scopes.end[index], spanNs);
    this.select(index);
    this.#onChange({ range: true });
  }

  /** Opens a CTA, and scrolls to its first warp. */
  revealInside(cta) {
    this.revealRow(WARP, cta * this.model.warps.length);
  }

  /** Opens what is around a CTA's or a warp's row, and scrolls there. */
  revealRow(kind, ref) {
    const cta = kind === WARP ? this.model.ctaRowOf(ref) : ref;
    this.open.sms.add(this.model.groups.groupOfCta[cta]);
    if (kind === WARP) this.open.ctas.add(cta);
    this.#layout();
    const row = findRow(this.rows, kind, ref);
    const [begin, end] = [this.rows.y[row], this.rows.y[row + 1]];
    if (begin < this.top || end > this.top + this.height) this.#scrollTo(begin - (this.height - (end - begin)) / 3);
    this.#onChange({});
  }

  /** @param {string} text @returns {Search | null} */
  find(text) {
    const query = parseQuery(text);
    this.search = query && new Search(this.model, query);
    if (this.search && this.search.firstCta >= 0) this.revealRow(CTA, this.search.firstCta);
    this.#onChange({ look: true, selection: true });
    return this.search;
  }

  /** To the next match, or (-1) to the one before. */
  jump(direction) {
    const next = this.search ? this.search.next(this.selected, direction) : -1;
    if (next >= 0) this.reveal(next);
  }

  #openAtFirst() {
    const { groups, ctas, warps } = this.model;
    if (groups.length + ctas.length * (1 + warps.length) <= OPEN_UP_TO_ROWS) {
      this.openAll();
      return;
    }
    // One CTA shows what the others look like inside.
    if (groups.length) {
      this.open.sms.add(0);
      this.open.ctas.add(groups.order[0]);
    }
    this.#layout();
  }

  #layout() {
    this.rows = layoutRows(this.model, this.open);
    this.#scrollTo(this.top);
    this.#onChange({});
  }

  #scrollTo(top) {
    this.top = Math.max(0, Math.min(top, this.contentHeight - this.height));
  }
}
