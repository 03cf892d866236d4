/** Elements, announcements and movement. Texts are only ever set as text. */

/** @type {<T extends HTMLElement = HTMLElement>(id: string) => T} */
export const byId = (id) => /** @type {any} */ (document.getElementById(id));

/** @typedef {string | number | Node | null | undefined | false} Child */

/**
 * An element with properties and children; a text child becomes a text node.
 * @param {string} name tag, with classes after dots: "p.soft"
 * @param {Record<string, any> | null} [properties] `on…` are listeners, `aria-…`, `data-…` and `role` attributes
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function h(name, properties, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  set(element, properties ?? {});
  add(element, children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * An SVG element; all properties are attributes.
 * @param {string} name
 * @param {Record<string, string | number>} [attributes]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function svg(name, attributes, ...children) {
  const element = /** @type {SVGElement} */ (document.createElementNS(SVG, name));
  for (const [key, value] of Object.entries(attributes ?? {})) element.setAttribute(key, String(value));
  add(element, children);
  return element;
}

/** @param {HTMLElement} element @param {Record<string, any>} properties */
function set(element, properties) {
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (/^(aria-|data-|role$|for$|scope$|colspan$)/.test(key)) element.setAttribute(key, String(value));
    else /** @type {any} */ (element)[key] = value;
  }
}

/** @param {Element} element @param {Child[]} children */
function add(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Replaces what an element holds. @param {Element} element @param {...Child} children */
export function fill(element, ...children) {
  element.replaceChildren();
  add(element, children);
}

/** @param {Element} element @param {boolean} shown */
export const show = (element, shown) => element.toggleAttribute("hidden", !shown);

/** Tells screen readers. @param {string} text */
export function announce(text) {
  byId("status").textContent = text;
}

const still = matchMedia("(prefers-reduced-motion: reduce)");
const MOST_MOVING = 200;

/**
 * Runs a change and lets the children of a list glide from their old places to the new ones.
 * @param {HTMLElement} list
 * @param {() => void} change
 * @param {Element} [except] a child that something else moves
 */
export function glide(list, change, except) {
  const before = new Map();
  const moving = !still.matches && list.children.length <= MOST_MOVING && !list.closest("[hidden]");
  if (moving) for (const child of list.children) before.set(child, child.getBoundingClientRect().top);
  change();
  if (!moving) return;
  for (const child of list.children) {
    const old = before.get(child);
    if (old === undefined || child === except) continue;
    const by = old - child.getBoundingClientRect().top;
    if (Math.abs(by) > 1) {
      child.animate([{ transform: `translateY(${by}px)` }, { transform: "none" }], { duration: 420, easing: "cubic-bezier(.2,.8,.2,1)" });
    }
  }
}

/** Calls a function once calls have paused. @template {any[]} A @param {(...given: A) => void} call @param {number} wait */
export function debounced(call, wait) {
  let timer = 0;
  /** @param {A} given */
  return (...given) => {
    clearTimeout(timer);
    timer = window.setTimeout(() => call(...given), wait);
  };
}

/** A number with a sign that lines up. @param {number} value @param {number} [digits] */
export const signed = (value, digits = 2) => {
  const text = Math.abs(value).toFixed(digits);
  return (Number(text) === 0 ? "" : value < 0 ? "−" : "+") + text;
};

/** With a capital letter. @param {string} text */
export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
