/** What a launch's limit was determined from, next to the limit. */

import { element } from "#dom";

const MEANINGS = {
  computed: "lower bounds, computed from TTGIR and machine code",
  measured: "counted by the hardware while the kernel ran without records",
};

/** @param {string} evidence a `limit_evidence` of page_schema.py @returns {HTMLElement[]} empty if it is unknown */
export function evidenceTag(evidence) {
  return evidence ? [element("span", { class: "evidence", text: evidence, title: MEANINGS[evidence] })] : [];
}
