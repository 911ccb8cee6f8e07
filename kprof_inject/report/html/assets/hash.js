/** The part of the page's state that is in its address, to share a view of it. */

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
