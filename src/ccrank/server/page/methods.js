/** Methods side by side. */

import { byId, fill, h, sentence, signed } from "./dom.js";
import { now } from "./state.js";
import { tau } from "./stats.js";

/** @typedef {import("./types.js").Ranking} Ranking */
/** @typedef {import("./types.js").Method} Method */

/** @typedef {{name: string, summary: string, label: string}} Choice */

/** The plain choices in plain words. @type {Record<string, string>} */
const PLAIN = {
  auto: "Best: several signals combined",
  "prompt-point": "Ask for a rating of each item",
  "prompt-pair": "Ask for a comparison of each pair (slow)",
};
const FOR_QUERIES = ["query-likelihood", "first-stage"];

/** The methods that a criterion takes without gold values: a few in plain words, then the rest by their names.
 * @param {Method[]} methods */
export function methodChoices(methods) {
  const able = methods.filter(({ name, family }) => family !== "supervised" && name !== "saved-probe" && !FOR_QUERIES.includes(name));
  const of = (/** @type {Method} */ { name, summary }) => ({ name, summary: sentence(summary), label: PLAIN[name] ?? name });
  return {
    plain: able.filter(({ name }) => name in PLAIN).map(of),
    researchers: able.filter(({ name }) => !(name in PLAIN)).map(of),
    queries: methods.filter(({ name }) => FOR_QUERIES.includes(name)).map(of),
  };
}

/** Offers the methods that the server has for a criterion or for a query; a choice that is still there is kept. @param {boolean} query */
export function offerMethods(query) {
  if (!now.methods.length) return;
  const select = /** @type {HTMLSelectElement} */ (byId("method"));
  const chosen = select.value;
  const options = (/** @type {Choice[]} */ some) => some.map(({ name, summary, label }) => h("option", { value: name, title: summary }, label));
  const { plain, researchers, queries } = methodChoices(now.methods);
  fill(select, ...options(plain), query && h("optgroup", { label: "For a query" }, ...options(queries)), h("optgroup", { label: "For researchers" }, ...options(researchers)));
  select.value = chosen;
  select.value ||= "auto";
}

/**
 * The orders of several methods: a row for each item, a column for each method.
 * @param {HTMLElement} place
 * @param {{name: string, ranking: Ranking | null, error: string}[]} columns the first one gives the order of the rows
 */
export function showMethods(place, columns) {
  const first = columns.find((one) => one.ranking)?.ranking;
  if (!first) return fill(place, ...columns.map((one) => one.error && h("p.notice.bad", null, `${one.name}: ${one.error}`)));
  const items = first.items.map((row) => row.item);
  const base = first.items.map((row) => row.score);
  const scores = columns.map(({ ranking }) => new Map(ranking?.items.map((row) => [row.item, row])));
  const count = items.length;
  fill(place,
    ...columns.map((one) => one.error && h("p.notice.bad", null, `${one.name}: ${one.error}`)),
    h("div.scroll", { tabIndex: 0, role: "region", "aria-label": "Ranks by method" }, h("table.methods", null,
      h("caption.hidden", null, "Each item’s rank by each method"),
      h("thead", null,
        h("tr", null, h("th", { scope: "col" }, "Item"), ...columns.map(({ name }) => h("th.number", { scope: "col" }, name))),
        h("tr.facts", null, h("th", { scope: "row" }, `τ with ${columns[0].name}`), ...columns.map(({ ranking }, column) => {
          if (!ranking) return h("td.number", null, "…");
          const agreement = tau(base, items.map((item) => scores[column].get(item)?.score ?? NaN));
          return h("td.number", null, column ? signed(ranking.directed ? agreement : Math.abs(agreement)) : "", !ranking.directed && h("small", null, " direction unknown"));
        }))),
      h("tbody", null, ...items.map((item, index) => h("tr", null, h("th", { scope: "row", dir: "auto" }, item),
        ...scores.map((own) => {
          const rank = own.get(item)?.rank;
          const cell = h("td.number.tinted", null, rank ?? "");
          const apart = rank === undefined ? 0 : Math.min(1, Math.abs(rank - first.items[index].rank) / Math.max(3, count / 2));
          cell.style.setProperty("--apart", `${Math.round(apart * 100)}%`);
          return cell;
        })))))),
    h("p.soft.small", null, "Ranks; the darker, the farther from the first column."));
}
