/** Above every view: which launch is shown, what limits it, what to try, how far to trust that, and warnings. */

import { element } from "#dom";
import { counted, formatShare, shortNs } from "#format";

/**
 * @param {HTMLElement} place
 * @param {Object} overview the section of that name: `limit`, `limit_evidence`, `advice` (most important first), `verdict`
 * @param {() => void} onOpen opens the view with all of it
 */
export function showAnswer(place, { limit, limit_evidence, advice, verdict }, onOpen) {
  const [first, ...others] = advice;
  const doubtful = first?.doubtful ? ", but doubtful" : "";
  const worth = first?.share ? [element("span", { text: `worth up to ${formatShare(first.share)}${doubtful}` })] : [];
  const text = first ? first.text : "no advice: no rule found anything to change";
  const more = element("button", { type: "button", class: "link", text: others.length ? `${others.length} more` : "why", on: { click: onOpen } });
  place.replaceChildren(
    part(["Limit", ...evidenceTag(limit_evidence)], limit, {}),
    part(["Try"], text, { class: first && first.share === null ? "unjudged" : null, title: first?.reason || text }, first ? [element("div", { class: "answer-more" }, [...worth, more])] : []),
    part(["Trust"], `${verdict.level}: ${verdict.text}`, { data: { level: verdict.level } }),
  );
}

function part(label, text, properties, more = []) {
  return element("div", { class: "answer-part" }, [
    element("dt", {}, label),
    element("dd", { title: text, ...properties }, [element("span", { text })]),
    ...more,
  ]);
}

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

/** @param {import("#data").Launch} launch @returns {string[]} sentences */
export function notices({ meta, scopes }) {
  const said = [];
  const { lost } = scopes.incomplete;
  const records = lost.reduce((sum, count) => sum + count, 0);
  if (records && meta.clock_source === "timer") {
    said.push(`The buffer had no room for the last ${counted(records, "record")}.`);
  } else if (records) {
    said.push(
      `${counted(records, "record")} of ${counted(lost.filter(Boolean).length, "warp")} were overwritten before they ` +
        "could be saved; hatched windows show where. --fit keeps them all.",
    );
  }
  if (meta.clock_source === "nominal") {
    said.push(
      "No timer was read: each SM's first record is taken as the start of the launch, and all times may be off by a " +
        "constant factor.",
    );
  }
  return said;
}

const MEANINGS = {
  computed: "lower bounds, computed from TTGIR and machine code",
  measured: "counted by the hardware while the kernel ran without records",
};

/** @param {string} evidence a `limit_evidence` of page_schema.py @returns {HTMLElement[]} empty if it is unknown */
export function evidenceTag(evidence) {
  return evidence ? [element("span", { class: "evidence", text: evidence, title: MEANINGS[evidence] })] : [];
}
