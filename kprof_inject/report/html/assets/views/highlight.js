/** Code in colours: a line as parts of one class each. Only as much is understood of a language as that takes. */

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
