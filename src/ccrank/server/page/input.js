/** The form: items, a CSV's column, the criterion as it is understood, and what a request is made of. */

import { call, plain, Trouble } from "./api.js";
import { likelyColumn, oneLine } from "./csv.js";
import { announce, byId, debounced, fill, h, sentence, show } from "./dom.js";
import { rowsOf, splitAtCommas } from "./files.js";
import { offerMethods } from "./methods.js";

/** @typedef {import("./types.js").Table} Table */
/** @typedef {import("./types.js").RankRequest} RankRequest */

/** @type {(id: string) => HTMLInputElement} */
const field = (id) => byId(id);
/** @type {Table | null} the table that the items are from, as long as they are not edited */
let table = null;
/** @type {AbortController | null} */
let understanding = null;

export const mode = () => /** @type {HTMLInputElement} */ (document.querySelector("input[name=mode]:checked")).value;

/** The items: a line for each, without empty lines; or those of one line with commas, which would be no list otherwise. */
export const items = () => {
  const lines = field("items").value.split("\n").map(oneLine).filter(Boolean);
  return (table === null && splitAtCommas(lines)) || lines;
};

/** The rows of a CSV file that the items are from; null for a pasted list. */
export const sourceTable = () => table;

/** What `POST /v1/rank` takes. @returns {RankRequest} */
export function request() {
  /** @type {RankRequest} */
  const found = { items: items(), model: field("model").value || undefined };
  if (mode() === "query") {
    found.query = field("query").value.trim();
    if (field("method").value !== "auto") found.method = field("method").value;
    return found;
  }
  found.by = field("by").value.trim();
  found.method = field("method").value;
  const poles = [field("low").value.trim(), field("high").value.trim()];
  if (poles[0] && poles[1]) found.poles = /** @type {[string, string]} */ (poles);
  if (field("category").value.trim()) found.category = field("category").value.trim();
  if (field("context").value.trim()) found.context = field("context").value.trim();
  return found;
}

/** What is missing, in words, and the field that lacks it; null if nothing. */
export function missing() {
  if (items().length < 2) return { message: "Give at least two items, one per line.", at: "items" };
  if (mode() === "query" && !field("query").value.trim()) return { message: "Type the query that the documents should answer.", at: "query" };
  if (mode() === "criterion" && !field("by").value.trim()) return { message: "Type a criterion, such as size, or how polite it is.", at: "by" };
  const [low, high] = [field("low").value.trim(), field("high").value.trim()];
  if (mode() === "criterion" && Boolean(low) !== Boolean(high)) return { message: "Name both poles, or neither.", at: low ? "high" : "low" };
  return null;
}

const FIELDS = ["items", "by", "query", "low", "high", "category", "context", "method", "model"];

/** All fields as they are, for a link. @returns {Record<string, string>} */
export const fields = () => Object.fromEntries([["mode", mode()], ...FIELDS.map((id) => [id, field(id).value])]);

/** Sets fields; those that are not given become empty. @param {Record<string, any>} given */
export function setFields(given) {
  table = null;
  const chosen = given.mode === "query" ? "query" : "criterion";
  for (const radio of document.querySelectorAll("input[name=mode]")) /** @type {any} */ (radio).checked = /** @type {any} */ (radio).value === chosen;
  showMode();
  for (const id of FIELDS) {
    if (id === "method") field(id).value = given[id] || "auto";
    else if (id !== "model" || given[id]) field(id).value = given[id] ?? "";
  }
  const model = /** @type {any} */ (byId("model"));
  if (!model.value) model.selectedIndex = 0;
  if (given.context || (given.method && given.method !== "auto")) /** @type {HTMLDetailsElement} */ (byId("more")).open = true;
  showItems();
  understand();
}

function showMode() {
  const query = mode() === "query";
  show(byId("criterion-field"), !query);
  show(byId("query-field"), query);
  for (const part of document.querySelectorAll("[data-mode=criterion]")) show(part, !query);
  offerMethods(query);
}

function showItems() {
  const count = items().length;
  byId("count").textContent = count ? `${count} ${count === 1 ? "item" : "items"}` : "";
  show(byId("clear"), count > 0);
  show(byId("table-choice"), table !== null);
}

