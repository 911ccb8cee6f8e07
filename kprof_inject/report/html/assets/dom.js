/** Elements, made without any HTML text: what a kernel is called can never become markup. */

/**
 * @param {string} tag
 * @param {Object<string, unknown>} [properties] `class`, `text`, `on` ({event: listener}), `data` ({name: value}),
 *     attributes (those that are null or false are left out).
 * @param {(Node | string)[]} [children]
 * @returns {HTMLElement}
 */
export function element(tag, properties = {}, children = []) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name === "text") made.textContent = printable(String(value));
    else if (name === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else if (name === "data") Object.assign(made.dataset, value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.map((child) => (typeof child === "string" ? printable(child) : child)));
  return made;
}

/** A space for each control character and mark of writing direction: those would reorder the text around them. */
export function printable(text) {
  return text.replace(/[\p{Cc}\p{Cs}\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/gu, " ");
}

/** A button that looks like a link. */
export function link(text, onClick, properties = {}) {
  return element("button", { type: "button", class: "link", text, ...properties, on: { click: onClick } });
}

/** The mark of a colour before a name. */
export function chip(color) {
  const made = element("span", { class: "scope-chip" });
  made.style.background = color;
  return made;
}

/** A bar as wide as a share of its place. */
export function shareBar(kind, share, color = "") {
  const made = element("span", { class: kind });
  made.style.width = `${100 * Math.min(Math.max(share, 0), 1)}%`;
  made.style.background = color;
  return made;
}

/** A bar for a total, and the part of it that is its own in the full colour. */
export function totalBar(share, self, color = "") {
  const total = shareBar("bar-total", share);
  if (color) total.style.setProperty("--color", color);
  total.append(shareBar("bar-self", self, color));
  return element("span", { class: "bar-track" }, [total]);
}

/** @param {[string, string][]} facts labels and values */
export function factList(facts) {
  return element("dl", { class: "fact-list" }, facts.flatMap(([label, text]) => [element("dt", { text: label }), element("dd", { text })]));
}

/** @param {string[][]} heads text, hint and class of each @param {HTMLElement[][]} bodies each with its rows */
export function tableOf(kind, heads, ...bodies) {
  const cells = heads.map(([text, title, type]) => element("th", { text, title: title || null, class: type, scope: "col" }));
  return element("table", { class: kind }, [element("thead", {}, [element("tr", {}, cells)]), ...bodies.map((rows) => element("tbody", {}, rows))]);
}

/** Room in which a wide table scrolls. */
export function tableRoom(table) {
  return element("div", { class: "table-room" }, [table]);
}

const GAP = 14;

/** @returns {{show: (event: MouseEvent, lines: (string | Node)[]) => void, hide: () => void}} */
export function tooltipIn(place) {
  const box = element("div", { class: "view-tooltip", hidden: true });
  place.append(box);
  return {
    show: (event, lines) => {
      box.replaceChildren(...lines.map((line) => (typeof line === "string" ? element("div", { text: line }) : line)));
      box.hidden = false;
      const { width, height } = box.getBoundingClientRect();
      const x = event.clientX + GAP + width > innerWidth ? event.clientX - GAP - width : event.clientX + GAP;
      const y = event.clientY + GAP + height > innerHeight ? event.clientY - GAP - height : event.clientY + GAP;
      box.style.left = `${Math.max(x, 0)}px`;
      box.style.top = `${Math.max(y, 0)}px`;
    },
    hide: () => {
      box.hidden = true;
    },
  };
}
