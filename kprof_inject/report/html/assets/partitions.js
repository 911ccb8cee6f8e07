/** The partitions of a warp-specialised kernel in lists of scopes. */

import { element } from "#dom";

/**
 * Returns the items of the scopes, with each partition's title above those of its scopes.
 * @param {HTMLElement[]} items one for each scope
 * @param {{title: string, scopes: number[]}[]} partitions none unless the kernel is warp specialised
 */
export function inPartitions(items, partitions) {
  if (!partitions.length) return items;
  return partitions.flatMap(({ title, scopes }) => [
    element("h3", { class: "partition-title", text: title }),
    ...scopes.map((index) => items[index]),
  ]);
}
