/** The page: what happens when. */

import { call, key, plain, rank, Trouble } from "./api.js";
import { announce, byId, fill, h, sentence, show } from "./dom.js";
import { EXAMPLES } from "./examples.js";
import { select, startTabs, startTheme } from "./tabs.js";
import { items, meantChip, missing, mode, poleChip, request, setFields, sourceTable, startInput } from "./input.js";
import { offerMethods } from "./methods.js";
import { labelOfMove, onTheWire, withLabel } from "./labels.js";
import { clearPanels, criteriaPanel, methodsPanel } from "./panels.js";
import { clearRows, showRows, startRows } from "./rows.js";
import { fromFragment } from "./share.js";
import { showSignals } from "./signals.js";
import { now } from "./state.js";
import { startExport, tools } from "./export.js";
import { showTeach } from "./teach.js";

/** @typedef {import("./types.js").Ranking} Ranking */
/** @typedef {import("./types.js").RankRequest} RankRequest */
/** @typedef {import("./types.js").Label} Label */
/** @typedef {import("./types.js").Placed} Placed */

/** @type {(id: string) => HTMLInputElement} */
const field = (id) => byId(id);

/* Running */

/** @param {Label[]} [labels] known from a link */
async function run(labels = []) {
  const lack = missing();
  complain("", "");
  for (const id of ["items", "by", "query", "low", "high"]) field(id).removeAttribute("aria-invalid");
  if (lack) {
    complain(lack.message, "");
    field(lack.at).setAttribute("aria-invalid", "true");
    field(lack.at).focus();
    return;
  }
  now.running?.abort();
  now.teaching?.abort();
  const controller = (now.running = new AbortController());
  const asked = request();
  const started = performance.now();
  Object.assign(now, { ranking: null, first: null, request: asked, table: sourceTable(), labels, question: undefined, rightPairs: null, goodEnough: false, more: false, second: null });
  begin(asked);
  try {
    const found = await rank(asked, {
      progress: (done, total) => showProgress(done, total),
      partial: (scores) => controller.signal.aborted || showPartial(asked, scores),
    }, controller.signal);
    if (controller !== now.running) return;
    now.seconds = (performance.now() - started) / 1000;
    now.first = found;
    finish(found);
    if (labels.length) await teach();
    if (innerWidth < 900) byId("result").scrollIntoView({ block: "start" });
  } catch (error) {
    if (controller !== now.running) return;
    if (controller.signal.aborted) cancelled();
    else failed(error);
  } finally {
    if (controller === now.running) {
      now.running = null;
      busy(false);
    }
  }
}

/** @param {RankRequest} asked */
function begin(asked) {
  busy(true);
  clearRows();
  clearPanels();
  show(byId("empty"), false);
  show(byId("answer"), true);
  show(byId("note"), false);
  show(byId("link-box"), false);
  showTeach(null);
  select("ranking");
  fill(byId("answer-title"), "Reading ", h("span.soft", null, count(asked.items.length)));
  fill(byId("facts"), headlineOf(asked));
  show(byId("confidence"), false);
  show(byId("warnings"), false);
  tools(false);
  showRows(asked.items.filter((item, place) => asked.items.indexOf(item) === place).map((item) => ({ item, score: null })),
    { ...look(asked, null), final: false, movable: false, note: "" });
  announce(`Reading ${count(asked.items.length)}.`);
}

/** @param {number} number */
const count = (number) => `${number} ${number === 1 ? "item" : "items"}`;

/** @param {RankRequest} asked */
const headlineOf = (asked) => (asked.query ? `For “${asked.query}”` : `By ${asked.by}`);

/** @param {RankRequest} asked @param {Ranking | null} ranking */
function look(asked, ranking) {
  const given = asked.poles ?? /** @type {[string, string]} */ ([field("low").placeholder || "low", field("high").placeholder || "high"]);
  /** @type {[string, string]} */
  const poles = asked.query ? ["less relevant", "more relevant"] : (ranking?.understood?.poles ?? given);
  const letters = asked.items.reduce((sum, item) => sum + item.length, 0);
  return { poles, texts: letters / asked.items.length > 40 };
}

