/** Texts of any length in colours, of which only the rows in sight exist, and a search in them. */

import { element } from "#dom";

const PYTHON = [
  ["comment", /#.*/y],
  ["string", /[rbuf]{0,2}(?:"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)/iy],
  ["decorator", /@[\w.]+/y],
  ["keyword", /\b(?:and|as|assert|async|await|break|class|continue|def|del|elif|else|except|False|finally|for|from|global|if|import|in|is|lambda|None|nonlocal|not|or|pass|raise|return|True|try|while|with|yield)\b/y],
  ["number", /\b\d[\w.]*/y],
  ["call", /\w+(?=\()/y],
  [null, /\w+|\s+|./y],
];
export const TTGIR = [
  ["comment", /\/\/.*/y],
  ["string", /"(?:[^"\\]|\\.)*"?/y],
  ["value", /%[\w.$#:-]+/y],
  ["attribute", /#[\w.]+/y],
  ["symbol", /@[\w.$-]+/y],
  ["call", /\b[a-z_]\w*\.[\w.]+/y],
  ["type", /!?\b(?:tensor|ttg?\.\w+|i\d+|u?f\d+\w*|bf16|index)\b/y],
  ["number", /\b\d[\w.+]*/y],
  [null, /\w+|\s+|./y],
];
const TRIPLE = /"""|'''/;
// A longer line is nothing that is read.
const LONGEST = 2000;

/** @returns {[string | null, string][]} class and text of each part; together they are the line */
export function partsOf(line, rules) {
  if (line.length > LONGEST) return [[null, line]];
  const parts = [];
  for (let at = 0; at < line.length; ) {
    const [name, text] = nextPart(line, at, rules);
    at += text.length;
    const last = parts.at(-1);
    if (last && last[0] === name) last[1] += text;
    else parts.push([name, text]);
  }
  return parts;
}

function nextPart(line, at, rules) {
  for (const [name, pattern] of rules) {
    pattern.lastIndex = at;
    const found = pattern.exec(line);
    if (found?.[0]) return [name, found[0]];
  }
  return [null, line.slice(at)];
}

/** Parts of all lines of a Python text, strings over several lines too. */
export function pythonParts(lines) {
  let open = "";
  return lines.map((line) => {
    const parts = [];
    let rest = line;
    while (rest) {
      const at = open ? rest.indexOf(open) : tripleAt(rest);
      if (open) {
        const end = at < 0 ? rest.length : at + open.length;
        parts.push(["string", rest.slice(0, end)]);
        if (at >= 0) open = "";
        rest = rest.slice(end);
      } else if (at < 0) {
        parts.push(...partsOf(rest, PYTHON));
        rest = "";
      } else {
        parts.push(...partsOf(rest.slice(0, at), PYTHON), ["string", rest.slice(at, at + 3)]);
        open = rest.slice(at, at + 3);
        rest = rest.slice(at + 3);
      }
    }
    return parts;
  });
}

/** Where the first string of three quotes begins, -1 if none does: one in a comment, or in another string, is none. */
function tripleAt(line) {
  const found = TRIPLE.exec(line);
  if (!found) return -1;
  let at = 0;
  for (const [name, text] of partsOf(line, PYTHON)) {
    const within = TRIPLE.exec(text);
    if (within && name === "string") return at + within.index;
    at += text.length;
  }
  return -1;
}

/** @param {[string | null, string][]} parts @returns {(Node | string)[]} */
export function codeNodes(parts) {
  return parts.map(([name, text]) => (name ? element("span", { class: `code-${name}`, text }) : text));
}

const ROW_HEIGHT = 20;
const BEYOND = 12;

export class LineList {
  #rows = new Map();
  #sizer = element("div", { class: "line-sizer" });
  #render;
  #count = 0;
  #current = -1;
  #isAsked = false;

  /** @param {(row: number) => HTMLElement} render makes a row */
  constructor(render, label) {
    this.#render = render;
    this.element = element("div", { class: "line-list", tabindex: "0", role: "region", "aria-label": label }, [this.#sizer]);
    this.element.addEventListener("scroll", () => this.#ask(), { passive: true });
    new ResizeObserver(() => this.#ask()).observe(this.element);
  }

  /** Shows another text: `count` rows, of which the longest has `width` characters. */
  setRows(count, width) {
    this.#count = count;
    this.#current = -1;
    this.#sizer.style.height = `${count * ROW_HEIGHT}px`;
    this.#sizer.style.setProperty("--characters", String(width));
    this.refresh();
  }

  /** Makes all rows in sight anew. */
  refresh() {
    for (const made of this.#rows.values()) made.remove();
    this.#rows.clear();
    this.#fill();
  }

  /** The row that is marked, or -1. */
  get current() {
    return this.#current;
  }

  /** Marks a row, and brings it into sight, with some room above. */
  goTo(row) {
    this.mark(row);
    const { scrollTop, clientHeight } = this.element;
    const top = row * ROW_HEIGHT;
    if (top < scrollTop + ROW_HEIGHT || top > scrollTop + clientHeight - 2 * ROW_HEIGHT) {
      this.element.scrollTop = Math.max(top - clientHeight / 3, 0);
    }
    this.#fill();
  }

  mark(row) {
    this.#rows.get(this.#current)?.classList.remove("current");
    this.#current = row;
    this.#rows.get(row)?.classList.add("current");
  }

  #ask() {
    if (this.#isAsked) return;
    this.#isAsked = true;
    requestAnimationFrame(() => {
      this.#isAsked = false;
      this.#fill();
    });
  }

  #fill() {
    const { scrollTop, clientHeight } = this.element;
    // The visible rows, and some around them.
    const inText = (row) => Math.min(Math.max(row, 0), this.#count);
    const first = inText(Math.floor(scrollTop / ROW_HEIGHT) - BEYOND);
    const after = inText(Math.ceil((scrollTop + clientHeight) / ROW_HEIGHT) + BEYOND);
    for (const [row, made] of this.#rows) {
      if (row >= first && row < after) continue;
      made.remove();
      this.#rows.delete(row);
    }
    for (let row = first; row < after; row++) {
      if (this.#rows.has(row)) continue;
      const made = this.#render(row);
      made.style.top = `${row * ROW_HEIGHT}px`;
      made.classList.toggle("current", row === this.#current);
      this.#rows.set(row, made);
      this.#sizer.append(made);
    }
  }
}

/** The next line with the text, from `from` on in one direction and round the end; -1 if there is none. */
function findLine(lines, text, from, step) {
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
