/** Finds text in lines that are not all on the page, where the browser's own search cannot. */

import { element } from "#dom";

/** The next line with the text, from `from` on in one direction and round the end; -1 if there is none. */
export function findLine(lines, text, from, step) {
  const wanted = text.toLowerCase();
  const count = lines.length;
  for (let turn = 1; turn <= count; turn++) {
    const line = (((from + step * turn) % count) + count) % count;
    if (lines[line].toLowerCase().includes(wanted)) return line;
  }
  return -1;
}

/**
 * @param {() => string[]} linesOf
 * @param {(line: number) => void} onFound
 */
export function findBox(linesOf, onFound) {
  let at = -1;
  const said = element("span", { class: "view-hint", role: "status" });
  const find = (step) => {
    if (!input.value) return;
    const lines = linesOf();
    const found = findLine(lines, input.value, at, step);
    const count = lines.filter((line) => line.toLowerCase().includes(input.value.toLowerCase())).length;
    said.textContent = found < 0 ? "not found" : `${count} ${count === 1 ? "line" : "lines"}`;
    if (found < 0) return;
    at = found;
    onFound(found);
  };
  const input = element("input", {
    type: "search",
    placeholder: "Find",
    "aria-label": "Find in the text",
    on: {
      keydown: (event) => {
        // The page's own keys are not for what is typed here.
        event.stopPropagation();
        if (event.key === "Enter") find(event.shiftKey ? -1 : 1);
      },
      input: () => {
        at = -1;
        said.textContent = "";
      },
    },
  });
  return element("span", { class: "find-box" }, [input, said]);
}
