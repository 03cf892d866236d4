/** The card that asks "which is more …?" and lists what was said. */

import { byId, fill, h, sentence, show } from "./dom.js";

/** @typedef {import("./types.js").Label} Label */
/** @typedef {import("./types.js").Said} Said */
/** @typedef {import("./types.js").Question} Question */

/**
 * @typedef {{
 *   labels: Label[], question: Question | undefined, busy: boolean, rightPairs: number | null, enough: boolean,
 *   ask: () => void, askMore: () => void, answer: (kind: Said["kind"], items: [string, string]) => void, remove: (label: Label) => void
 * }} Teaching
 */

/** Whether the focus was in the card when its buttons were replaced. */
let held = false;

/** @param {Teaching | null} teaching null hides the card */
export function showTeach(teaching) {
  const card = byId("teach");
  show(card, teaching !== null);
  if (!teaching) return;
  held ||= card.contains(document.activeElement);
  fill(card, ask(teaching), said(teaching));
  card.setAttribute("aria-busy", String(teaching.busy));
  card.onkeydown = keyed;
  if (!held || teaching.busy) return; // buttons that are disabled take no focus
  held = false;
  if (document.activeElement === document.body) /** @type {HTMLElement | null} */ (card.querySelector("button"))?.focus();
}

/** @param {Teaching} teaching */
function ask({ question, busy, rightPairs, enough, ask, askMore, answer }) {
  if (question === undefined) {
    return h("p.invite", null,
      "Does the order look wrong? Drag an item to where it belongs, or ",
      h("button.link", { type: "button", disabled: busy, onclick: ask }, "answer a few questions"), ".");
  }
  const sure = rightPairs === null ? "" : `about ${Math.round(100 * rightPairs)} % of all pairs are likely in the right order.`;
  if (question === null) return h("p.invite", null, "No question is left: every pair has an answer, or follows from others.");
  if (enough) return h("p.invite", null, `Good enough: ${sure} `, h("button.link", { type: "button", disabled: busy, onclick: askMore }, "Ask more"));
  const [first, second] = question.items;
  /** @param {[string, string]} items the higher one first @param {string} number */
  const choice = (items, number) =>
    h("button.option", { type: "button", disabled: busy, dir: "auto", onclick: () => answer("pair", items), "aria-keyshortcuts": number },
      h("kbd", { "aria-hidden": "true" }, number), h("span", null, items[0]));
  /** @param {"equal" | "unknown"} kind @param {string} key @param {string} words */
  const other = (kind, key, words) =>
    h("button.link", { type: "button", disabled: busy, onclick: () => answer(kind, question.items), "aria-keyshortcuts": key }, words);
  return h("div.question", { role: "group", "aria-labelledby": "question" },
    h("p", { id: "question" }, question.question),
    choice([first, second], "1"), choice([second, first], "2"),
    h("div.others", null, other("equal", "=", "About equal"), " ", other("unknown", "d", "Don’t know")),
    sure && h("div.others.soft.small", { id: "sure" }, sentence(sure)));
}

/** The keys of the answers, in the order of their buttons; they count while the focus is in the card, as after a click on any part of it.
 * @param {KeyboardEvent} event */
function keyed(event) {
  const place = ["1", "2", "=", "d"].indexOf(event.key);
  if (place < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
  const button = /** @type {HTMLElement[]} */ ([...byId("teach").querySelectorAll(".question button")])[place];
  if (!button) return;
  event.preventDefault();
  button.click();
}

/** @param {Teaching} teaching */
function said({ labels, remove, busy }) {
  if (!labels.length) return null;
  return h("details.said", { open: true },
    h("summary", null, `What you said (${labels.length})`),
    h("ul", null, ...labels.map((label) => {
      const words = wording(label);
      return h("li", { dir: "auto" }, words, " ",
        h("button.icon", { type: "button", disabled: busy, "aria-label": `Take back: ${words}`, title: "Take back", onclick: () => remove(label) }, "×"));
    })));
}

/** @param {Label} label */
function wording(label) {
  if (label.kind === "move") return [label.above, label.item, label.below].filter(Boolean).map(clip).join(" > ");
  const [one, other] = label.items.map(clip);
  if (label.kind === "unknown") return `${one} ? ${other}`;
  return `${one} ${label.kind === "equal" ? "=" : ">"} ${other}`;
}

/** @param {string} text */
const clip = (text) => (text.length > 40 ? `${text.slice(0, 38)}…` : text);
