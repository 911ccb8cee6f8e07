/** The page's data: launches, whose scopes and sections are unpacked when first shown. */

import { fromBase64, inflate } from "#codec";
import { readFlights } from "#flights";
import { readScopes } from "#scopes";

/**
 * @typedef {Object} Launch
 * @property {Object} meta a `LaunchMeta` of page_schema.py
 * @property {Object<string, Object>} sections what the views show, by name
 * @property {import("#scopes").Scopes} scopes
 * @property {import("#flights").Flights} flights
 */

export function readReport() {
  return JSON.parse(document.getElementById("report").textContent);
}

/** @returns {(index: number) => Promise<Launch>} the same launch each time; only the last one stays in memory */
export function launchReader(report) {
  let opened = { index: -1, launch: null };
  return (index) => {
    if (opened.index !== index) opened = { index, launch: readLaunch(report.launches[index], index) };
    return opened.launch;
  };
}

async function readLaunch(meta, index) {
  const [sections, scopes, flights] = await Promise.all([
    unpacked(`launch-${index}-sections`),
    unpacked(`launch-${index}-scopes`),
    meta.flight_works.length ? unpacked(`launch-${index}-flights`) : null,
  ]);
  return {
    meta,
    sections: JSON.parse(new TextDecoder().decode(sections)),
    scopes: readScopes(scopes, meta),
    flights: readFlights(flights),
  };
}

async function unpacked(id) {
  return inflate(fromBase64(document.getElementById(id).textContent));
}
