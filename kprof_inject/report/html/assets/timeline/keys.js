/** Actions of keys in the timeline. */

const ZOOM = 1.4;
const PAN = 0.15;
const SCROLL = 60;

/** By the key's name, as `KeyboardEvent.key` has it. Each gets the state and what the page around it offers. */
const ACTIONS = {
  w: (state, at) => state.zoom(1 / ZOOM, at.pointerNs()),
  s: (state, at) => state.zoom(ZOOM, at.pointerNs()),
  "+": (state, at) => state.zoom(1 / ZOOM, at.pointerNs()),
  "=": (state, at) => state.zoom(1 / ZOOM, at.pointerNs()),
  "-": (state, at) => state.zoom(ZOOM, at.pointerNs()),
  a: (state) => state.pan(-PAN),
  d: (state) => state.pan(PAN),
  ArrowLeft: (state) => state.pan(-PAN),
  ArrowRight: (state) => state.pan(PAN),
  ArrowUp: (state) => state.scroll(-SCROLL),
  ArrowDown: (state) => state.scroll(SCROLL),
  PageUp: (state) => state.scroll(-state.height * 0.9),
  PageDown: (state) => state.scroll(state.height * 0.9),
  Home: (state) => state.scroll(-state.contentHeight),
  End: (state) => state.scroll(state.contentHeight),
  f: (state) => state.fit(),
  m: (state) => state.mark(state.range),
  0: (state) => state.showAll(),
  e: (state) => state.openAll(),
  c: (state) => state.closeAll(),
  n: (state) => state.jump(1),
  N: (state) => state.jump(-1),
  "/": (_, at) => at.focusSearch(),
  Escape: (state, at) => {
    at.clearSearch();
    state.mark(null);
    state.select(-1);
  },
};

/**
 * @param {KeyboardEvent} event
 * @param {{pointerNs: () => number | undefined, focusSearch: () => void, clearSearch: () => void}} at
 */
export function actOnKey(event, state, at) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  // With the shift lock on, W is w still; N alone differs from n.
  const action = ACTIONS[event.key] ?? ACTIONS[event.key.toLowerCase()];
  if (!action) return;
  event.preventDefault();
  action(state, at);
}