/** @param {() => void} submit @param {(message: string, remedy: string) => void} complain */
export function startInput(submit, complain) {
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      submit();
    }
  });
  byId("ask").addEventListener("input", ({ target }) => {
    complain("", ""); // what it was about is being changed
    if (target instanceof Element) target.removeAttribute("aria-invalid");
  });
  byId("more").addEventListener("toggle", () => /** @type {HTMLDetailsElement} */ (byId("more")).open && byId("more").scrollIntoView({ block: "nearest" }));
  for (const radio of document.querySelectorAll("input[name=mode]")) radio.addEventListener("change", showMode);
  field("items").addEventListener("input", () => {
    table = null;
    showItems();
  });
  const later = debounced(understand, 180);
  for (const id of ["by", "category"]) field(id).addEventListener("input", later);
  byId("swap").addEventListener("click", () => {
    const [low, high] = [field("low"), field("high")];
    const words = [low.value || low.placeholder, high.value || high.placeholder];
    [high.value, low.value] = words;
  });
  byId("clear").addEventListener("click", () => {
    table = null;
    field("items").value = "";
    showItems();
    field("items").focus();
  });
  byId("open-file").addEventListener("click", () => field("file").click());
  field("file").addEventListener("change", () => {
    const [file] = field("file").files ?? [];
    if (file) take(file, complain);
    field("file").value = "";
  });
  byId("column").addEventListener("change", () => {
    if (table) chooseColumn(table, Number(field("column").value));
  });
  dropping(complain);
  showMode();
  showItems();
}

/** @param {(message: string, remedy: string) => void} complain */
function dropping(complain) {
  const veil = byId("drop");
  let depth = 0;
  const holdsFile = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => {
    if (holdsFile(event)) show(veil, ++depth > 0);
  });
  addEventListener("dragleave", (event) => {
    if (holdsFile(event)) show(veil, --depth > 0);
  });
  addEventListener("dragover", (event) => {
    if (holdsFile(event)) event.preventDefault();
  });
  addEventListener("drop", (event) => {
    if (!holdsFile(event)) return;
    event.preventDefault();
    depth = 0;
    show(veil, false);
    const [file] = event.dataTransfer?.files ?? [];
    if (file) take(file, complain);
  });
}

/** @param {File} file @param {(message: string, remedy: string) => void} complain */
async function take(file, complain) {
  complain("", "");
  try {
    const { names, rows } = await rowsOf(file);
    if (names) {
      fill(byId("column"), ...names.map((name, index) => h("option", { value: String(index) }, name)));
      return chooseColumn({ names, rows, column: 0, file: file.name }, likelyColumn([names, ...rows]));
    }
    table = null;
    field("items").value = rows.map(([line]) => oneLine(line)).join("\n");
    showItems();
    announce(`${rows.length} items from ${file.name}`);
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    complain(error.message, error.remedy);
  }
}

/** @param {Table} source @param {number} column */
function chooseColumn(source, column) {
  table = { ...source, column };
  field("column").value = String(column);
  const texts = source.rows.map((row) => oneLine(row[column] ?? ""));
  const empty = texts.filter((text) => !text).length;
  field("items").value = texts.filter(Boolean).join("\n");
  showItems();
  const note = `${source.rows.length} rows of ${source.file}${empty ? `, ${empty} of them without an item` : ""}. All columns come back in the CSV.`;
  byId("table-note").textContent = note;
  announce(note);
}

/** Shows what the criterion is taken to mean, with words for its poles. */
async function understand() {
  understanding?.abort();
  const phrase = field("by").value.trim();
  const line = byId("understood"), chips = byId("suggestions");
  const forget = (/** @type {string} */ text) => {
    line.textContent = text;
    line.classList.toggle("doubt", Boolean(text));
    show(chips, false);
    field("low").placeholder = field("high").placeholder = "";
  };
  if (!phrase) return forget("");
  understanding = new AbortController();
  /** @type {any} */
  let found;
  try {
    found = await call("v1/understand", { by: phrase, category: field("category").value.trim() || undefined }, understanding.signal);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") return;
    return forget(error instanceof Error && /** @type {any} */ (error).status === 422 ? error.message : "");
  }
  const [low, high] = found.poles;
  line.textContent = found.warning ? plain(found.warning) : `${sentence(found.first)}: from ${low} to ${high}${found.alternatives.length ? ", or as fits the items" : ""}`;
  line.classList.toggle("doubt", Boolean(found.warning));
  field("low").placeholder = low;
  field("high").placeholder = high;
  fill(chips, meantChip(found.warning ?? ""), ...found.suggestions.map((/** @type {[string, string]} */ poles) => poleChip(poles)));
  show(chips, chips.childElementCount > 0);
}

/** A button that takes the spelling which a warning asks about; null if it asks about none. @param {string} warning @param {() => void} [then] */
export function meantChip(warning, then = understand) {
  const phrase = /^did you mean (['"])(.+?)\1\?/.exec(warning)?.[2];
  if (phrase === undefined) return null;
  return h("button.chip", { type: "button", onclick: () => {
    field("by").value = phrase;
    announce(`Criterion: ${phrase}`);
    then();
  } }, phrase);
}

/** A button that fills in words for the poles. @param {[string, string]} poles @param {() => void} [then] */
export const poleChip = ([from, to], then) => h("button.chip", { type: "button", onclick: () => {
  field("low").value = from;
  field("high").value = to;
  announce(`Poles: from ${from} to ${to}`);
  then?.();
} }, `${from} → ${to}`);