/** @param {RankRequest} asked @param {Record<string, number>} scores */
function showPartial(asked, scores) {
  const known = new Map(Object.entries(scores).map(([item, score]) => [item, score]));
  const distinct = [...new Set(asked.items)];
  const read = distinct.filter((item) => known.has(item)).sort((one, other) => (known.get(other) ?? 0) - (known.get(one) ?? 0));
  const rest = distinct.filter((item) => !known.has(item));
  showRows([...read.map((item) => ({ item, score: known.get(item) ?? null })), ...rest.map((item) => ({ item, score: null }))],
    { ...look(asked, null), final: false, movable: false, note: "First scores, from what has been read so far; they still change." });
}

/** @param {boolean} on */
function busy(on) {
  show(byId("cancel"), on);
  show(byId("progress"), on);
  byId("result").setAttribute("aria-busy", String(on));
  if (on) byId("progress").removeAttribute("value");
  byId("stage").textContent = "";
}

/** @param {number} done @param {number | null} total */
function showProgress(done, total) {
  if (!total) return;
  /** @type {HTMLProgressElement} */ (/** @type {unknown} */ (byId("progress"))).value = Math.min(1, done / total);
  byId("stage").textContent = `${Math.min(100, Math.round((100 * done) / total))} %`;
}

/** @param {Ranking} ranking */
function finish(ranking) {
  display(ranking);
  tools(true);
  const top = ranking.items[0];
  announce(`${count(ranking.items.length)} ranked ${byId("answer-title").textContent}. First: ${top.item}.`);
}

/** @param {Ranking} ranking */
function display(ranking) {
  const asked = /** @type {RankRequest} */ (now.request);
  now.ranking = ranking;
  const first = ranking.understood?.first;
  if (asked.query) fill(byId("answer-title"), "For ", h("em", { dir: "auto" }, asked.query));
  else fill(byId("answer-title"), "By ", h("em", { dir: "auto" }, ranking.understood?.name ?? ranking.criterion.name), first && h("span.first", null, `, ${first}`));
  const labels = ranking.details?.labels?.labels;
  fill(byId("facts"), [count(ranking.items.length), `${ranking.method} on ${ranking.model}`, labels ? `${labels} ${labels === 1 ? "label" : "labels"}` : "", now.seconds >= 0.1 ? `${now.seconds.toFixed(1)} s` : ""].filter(Boolean).join(" · "));
  showConfidence(ranking);
  const senses = ranking.understood?.alternatives ?? [];
  const again = () => /** @type {HTMLFormElement} */ (byId("ask")).requestSubmit();
  fill(byId("warnings"), ...ranking.warnings.map((text) => h("li", null, sentence(plain(text)), " ", meantChip(text, again))),
    senses.length > 0 && h("li", null, `From ${ranking.understood?.poles.join(" to ")}. In another sense: `, ...senses.slice(0, 3).map(({ poles }) => poleChip(poles, again))));
  show(byId("warnings"), ranking.warnings.length + senses.length > 0);
  const movable = ranking.method === "auto" && !asked.query && !asked.context;
  showRows(placed(ranking), { ...look(asked, ranking), final: true, movable, note: legend(ranking) });
  showSignals(byId("panel-signals"), ranking);
  criteriaPanel();
  methodsPanel();
  teachCard(false);
}

