/** Makes elements. Text always becomes a text node, so nothing that a website wrote is ever read as markup. */

/** @typedef {Node | string | number | null | undefined | false} Child */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element with attributes and children. `on…` attributes are listeners; `true` sets a bare attribute, and `false`,
 * null and undefined none.
 * @param {string} tag `div`, or `div.card.wide` with classes
 * @param {Record<string, any> | null} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(" ");
  dress(element, attributes);
  element.append(...nodes(children));
  return element;
}

/** The same for SVG. @param {string} name @param {Record<string, any>} attributes @param {...(Child | Child[])} children */
export function svg(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  dress(element, attributes);
  element.append(...nodes(children));
  return element;
}

/** @param {Element} element @param {Record<string, any> | null | undefined} attributes */
function dress(element, attributes) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

/** @param {(Child | Child[])[]} children @returns {(Node | string)[]} */
function nodes(children) {
  return /** @type {(Node | string)[]} */ (
    children.flat().filter((one) => one !== null && one !== undefined && one !== false).map((one) => (one instanceof Node ? one : String(one)))
  );
}

/** Puts other children into an element. @param {Element} element @param {...(Child | Child[])} children */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
}

/**
 * Puts what is true now into an element that is shown already. If nothing differs, nothing is touched; what has the
 * focus keeps it, and a text that somebody is just selecting stays.
 * @param {Element} element @param {...(Child | Child[])} children
 */
export function renew(element, ...children) {
  const fresh = document.createElement("div");
  fresh.append(...nodes(children));
  const [old, now] = [[...element.childNodes], [...fresh.childNodes]];
  if (old.length === now.length && old.every((one, at) => one.isEqualNode(now[at]))) return;
  const selection = getSelection();
  if (selection && !selection.isCollapsed && element.contains(selection.anchorNode)) return;
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  element.replaceChildren(...now);
  if (!focused) return;
  const same = [...element.querySelectorAll(FOCUSABLE)].find((one) => nameOf(one) === nameOf(focused));
  /** @type {HTMLElement | undefined} */ (same)?.focus({ preventScroll: true });
}

const FOCUSABLE = "a, button, summary";

/** What tells a link or button from others. @param {Element} element */
const nameOf = (element) => `${element.getAttribute("href")} ${element.getAttribute("aria-label")} ${element.textContent}`;

/** Changes a text only if it differs, so nothing flickers and screen readers stay calm. @param {Element} element @param {string} text */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * A sentence of the server: what stands in backticks is code, and a web address leads to its story.
 * @param {string} text
 * @returns {Node[]}
 */
export function prose(text) {
  return text.split(/(`[^`]+`|https?:\/\/[\w[][^\s"'<>]*)/).filter(Boolean).map((part) => {
    if (part.startsWith("`")) return h("code", null, part.slice(1, -1));
    if (!/^https?:\/\/[\w[]/.test(part)) return document.createTextNode(part);
    const url = part.replace(/[.,;:)]+$/, "");
    const rest = part.slice(url.length);
    return rest ? h("span", null, urlLink(url), rest) : urlLink(url);
  });
}

/** A link to the story of a URL. @param {string} url @param {string} [text] */
export const urlLink = (url, text) => h("a.url", { href: `#/urls?url=${encodeURIComponent(url)}` }, text ?? url);

/** A link to a host's screen. @param {string} host */
export const hostLink = (host) => h("a.host", { href: `#/hosts/${encodeURIComponent(host)}` }, host);

/** A word with the colour of an outcome. The word says it too. @param {string} tone @param {Child} text */
export const tag = (tone, text) => h(`span.tag.${tone}`, null, text);

/**
 * A table. Columns may be numbers (`n`), or hidden on phones (`wide`). Of a row, only cells that have a column are shown.
 * @param {string} label what the table is, for screen readers
 * @param {{title: string, kind?: string}[]} columns
 * @param {Child[][]} rows
 */
export function table(label, columns, rows) {
  const classes = columns.map((one) => (one.kind ? `.${one.kind.replace(/ /g, ".")}` : ""));
  const head = h("tr", null, columns.map((one, at) => h(`th${classes[at]}`, { scope: "col" }, one.title)));
  const body = rows.map((row) => h("tr", null, classes.map((kind, at) => h(`td${kind}`, null, row[at]))));
  return h("table", { "aria-label": label }, h("thead", null, head), h("tbody", null, body));
}

/** A card with a heading and something at its right. @param {string} title @param {Child} aside @param {...(Child | Child[])} children */
export const card = (title, aside, ...children) =>
  h("section.card", null, h("div.head", null, h("h2", null, title), aside), ...children);

/** What stands where there is nothing to show. @param {string} title @param {Child | Child[]} text */
export const empty = (title, text) => h("div.empty", null, h("p.lead", null, title), h("p", null, text));
