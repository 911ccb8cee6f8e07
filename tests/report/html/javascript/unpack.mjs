/** Prints as JSON what the page's own module reads out of a page: `node unpack.mjs PAGE`. */

import { readFile } from "node:fs/promises";
import { load } from "./launches.mjs";

const { launchReader, readReport } = await load("data");

const page = await readFile(process.argv[2], "utf8");
const textOf = (id) => new RegExp(`<script type="[^"]*" id="${id}">([^<]*)</script>`).exec(page)[1];

const report = await readReport(textOf);
const read = launchReader(report, textOf);
const launches = [];
for (const index of report.launches.keys()) {
  const { scopes: all, ...launch } = await read(index);
  const { ctas, incomplete, ...scopes } = all;
  launches.push({ ...launch, scopes, ctas, incomplete });
}
process.stdout.write(JSON.stringify({ report, launches }, (_, value) => (ArrayBuffer.isView(value) ? [...value] : value)));
