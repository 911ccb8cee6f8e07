/** Which launch is shown: its title, and a list of all where there are several. */

import { element } from "#dom";
import { counted, shortNs } from "#format";

const CLOCKS = { fitted: "SM clock", assumed: "assumed SM clock", nominal: "assumed SM clock" };

/** Another profiler's records are times of the globaltimer, and no SM's clock is known. */
function clockOf({ clock_source: source, clock_ghz: ghz }) {
  return source === "timer" ? "globaltimer" : `${CLOCKS[source] ?? "SM clock"} ${Math.round(ghz * 1000)} MHz`;
}

/** @param {HTMLElement} place @param {Object} meta of the launch */
export function showTitle(place, meta) {
  const facts = [
    meta.place,
    `grid ${meta.grid.join("×")}`,
    counted(meta.warps_per_cta, meta.warp_name),
    meta.run_times,
    `span ${shortNs(meta.duration_ns)}`,
    clockOf(meta),
    meta.device,
  ];
  place.replaceChildren(
    element("h1", { text: meta.kernel, title: meta.kernel }),
    ...facts.filter(Boolean).map((fact) => element("span", { class: "fact", text: fact })),
  );
}

/**
 * @param {HTMLElement} place
 * @param {Object[]} metas
 * @param {number} chosen
 * @param {(index: number) => void} onChoice
 */
export function fillChooser(place, metas, chosen, onChoice) {
  place.replaceChildren();
  if (metas.length < 2) return;
  const options = metas.map((meta, index) =>
    element("option", { value: index, selected: index === chosen, text: launchName(meta) }),
  );
  const list = element("select", { id: "launch", on: { change: () => onChoice(Number(list.value)) } }, options);
  place.append(element("label", { for: "launch", text: "Launch" }), list);
}

function launchName(meta) {
  const replay = meta.graph ? ", last replay of a CUDA graph" : "";
  const place = meta.place ? `${meta.place}: ` : "";
  const size = `grid ${meta.grid.join("×")}, span ${shortNs(meta.duration_ns)}`;
  return `${place}${meta.kernel}, launch ${meta.launch}${replay}: ${size}`;
}
