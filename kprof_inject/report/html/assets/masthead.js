/** Above every view: which launch is shown, what limits it, what to try, how far to trust that, and warnings. */

import { element, link } from "#dom";
import { counted, shortNs } from "#format";

/**
 * @param {HTMLElement} place
 * @param {Object} meta of the launch
 * @param {() => void} onOpen opens the view with all of it
 */
export function showAnswer(place, { limit, advice, trust }, onOpen) {
  const [first, ...others] = advice;
  const worth = first?.worth ? [element("span", { text: first.worth })] : [];
  const text = first ? first.text : "no advice: no rule found anything to change";
  const more = link(others.length ? `${others.length} more` : "why", onOpen);
  place.replaceChildren(
    part(["Limit", ...evidenceTag(limit)], limit.answer, {}),
    part(["Try"], text, { class: first && first.share === null ? "unjudged" : null, title: first?.reason || text }, first ? [element("div", { class: "answer-more" }, [...worth, more])] : []),
    part(["Trust"], `${trust.level}: ${trust.text}`, { data: { level: trust.level } }),
  );
}

function part(label, text, properties, more = []) {
  return element("div", { class: "answer-part" }, [
    element("dt", {}, label),
    element("dd", { title: text, ...properties }, [element("span", { text })]),
    ...more,
  ]);
}

const SPAN = "from the first CTA's begin to the end of the last one's work, with records";

/** @param {HTMLElement} place @param {Object} meta of the launch */
export function showTitle(place, meta) {
  const clock = `${["assumed", "nominal"].includes(meta.clock_source) ? "assumed " : ""}SM clock ${Math.round(meta.clock_mhz)} MHz`;
  const facts = [
    [meta.place_name],
    [`grid ${meta.grid.join("×")}`],
    [counted(meta.warps, meta.warp_name)],
    [meta.run_times_text],
    [`span ${shortNs(meta.ctas ? meta.duration_ns : null)}`, SPAN],
    // Another profiler's records are times of the globaltimer, and no SM's clock is known.
    [meta.clock_source === "timer" ? "globaltimer" : clock],
    [meta.device_name],
  ].filter(([text]) => text);
  place.replaceChildren(
    element("h1", { text: meta.title, title: meta.title }),
    ...facts.map(([text, title]) => element("span", { class: "fact", text, title })),
  );
}

/**
 * @param {HTMLElement} place
 * @param {Object[]} launches each a `LaunchRow` of facts.py, with its kernel's title and its place
 * @param {number} chosen
 * @param {(index: number) => void} onChoice
 */
export function fillChooser(place, launches, chosen, onChoice) {
  place.replaceChildren();
  if (launches.length < 2) return;
  const options = launches.map((launch, index) => element("option", { value: index, selected: index === chosen, text: launchName(launch) }));
  const list = element("select", { id: "launch", on: { change: () => onChoice(Number(list.value)) } }, options);
  place.append(element("label", { for: "launch", text: "Launch" }), list);
}

function launchName({ title, place_name: placeName, launch, graph, grid, duration_ns: ns }) {
  const replay = graph ? ", last replay of a CUDA graph" : "";
  return `${placeName && `${placeName}: `}${title}, launch ${launch}${replay}: grid ${grid.join("×")}, span ${shortNs(ns || null)}`;
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

/** @param {Object} limit a `Limit` of the analysis @returns {HTMLElement[]} empty if it is unknown */
export function evidenceTag({ is_known: isKnown, evidence }) {
  return isKnown ? [element("span", { class: "evidence", text: evidence, title: MEANINGS[evidence] })] : [];
}
