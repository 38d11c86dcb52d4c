// Elements out of data. All data becomes text: nothing here parses HTML, and an attribute that is not known is refused.

const SVG = "http://www.w3.org/2000/svg";
const KNOWN = new Set(
  (
    "class id title role tabindex type scope href target rel hidden open disabled colspan datetime " +
    "viewBox width height x y x1 x2 y1 y2 cx cy r rx d clip-path text-anchor"
  ).split(" "),
);
const LONGEST_TITLE = 2000;
// Marks that turn the direction of what follows, and controls without a glyph. They are shown, not obeyed: a name cannot pose as another.
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Text as people can read it: what has no glyph is named. @param {unknown} value @returns {string} */
export function readable(value) {
  return String(value ?? "").replace(UNSEEN, (mark) => `⟨U+${mark.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** @param {string} name */
function known(name) {
  if (!KNOWN.has(name) && !/^(aria|data)-[a-z-]+$/.test(name)) throw new Error(`no attribute of this page: ${name}`);
}

/** @param {Element} node @param {Record<string, unknown>} attributes null, undefined and false remove one */
export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    known(name);
    if (value === null || value === undefined || value === false) node.removeAttribute(name);
    else if (name === "href" && !/^(https?:\/\/|#\/)/i.test(String(value))) throw new Error("a link leads to the web or to a view");
    else node.setAttribute(name, value === true ? "" : readable(value).slice(0, LONGEST_TITLE));
  }
  return node;
}

/**
 * @template {Node} N
 * @param {N} node
 * @param {unknown[]} children nodes, text, lists of them; null and false are left out
 * @returns {N}
 */
export function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.appendChild(child instanceof Node ? child : document.createTextNode(readable(child)));
  }
  return node;
}

/** An HTML element. @param {string} tag @param {Record<string, unknown>} [attributes] @param {...unknown} children */
export function el(tag, attributes = {}, ...children) {
  return /** @type {HTMLElement} */ (append(set(document.createElement(tag), attributes), children));
}

/** An SVG element. @param {string} tag @param {Record<string, unknown>} [attributes] @param {...unknown} children */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    known(name);
    node.setAttribute(name, String(value)); // a path may be longer than a title
  }
  return append(node, children);
}

/** Put text into a node if it differs, so that what has not changed is not painted again. @param {Node} node @param {unknown} text */
export function setText(node, text) {
  const wanted = readable(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/** A link to another page, if it is one of the web; else its text. @param {string} url @param {...unknown} children */
export function outside(url, ...children) {
  if (!/^https?:\/\//i.test(url)) return el("span", {}, ...children);
  return el("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, ...children);
}
