/** The card that asks "which is more …?" and lists what was said. */

import { byId, fill, h, show } from "./dom.js";
import { groups } from "./labels.js";

/** @typedef {import("./types.js").Label} Label */
/** @typedef {import("./types.js").Question} Question */

/**
 * @typedef {{
 *   labels: Label[], question: Question | undefined, busy: boolean,
 *   ask: () => void, answer: (higher: string, lower: string) => void, skip: () => void, remove: (labels: Label[]) => void
 * }} Teaching
 */

/** @param {Teaching | null} teaching null hides the card */
export function showTeach(teaching) {
  const card = byId("teach");
  show(card, teaching !== null);
  if (!teaching) return;
  const hadFocus = card.contains(document.activeElement);
  fill(card, ask(teaching), said(teaching));
  card.setAttribute("aria-busy", String(teaching.busy));
  if (hadFocus && !teaching.busy) /** @type {HTMLElement | null} */ (card.querySelector("button"))?.focus();
}

/** @param {Teaching} teaching */
function ask({ question, busy, ask, answer, skip }) {
  if (question === undefined) {
    return h("p.invite", null,
      "Does the order look wrong? Drag an item to where it belongs, or ",
      h("button.link", { type: "button", disabled: busy, onclick: ask }, "answer a few questions"), ".");
  }
  if (question === null) return h("p.invite", null, "There is nothing more to ask about these items.");
  const [first, second] = question.items;
  /** @param {string} item @param {string} other @param {string} number */
  const choice = (item, other, number) =>
    h("button.option", { type: "button", disabled: busy, dir: "auto", onclick: () => answer(item, other), "aria-keyshortcuts": number },
      h("kbd", { "aria-hidden": "true" }, number), h("span", null, item));
  return h("div.question", { role: "group", "aria-labelledby": "question", onkeydown: keyed },
    h("p", { id: "question" }, question.question),
    choice(first, second, "1"), choice(second, first, "2"),
    h("button.link", { type: "button", disabled: busy, onclick: skip, "aria-keyshortcuts": "s" }, "Can’t say"));
}

/** 1, 2 and s answer while the focus is in the card. @param {KeyboardEvent} event */
function keyed(event) {
  const place = ["1", "2", "s"].indexOf(event.key);
  if (place < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const buttons = /** @type {HTMLElement} */ (event.currentTarget).querySelectorAll("button");
  buttons[place]?.click();
}

/** @param {Teaching} teaching */
function said({ labels, remove, busy }) {
  if (!labels.length) return null;
  const found = groups(labels);
  return h("details.said", { open: true },
    h("summary", null, `What you said (${found.length})`),
    h("ul", null, ...found.map((group) => {
      const words = wording(group);
      return h("li", { dir: "auto" }, words, " ",
        h("button.icon", { type: "button", disabled: busy, "aria-label": `Take back: ${words}`, title: "Take back", onclick: () => remove(group) }, "×"));
    })));
}

/** @param {Label[]} group */
function wording(group) {
  const [{ source, about, higher, lower }] = group;
  if (source === "question" || group.length === 1) return `${clip(higher)} > ${clip(lower)}`;
  const above = group.filter((one) => one.lower === about).map((one) => clip(one.higher));
  const below = group.filter((one) => one.higher === about).map((one) => clip(one.lower));
  return [above.join(", "), clip(about), below.join(", ")].filter(Boolean).join(" > ");
}

/** @param {string} text */
const clip = (text) => (text.length > 40 ? `${text.slice(0, 38)}…` : text);
