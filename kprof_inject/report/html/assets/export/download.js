/** Files for the reader, made in the browser: nothing is sent. */

import { element } from "#dom";

const KEEP_URL_MS = 60_000;
const MAX_NAME = 80;

/** @param {Blob} blob @param {string} name of the file */
export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), KEEP_URL_MS);
}

/** `matmul-launch-29-timeline.csv`: names in a capture may have any characters. */
export function fileName({ kernel, launch }, what, extension) {
  const plain = kernel.replace(/[^\w.-]+/g, "_").slice(0, MAX_NAME);
  return `${plain}-launch-${launch}-${what}.${extension}`;
}
