/** Warnings to read before trusting the picture of a launch. */

import { counted } from "#format";

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