/** Each distinct item once, with what its score may range over. @param {Ranking} ranking @returns {Placed[]} */
function placed(ranking) {
  const signals = Object.values(ranking.details?.signals ?? {});
  const seen = new Set();
  const found = [];
  for (const row of ranking.items) {
    if (seen.has(row.item)) continue;
    seen.add(row.item);
    /** @type {Placed} */
    const one = { item: row.item, score: row.score, row };
    const own = signals.map((scores) => scores[row.item]).filter((value) => value !== undefined);
    if (row.deviation !== undefined) [one.low, one.high] = [row.score - row.deviation, row.score + row.deviation];
    else if (own.length > 1) {
      const mean = own.reduce((sum, value) => sum + value, 0) / own.length; // the score is smoothed: the band goes around it
      [one.low, one.high] = [row.score + Math.min(...own) - mean, row.score + Math.max(...own) - mean];
    }
    found.push(one);
  }
  return found;
}

/** @param {Ranking} ranking */
function legend(ranking) {
  if (ranking.items.some((row) => row.deviation !== undefined)) return "Dot: score. Band: plus and minus one standard deviation.";
  if (Object.keys(ranking.details?.signals ?? {}).length > 1) return "Dot: score, the mean of several signals. Band: how far the signals spread around it.";
  if (now.request?.query) return "Dot: how much more likely the document makes the query (log-probability per token).";
  return "Dot: score.";
}

/** @param {Ranking} ranking */
function showConfidence({ confidence, directed }) {
  const box = byId("confidence");
  show(box, Boolean(confidence));
  if (!confidence) return;
  const { level, probability } = confidence;
  const steps = { low: 1, medium: 2, high: 3 }[level];
  box.dataset.level = level;
  fill(box,
    h("span.meter", { "aria-hidden": "true" }, ...[1, 2, 3].map((step) => h(step <= steps ? "i.on" : "i", null))),
    h("span", null, h("b", null, `${sentence(level)} confidence`), ` The order is right (τ\u00a0>\u00a00.3) with probability ${probability.toFixed(2)}.`, !directed && " The direction is unknown."));
}

function cancelled() {
  if (!now.ranking) {
    fill(byId("answer-title"), "Cancelled");
    byId("facts").textContent = "The server has stopped reading. Press Rank to start again.";
    clearRows();
    byId("legend").textContent = "";
  }
  announce("Cancelled.");
}

/** @param {unknown} error */
function failed(error) {
  if (!(error instanceof Trouble)) console.error(error);
  const trouble = error instanceof Trouble ? error : new Trouble("The page failed.", "Reload it; your input stays in the form if you copy its link first.");
  if (trouble.status === 401 || trouble.status === 403) {
    /** @type {HTMLDetailsElement} */ (byId("more")).open = true;
    field("key").focus();
  }
  show(byId("answer"), now.ranking !== null);
  show(byId("empty"), now.ranking === null);
  complain(trouble.message, trouble.remedy);
}

/** @param {string} message empty hides it @param {string} remedy */
function complain(message, remedy) {
  const box = byId("error");
  show(box, Boolean(message));
  fill(box, message && h("p", null, h("b", null, sentence(message))), remedy && h("p", null, remedy));
  if (message && innerWidth < 900) box.scrollIntoView({ block: "center" });
}

/* Labels */

/** @param {string} item @param {string[]} order */
function moved(item, order) {
  if (!now.ranking) return;
  now.labels = withLabel(now.labels, labelOfMove(item, order), order);
  teach();
}

/** Ranks again with all labels; the server keeps what it read of the list. */
async function teach() {
  const asked = now.request;
  if (!asked) return;
  now.teaching?.abort();
  const controller = (now.teaching = new AbortController());
  teachCard(true);
  const { stream: _, method: __, ...given } = asked;
  try {
    const found = await call("v1/question", { ...given, labels: onTheWire(now.labels) }, controller.signal);
    if (controller !== now.teaching) return;
    if (now.question !== undefined || wantsQuestion) now.question = found.question;
    wantsQuestion = false;
    [now.rightPairs, now.goodEnough] = [found.right_pairs, found.good_enough];
    display(now.labels.length || !now.first ? found.ranking : now.first);
    announce(`The order is updated. First: ${found.ranking.items[0].item}.`);
  } catch (error) {
    if (controller !== now.teaching || controller.signal.aborted) return;
    wantsQuestion = false;
    failed(error);
    if (now.ranking) display(now.ranking);
  } finally {
    if (controller === now.teaching) now.teaching = null;
  }
}

