/** Hands the page's CTAs to Perfetto's UI, where they stay in the browser. */

import { smName } from "#format";

// https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
const UI = "https://ui.perfetto.dev";
const ASK_EVERY_MS = 50;
const ASK_FOR_MS = 120_000;

/** @returns {boolean} false if the browser opened no window */
export function openInPerfetto(model) {
  const ui = globalThis.open(UI);
  if (!ui) return false;
  const { title, launch } = model.meta;
  const ask = setInterval(() => ui.postMessage("PING", UI), ASK_EVERY_MS);
  const stop = () => {
    clearInterval(ask);
    removeEventListener("message", send);
  };
  const send = ({ source, data }) => {
    if (source !== ui || data !== "PONG") return;
    stop();
    const { buffer } = new TextEncoder().encode(JSON.stringify(traceOf(model)));
    ui.postMessage({ perfetto: { buffer, title: `${title}, launch ${launch}` } }, UI, [buffer]);
  };
  addEventListener("message", send);
  setTimeout(stop, ASK_FOR_MS);
  return true;
}

/**
 * The scopes of the page in Chrome's Trace Event Format: a process for each CTA, a thread for each warp, and one more for
 * each lane of scopes that cross others. Times are since the start of the launch, or since the first scope if one began earlier.
 */
export function traceOf({ meta, scopes, ctas, warps, flights }) {
  const zero = Math.min(0, scopes.start.reduce((least, ns) => Math.min(least, ns), 0));
  const time = (start, end) => ({ ts: (start - zero) / 1000, dur: (end - start) / 1000 });
  const [named, names, events] = [new Set(), [], []];
  const thread = (cta, tid, name) => {
    if (!named.has(cta)) names.push({ ph: "M", name: "process_name", pid: cta + 1, args: { name: `${meta.cta_name} ${ctas.cta[cta]}, ${smName(ctas.sm[cta])}` } });
    if (!named.has(`${cta} ${tid}`)) names.push({ ph: "M", name: "thread_name", pid: cta + 1, tid, args: { name } });
    named.add(cta).add(`${cta} ${tid}`);
    return { pid: cta + 1, tid };
  };
  for (let index = 0; index < scopes.length; index++) {
    const { name, kind, lane } = meta.scopes[scopes.scope[index]];
    const cta = Math.floor(scopes.track[index] / warps.length);
    const place = scopes.track[index] % warps.length;
    const warp = `${meta.warp_name} ${warps[place]}`;
    const at = thread(cta, 1 + place + lane * warps.length, lane ? `${warp} (crossing ${lane})` : warp);
    const { ts, dur } = time(scopes.start[index], scopes.end[index]);
    const args = scopes.iteration[index] < 0 ? {} : { iteration: scopes.iteration[index] };
    const isMark = kind === "mark";
    // As in the traces of the command line: the bar's length, and without the cost of records.
    if (!isMark) Object.assign(args, { recorded_ns: scopes.end[index] - scopes.start[index], duration_ns: scopes.duration[index] });
    events.push({ name, cat: kind, ...at, ts, ...(isMark ? { ph: "i", s: "t" } : { ph: "X", dur }), args });
  }
  for (let row = 0; row < flights.length; row++) {
    const work = meta.flight_works[flights.work[row]];
    const at = thread(flights.ctaRow[row], 10_000 + flights.lane[row], `${work} in flight`);
    events.push({ name: work, cat: "in flight", ph: "X", ...at, ...time(flights.start[row], flights.end[row]) });
  }
  return { traceEvents: [...names, ...events], displayTimeUnit: "ns" };
}
