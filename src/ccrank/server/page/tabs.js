/** The frame of the page: tabs and colours. */

import { byId, fill, h, sentence, show } from "./dom.js";

const TABS = ["ranking", "signals", "criteria", "methods"];

/** @param {string} name */
export function select(name) {
  for (const one of TABS) {
    const tab = byId(`tab-${one}`);
    tab.setAttribute("aria-selected", String(one === name));
    tab.tabIndex = one === name ? 0 : -1;
    show(byId(`panel-${one}`), one === name);
  }
}

export function startTabs() {
  for (const name of TABS) byId(`tab-${name}`).addEventListener("click", () => select(name));
  document.querySelector("[role=tablist]")?.addEventListener("keydown", (event) => {
    const pressed = /** @type {KeyboardEvent} */ (event).key;
    const at = TABS.findIndex((name) => byId(`tab-${name}`) === document.activeElement);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: TABS.length - 1 }[pressed];
    if (next === undefined || at < 0) return;
    event.preventDefault();
    const name = TABS[(next + TABS.length) % TABS.length];
    select(name);
    byId(`tab-${name}`).focus();
  });
}

const THEMES = ["auto", "light", "dark"];

export function startTheme() {
  const button = byId("theme");
  const apply = (/** @type {string} */ theme) => {
    document.documentElement.dataset.theme = theme;
    fill(button, h("span.hidden", null, "Colours: "), sentence(theme));
  };
  apply(localStorage.getItem("ccrank-theme") ?? "auto");
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % THEMES.length];
    localStorage.setItem("ccrank-theme", next);
    apply(next);
  });
}
