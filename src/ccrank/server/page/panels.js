/** The views that compare: two criteria, and methods. */

import { rank } from "./api.js";
import { announce, byId, fill, h, show } from "./dom.js";
import { methodChoices, showMethods } from "./methods.js";
import { showScatter } from "./scatter.js";
import { now } from "./state.js";

/** @typedef {import("./types.js").Ranking} Ranking */
/** @typedef {import("./types.js").RankRequest} RankRequest */

/** @type {(id: string) => HTMLInputElement} */
const field = (id) => byId(id);

/* Two criteria */

/** Forgets what was compared for an earlier list. */
export function clearPanels() {
  fill(byId("panel-criteria"));
  fill(byId("panel-methods"));
}

export function criteriaPanel() {
  const panel = byId("panel-criteria");
  const asked = now.request;
  if (!asked || !now.ranking) return;
  if (asked.query) return fill(panel, h("p", null, "Two criteria can be compared where items are ranked by a criterion, not for a query."));
  if (now.second) return drawScatter();
  if (panel.querySelector("#second")) return;
  const plot = h("div", { id: "plot" });
  fill(panel, h("form.inline", { onsubmit: compareCriteria, oninput: () => forgetError(plot) },
    h("label", { for: "second" }, "Second criterion"),
    h("input", { id: "second", type: "text", value: now.secondBy, placeholder: "price, popularity …" }),
    h("button", { type: "submit" }, "Compare")), plot);
}

/** What is being changed has no error any more. @param {HTMLElement} place */
const forgetError = (place) => place.querySelector(":scope > [role=alert]")?.remove();

/** @param {Event} event */
async function compareCriteria(event) {
  event.preventDefault();
  now.secondBy = field("second").value.trim();
  const plot = byId("plot");
  if (!now.secondBy || !now.request) return fill(plot, h("p.notice.bad", { role: "alert" }, "Type a second criterion."));
  const of = now.request;
  const { labels: _, poles: __, ...asked } = of;
  fill(plot, h("p.soft", { role: "status" }, `Reading by ${now.secondBy} …`));
  try {
    const found = await rank({ ...asked, by: now.secondBy }, {});
    if (now.request !== of) return; // another list was ranked in the meantime
    now.second = found;
    drawScatter();
  } catch (error) {
    fill(plot, h("p.notice.bad", { role: "alert" }, error instanceof Error ? error.message : "It failed."));
  }
}

function drawScatter() {
  if (now.ranking && now.second && byId("plot")) showScatter(byId("plot"), now.ranking, now.second);
}

/* Methods */

const USUAL = ["auto", "prompt-point"];
const SLOW = 30;

export function methodsPanel() {
  const panel = byId("panel-methods");
  const asked = now.request;
  if (!asked || panel.firstElementChild) return;
  if (asked.query) return fill(panel, h("p", null, "Methods can be compared where items are ranked by a criterion, not for a query."));
  const { plain, researchers } = methodChoices(now.methods);
  const boxes = (/** @type {typeof plain} */ some) => some.map(({ name, summary, label }) =>
    h("label", { title: summary }, h("input", { type: "checkbox", name: "compared", value: name, checked: USUAL.includes(name) }), ` ${label}`));
  fill(panel, h("form", { onsubmit: compareMethods, oninput: () => forgetError(byId("compared")) },
    h("fieldset.checks", null, h("legend", null, "Methods to compare"),
      ...boxes(plain),
      h("details", null, h("summary", null, "For researchers"), h("div.checks", null, ...boxes(researchers)))),
    asked.items.length > SLOW && h("p.soft.small", null, "Methods that compare pairs take long on lists of this length."),
    h("button", { type: "submit" }, "Compare"), " ", h("button", { type: "button", id: "stop-methods", hidden: true }, "Cancel")),
  h("div", { id: "compared" }));
}

/** @param {Event} event */
async function compareMethods(event) {
  event.preventDefault();
  const chosen = [.../** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll("input[name=compared]:checked"))].map((box) => box.value);
  const place = byId("compared");
  if (chosen.length < 2) return fill(place, h("p.notice.bad", { role: "alert" }, "Choose two methods or more."));
  const { labels: _, ...asked } = /** @type {RankRequest} */ (now.request);
  const controller = new AbortController();
  const stop = byId("stop-methods");
  show(stop, true);
  stop.onclick = () => controller.abort();
  /** @type {{name: string, ranking: Ranking | null, error: string}[]} */
  const columns = chosen.map((name) => ({ name, ranking: null, error: "" }));
  const of = now.request;
  for (const column of columns) {
    if (controller.signal.aborted || now.request !== of) break;
    try {
      column.ranking = await rank({ ...asked, method: column.name }, {}, controller.signal);
    } catch (error) {
      column.error = controller.signal.aborted ? "cancelled" : error instanceof Error ? error.message : "it failed";
    }
    if (now.request === of) showMethods(place, columns);
  }
  show(stop, false);
  announce(`${chosen.length} methods compared.`);
}
