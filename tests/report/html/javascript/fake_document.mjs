/** As much of a document as the views need to make their elements in Node. */

class FakeElement {
  constructor(tag) {
    this.tag = tag;
    this.className = "";
    this.children = [];
    this.attributes = {};
    this.dataset = {};
    this.style = { setProperty: (name, value) => (this.style[name] = value) };
    this.classList = { add: (name) => (this.className = `${this.className} ${name}`.trim()) };
    this.listeners = {};
  }

  setAttribute(name, value) {
    this.attributes[name] = value;
  }

  set title(text) {
    this.attributes.title = text;
  }

  append(...nodes) {
    this.children.push(...nodes);
  }

  addEventListener(event, listener) {
    this.listeners[event] = listener;
  }

  set textContent(text) {
    this.children = [text];
  }

  get textContent() {
    return this.children.map((child) => (typeof child === "string" ? child : child.textContent)).join("");
  }
}

globalThis.document = { createElement: (tag) => new FakeElement(tag), getElementById: () => null };

/** All elements of a class in a tree, in the order of the page. */
export function ofClass(root, name) {
  const mine = root.className.split(" ").includes(name) ? [root] : [];
  return [...mine, ...root.children.filter((child) => typeof child !== "string").flatMap((child) => ofClass(child, name))];
}

/** All elements with a tag in a tree. */
export function ofTag(root, tag) {
  const mine = root.tag === tag ? [root] : [];
  return [...mine, ...root.children.filter((child) => typeof child !== "string").flatMap((child) => ofTag(child, tag))];
}
