/** Prints as JSON what the page's own modules read out of a page: `node unpack.mjs PAGE`. */

import { readFile } from "node:fs/promises";
import { load } from "./launches.mjs";

const { fromBase64, inflate } = await load("codec");
const { readFlights } = await load("flights");
const { readScopes } = await load("scopes");

const page = await readFile(process.argv[2], "utf8");
const textOf = (id) => new RegExp(`<script type="[^"]*" id="${id}">([^<]*)</script>`).exec(page)[1];
const bytesOf = (id) => inflate(fromBase64(textOf(id)));
const plain = (value) => (ArrayBuffer.isView(value) ? [...value] : Array.isArray(value) ? value.map(plain) : value);
const plainColumns = (columns) =>
  Object.fromEntries(Object.entries(columns).map(([name, value]) => [name, plain(value)]));

const report = JSON.parse(textOf("report"));
const launches = [];
for (const [index, meta] of report.launches.entries()) {
  const { ctas, incomplete, ...scopes } = readScopes(await bytesOf(`launch-${index}-scopes`), meta);
  const sections = JSON.parse(new TextDecoder().decode(await bytesOf(`launch-${index}-sections`)));
  const flights = readFlights(meta.flight_works.length ? await bytesOf(`launch-${index}-flights`) : null);
  launches.push({
    meta,
    sections,
    scopes: plainColumns(scopes),
    ctas: plainColumns(ctas),
    incomplete: plainColumns(incomplete),
    flights: plainColumns(flights),
  });
}
process.stdout.write(JSON.stringify(launches));
