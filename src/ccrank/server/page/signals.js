/** Where the signals of a combined score disagree. */

import { fill, h, signed } from "./dom.js";
import { placer, ranks, tau } from "./stats.js";

/** @typedef {import("./types.js").Ranking} Ranking */

/** @type {Record<string, string>} */
const MEANING = {
  poles: "the pole words that the model prefers for the item",
  axis: "the item’s hidden state between exemplars of both poles",
  exemplars: "the item’s hidden state between texts that were written for both poles",
  "such-as": "how likely the item is after “… such as” at either pole",
  considered: "how likely the item is after “is considered” at either pole",
  "list-of": "how likely the text is in a list from either pole",
  "that-are": "how likely the context makes the item at either pole",
  "this-is": "how much more likely the context makes the item",
  "query-likelihood": "how likely the document makes the query",
  "first-stage": "the score of the first stage, such as BM25",
};

let byDoubt = true;

/** @param {HTMLElement} panel @param {Ranking} ranking */
export function showSignals(panel, ranking) {
  const signals = Object.entries(ranking.details?.signals ?? {});
  if (signals.length < 2) {
    const why = signals.length ? "This ranking rests on a single signal, so there is nothing to compare." : `${ranking.method} has no signals to compare.`;
    fill(panel, h("p", null, `${why} The method auto combines several.`));
    return;
  }
  const items = ranking.items.map((row) => row.item);
  const table = signals.map(([, scores]) => items.map((item) => scores[item]));
  const byRank = table.map(ranks);
  const spread = items.map((_, place) => {
    const own = byRank.map((one) => one[place]);
    return Math.max(...own) - Math.min(...own);
  });
  const places = items.map((_, place) => place);
  if (byDoubt) places.sort((one, other) => spread[other] - spread[one] || one - other);
  const place = placer(table.flat());
  const agree = ranking.consistency.signals_agree;
  const verdict = agree === null || agree === undefined ? "" : agree > 0.6 ? "The signals agree" : agree > 0.2 ? "The signals agree in part" : "The signals hardly agree";
  const most = Math.max(...spread);

  fill(panel,
    verdict && h("p.lead", null, `${verdict}: mean τ between them is ${signed(/** @type {number} */ (agree))} (0 by chance).`),
    h("dl.key", null, ...signals.flatMap(([name], index) => [
      h("dt", null, h(`i.swatch.s${index}`, { "aria-hidden": "true" }), name), h("dd", null, MEANING[name] ?? "")])),
    h("p.sorts", null, h("label", null,
      h("input", { type: "checkbox", checked: byDoubt, onchange: (/** @type {any} */ event) => {
        byDoubt = event.target.checked;
        showSignals(panel, ranking);
        panel.querySelector("input")?.focus();
      } }), " What they disagree on first")),
    h("div.scroll", { tabIndex: 0, role: "region", "aria-label": "Ranks by signal" }, h("table.signals", null,
      h("caption.hidden", null, "Each item’s rank by each signal"),
      h("thead", null, h("tr", null,
        h("th", { scope: "col" }, "Item"), h("th.wide", { scope: "col" }, "On the scale"),
        ...signals.map(([name]) => h("th.number", { scope: "col" }, name)), h("th.number", { scope: "col" }, "Apart"))),
      h("tbody", null, ...places.map((at) => h("tr", { className: most > 1 && spread[at] === most ? "most" : "" },
        h("th", { scope: "row", dir: "auto" }, items[at]),
        h("td.wide", null, strip(table.map((one) => place(one[at])))),
        ...byRank.map((one) => h("td.number", null, one[at])),
        h("td.number", null, spread[at] === 0 ? "–" : `${spread[at]} ${spread[at] === 1 ? "rank" : "ranks"}`)))))),
    h("h2", null, "τ between signals"),
    h("div.scroll", { tabIndex: 0, role: "region", "aria-label": "Agreement of signals" }, h("table.taus", null,
      h("caption.hidden", null, "Kendall’s τ between the orders of each two signals"),
      h("thead", null, h("tr", null, h("td", null), ...signals.map(([name]) => h("th.number", { scope: "col" }, name)))),
      h("tbody", null, ...signals.map(([name], row) => h("tr", null, h("th", { scope: "row" }, name),
        ...signals.map((_, column) => h("td.number", null, row === column ? "" : signed(tau(table[row], table[column]))))))))));
}

/** @param {number[]} xs */
function strip(xs) {
  const box = h("span.strip.ranged", { "aria-hidden": "true" }, h("i.range", null), ...xs.map((_, index) => h(`i.dot.s${index}`, null)));
  box.style.setProperty("--from", String(Math.min(...xs)));
  box.style.setProperty("--to", String(Math.max(...xs)));
  xs.forEach((x, index) => /** @type {HTMLElement} */ (box.children[index + 1]).style.setProperty("--x", String(x)));
  return box;
}
