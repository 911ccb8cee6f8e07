/** The answer, above every view: what limits the launch, what to try, and how far to trust it. */

import { element } from "#dom";
import { evidenceTag } from "#evidence";
import { formatShare } from "#format";

/**
 * @param {HTMLElement} place
 * @param {Object} overview the section of that name: `limit`, `limit_evidence`, `advice` (most important first), `verdict`
 * @param {() => void} onOpen opens the view with all of it
 */
export function showAnswer(place, { limit, limit_evidence, advice, verdict }, onOpen) {
  const [first, ...others] = advice;
  const doubtful = first?.doubtful ? ", but doubtful" : "";
  const worth = first?.share ? [element("span", { text: `worth up to ${formatShare(first.share)}${doubtful}` })] : [];
  const text = first ? first.text : "no advice: no rule found anything to change";
  const more = element("button", { type: "button", class: "link", text: others.length ? `${others.length} more` : "why", on: { click: onOpen } });
  place.replaceChildren(
    part(["Limit", ...evidenceTag(limit_evidence)], limit, {}),
    part(["Try"], text, { class: first && first.share === null ? "unjudged" : null, title: first?.reason || text }, first ? [element("div", { class: "answer-more" }, [...worth, more])] : []),
    part(["Trust"], `${verdict.level}: ${verdict.text}`, { data: { level: verdict.level } }),
  );
}

function part(label, text, properties, more = []) {
  return element("div", { class: "answer-part" }, [
    element("dt", {}, label),
    element("dd", { title: text, ...properties }, [element("span", { text })]),
    ...more,
  ]);
}
