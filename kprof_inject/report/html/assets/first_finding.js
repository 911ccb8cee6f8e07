/** What limits a launch the most, over every view: whoever opens the page has the answer before anything else. */

import { element } from "#dom";
import { formatShare } from "#format";

/**
 * @param {HTMLElement} place hidden if nothing was found
 * @param {{share: number, text: string}[]} findings largest first
 * @param {() => void} onOpen where all of them stand
 */
export function showFirstFinding(place, findings, onOpen) {
  place.hidden = !findings.length;
  if (!findings.length) return;
  const [{ share, text }, ...others] = findings;
  place.replaceChildren(
    element("strong", { text: formatShare(share) }),
    element("span", { text }),
    element("button", {
      type: "button",
      class: "link",
      text: others.length ? `and ${others.length} more` : "what to do",
      on: { click: onOpen },
    }),
  );
}