let wantsQuestion = false;

/** @param {boolean} isBusy */
function teachCard(isBusy) {
  const ranking = now.ranking;
  const asked = now.request;
  if (!ranking || !asked || asked.query || asked.context || ranking.method !== "auto") return showTeach(null);
  showTeach({
    labels: now.labels, question: now.question, busy: isBusy, rightPairs: now.rightPairs, enough: now.goodEnough && !now.more,
    ask: () => {
      wantsQuestion = true;
      teach();
    },
    askMore: () => {
      now.more = true;
      teachCard(false);
    },
    answer: (kind, items) => {
      now.labels = withLabel(now.labels, { kind, items });
      teach();
    },
    remove: (gone) => {
      now.labels = now.labels.filter((one) => one !== gone);
      teach();
    },
  });
}

/** Fills the form from the link that opened the page. */
async function openLink() {
  if (!location.hash.startsWith("#in=")) return;
  try {
    const input = await fromFragment(location.hash);
    if (!input) throw new Error("it cannot be read");
    setFields(input);
    // Before the server has said what there is, the form has no such choice: `about` makes it.
    if (input.method && field("method").value !== input.method) wanted.method = input.method;
    if (input.model && field("model").value !== input.model) wanted.model = input.model;
    fromLink = { labels: input.labels ?? [] };
    now.secondBy = input.second ?? "";
    const note = byId("note");
    const labels = fromLink.labels.length ? ` and ${fromLink.labels.length} labels` : "";
    fill(note, h("p", null, `The link holds ${count(items().length)}${labels}. Press Rank to read them.`));
    show(note, true);
    byId("rank").focus();
  } catch {
    complain("This link cannot be read.", "It may have been cut when it was copied. Ask for it again.");
  }
}

/** @type {{labels: Label[]} | null} labels of a link, until the form is changed or sent */
let fromLink = null;

/* Start */

async function about() {
  try {
    const [models, methods, page] = await Promise.all([call("v1/models"), call("v1/methods"), call("v1/page")]);
    const chosen = { model: field("model").value, method: field("method").value };
    fill(byId("model"), ...models.data.map((/** @type {any} */ { id }) => h("option", { value: id }, id)));
    now.methods = methods.data;
    offerMethods(mode() === "query");
    field("method").value = wanted.method || chosen.method || "auto";
    if (wanted.model) field("model").value = wanted.model;
    field("method").value ||= "auto"; // this server may not have what the link's has
    field("model").value ||= models.data[0].id;
    wanted.method = wanted.model = "";
    show(byId("reports-link"), page.reports.length > 0);
  } catch (error) {
    failed(error);
  }
}

/** What a link asks for and the form could not take, until the server has said what there is. */
const wanted = { method: "", model: "" };

function examples() {
  fill(byId("examples"), ...EXAMPLES.map(({ title, note, fields: given }) =>
    h("li", null, h("button.example", { type: "button", onclick: () => {
      setFields(given);
      run();
    } }, h("b", null, title), h("span", null, given.items.split("\n").slice(0, 4).join(" · ")), h("small", null, note)))));
}

startTheme();
startTabs();
startInput(() => {
  const labels = fromLink?.labels ?? [];
  fromLink = null;
  run(labels);
}, complain);
startRows(moved);
examples();
field("key").value = key.get();
field("key").addEventListener("change", () => {
  key.set(field("key").value.trim());
  about();
});
byId("items").addEventListener("input", () => (fromLink = null));
byId("cancel").addEventListener("click", () => now.running?.abort());
startExport();
addEventListener("hashchange", openLink);
document.documentElement.dataset.ready = "yes";
await Promise.all([openLink(), about()]);
document.documentElement.dataset.ready = "all";
