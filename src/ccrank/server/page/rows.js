/** The ranking: a row for each item with its place on the scale, which can be dragged or moved by keys. */

import { announce, byId, fill, glide, h, show, signed } from "./dom.js";
import { placer } from "./stats.js";

/** @typedef {import("./types.js").Placed} Placed */

const FIRST_SHOWN = 300;
/** Milliseconds without another step after which a move by buttons counts; one by keys waits for Enter, or for the focus to leave. */
const SETTLED = 900;

/** @typedef {{poles: [string, string], final: boolean, movable: boolean, texts: boolean, note: string}} Look */

/** The rows, kept between updates so that they can glide. @type {Map<string, HTMLElement>} */
let rows = new Map();
/** @type {string[]} the order that is shown */
let order = [];
let all = false;
/** @type {(item: string, order: string[]) => void} */
let onMove = () => {};
/** @type {(() => void) | null} */
let pending = null;
let timer = 0;

/** @param {(item: string, order: string[]) => void} moved called with an item and the order that the user made */
export function startRows(moved) {
  onMove = moved;
  const list = byId("rows");
  list.addEventListener("pointerdown", startDrag);
  list.addEventListener("keydown", keys);
  list.addEventListener("click", clicked);
  list.addEventListener("focusout", () => pending?.());
  byId("show-all").addEventListener("click", () => {
    all = true;
    for (const child of list.children) show(child, true);
    show(byId("show-all"), false);
  });
}

/** Forgets the rows of an earlier list. */
export function clearRows() {
  rows = new Map();
  order = [];
  all = false;
  pending = null;
  fill(byId("rows"));
  fill(byId("scale"));
}

/**
 * Shows items, best first; those without a score come last.
 * @param {Placed[]} placed
 * @param {Look} look
 */
export function showRows(placed, look) {
  pending = null;
  clearTimeout(timer);
  const list = byId("rows");
  list.classList.toggle("texts", look.texts);
  list.classList.toggle("final", look.final);
  const values = placed.flatMap((one) => [one.score, one.low, one.high]).filter((value) => typeof value === "number");
  const place = placer(/** @type {number[]} */ (values));
  const focused = document.activeElement;
  glide(list, () => {
    placed.forEach((one, index) => {
      const row = rows.get(one.item) ?? newRow(one.item);
      rows.set(one.item, row);
      update(row, one, index, look, place);
      if (list.children[index] !== row) list.insertBefore(row, list.children[index] ?? null);
    });
  });
  if (focused instanceof HTMLElement && list.contains(focused)) focused.focus({ preventScroll: true }); // its row may have moved
  order = placed.map((one) => one.item);
  const hidden = !all && placed.length > FIRST_SHOWN;
  [...list.children].forEach((child, index) => show(child, !hidden || index < FIRST_SHOWN));
  show(byId("show-all"), hidden);
  byId("show-all").textContent = `Show all ${placed.length} items`;
  byId("legend").textContent = look.note;
  showScale(placed, look, place);
}

/** @param {string} item */
function newRow(item) {
  return h("li.row", { "data-item": item },
    h("span.rank", null),
    h("span.item", { dir: "auto", title: item.length > 60 ? item : undefined }, item),
    h("span.strip", { "aria-hidden": "true" }, h("i.range", null), h("i.stem", null), h("i.dot", null)),
    h("span.score", null),
    h("span.moves", null,
      h("button.step", { type: "button", "data-move": "up", tabIndex: -1, "aria-label": `Move ${short(item)} up` }, "▲"),
      h("button.step", { type: "button", "data-move": "down", tabIndex: -1, "aria-label": `Move ${short(item)} down` }, "▼"),
      h("button.handle", { type: "button", "data-move": "drag" }, "⠿")));
}

/** @param {HTMLElement} row @param {Placed} one @param {number} index @param {Look} look @param {(value: number) => number} place */
function update(row, one, index, look, place) {
  const read = one.score !== null;
  row.classList.toggle("read", read);
  row.classList.toggle("movable", look.movable);
  const [rank, , strip, score, moves] = /** @type {HTMLElement[]} */ ([...row.children]);
  rank.textContent = read ? String(one.row?.rank ?? index + 1) : "·";
  if (read) {
    strip.style.setProperty("--x", String(place(/** @type {number} */ (one.score))));
    const ranged = one.low !== undefined && one.high !== undefined;
    strip.classList.toggle("ranged", ranged);
    if (ranged) {
      strip.style.setProperty("--from", String(place(/** @type {number} */ (one.low))));
      strip.style.setProperty("--to", String(place(/** @type {number} */ (one.high))));
    }
  }
  const doubt = one.row?.deviation === undefined ? "" : ` ± ${one.row.deviation.toFixed(2)}`;
  fill(score, h("b", null, read ? signed(/** @type {number} */ (one.score)) : ""), doubt && h("small", null, doubt));
  if (one.row?.rank_low !== undefined) {
    const { rank_low: low, rank_high: high } = one.row;
    score.title = `rank ${low} to ${high}, with probability 0.8`;
    score.append(h("small.ranks", null, low === high ? ` rank ${low}` : ` rank ${low}–${high}`));
  }
  show(moves, look.movable);
  moves.lastElementChild?.setAttribute("aria-label", `Move ${short(one.item)}, now ${index + 1}: drag, or press the up and down arrow keys`);
}

/** @param {Placed[]} placed @param {Look} look @param {(value: number) => number} place */
function showScale(placed, look, place) {
  const scale = byId("scale");
  if (!scale.firstElementChild) fill(scale, h("span.pole", null), h("span.line", null), h("span.pole", null));
  const [low, line, high] = /** @type {HTMLElement[]} */ ([...scale.children]);
  low.textContent = look.poles[0];
  high.textContent = look.poles[1];
  /** @type {Map<string | undefined, HTMLElement>} */
  const marks = new Map([.../** @type {NodeListOf<HTMLElement>} */ (line.querySelectorAll(".mark"))].map((mark) => [mark.dataset.item, mark]));
  for (const one of placed) {
    if (one.score === null) continue;
    let mark = marks.get(one.item);
    if (!mark) line.append((mark = h("i.mark", { "data-item": one.item })));
    mark.style.setProperty("--x", String(place(one.score)));
    marks.delete(one.item);
  }
  for (const mark of marks.values()) mark.remove();
  scale.classList.toggle("final", look.final);
}

/** @param {string} item */
const short = (item) => (item.length > 60 ? `${item.slice(0, 57)}…` : item);

/** @param {Event} event @returns {{row: HTMLElement, kind: string | undefined} | null} */
function source(event) {
  const button = event.target instanceof Element ? event.target.closest("[data-move]") : null;
  const row = button?.closest("li");
  return button && row ? { row, kind: /** @type {HTMLElement} */ (button).dataset.move } : null;
}

/** @param {MouseEvent} event */
function clicked(event) {
  const from = source(event);
  if (from?.kind === "up") step(from.row, -1, true);
  else if (from?.kind === "down") step(from.row, 1, true);
  else if (!from && event.target instanceof Element) event.target.closest(".item")?.classList.toggle("whole");
}

/** @param {KeyboardEvent} event */
function keys(event) {
  const from = source(event);
  if (!from) return;
  if (event.key === "ArrowUp" || event.key === "ArrowDown") {
    event.preventDefault();
    step(from.row, event.key === "ArrowUp" ? -1 : 1, false);
  } else if (event.key === "Enter" && pending) {
    event.preventDefault();
    pending();
  } else if (event.key === "Escape" && pending) {
    cancelMove();
  }
}

/** @param {HTMLElement} row @param {-1 | 1} by @param {boolean} timed whether the move counts by itself after a while */
function step(row, by, timed) {
  const list = byId("rows");
  const other = by < 0 ? row.previousElementSibling : row.nextElementSibling;
  if (!other) return;
  // The row itself stays in the document: one that is taken out, even for a moment, loses the focus.
  glide(list, () => (by < 0 ? row.after(other) : row.before(other)));
  row.classList.add("moving");
  row.scrollIntoView({ block: "nearest" });
  announce(`${row.dataset.item}: place ${shown().indexOf(row.dataset.item ?? "") + 1} of ${order.length}. Enter keeps it, Escape takes it back.`);
  pending = () => settle(row);
  clearTimeout(timer);
  if (timed) timer = window.setTimeout(() => pending?.(), SETTLED);
}

const shown = () => [...byId("rows").children].map((row) => /** @type {HTMLElement} */ (row).dataset.item ?? "");

/** @param {HTMLElement} row */
function settle(row) {
  pending = null;
  clearTimeout(timer);
  row.classList.remove("moving");
  const now = shown();
  const item = row.dataset.item ?? "";
  if (now.indexOf(item) !== order.indexOf(item)) onMove(item, now);
}

/** Puts every row back. */
function cancelMove() {
  pending = null;
  clearTimeout(timer);
  const list = byId("rows");
  glide(list, () => list.append(...order.map((item) => /** @type {HTMLElement} */ (rows.get(item)))));
  for (const row of list.children) row.classList.remove("moving");
  announce("The move is taken back.");
}

/** @param {PointerEvent} event */
function startDrag(event) {
  const from = source(event);
  if (from?.kind !== "drag" || event.button !== 0) return;
  event.preventDefault();
  pending?.();
  const list = byId("rows");
  const { row } = from;
  const handle = /** @type {HTMLElement} */ (event.target);
  list.setPointerCapture(event.pointerId); // not the handle: it leaves the document for a moment when its row moves
  handle.focus({ preventScroll: true });
  let grip = event.clientY - row.getBoundingClientRect().top;
  row.classList.add("dragging");
  /** @param {PointerEvent} moved */
  const move = (moved) => {
    row.style.transform = "none";
    const middle = moved.clientY - grip + row.offsetHeight / 2;
    const before = row.previousElementSibling, after = row.nextElementSibling;
    if (before && middle < centre(before)) glide(list, () => before.before(row), row);
    else if (after && middle > centre(after)) glide(list, () => after.after(row), row);
    row.style.transform = `translateY(${moved.clientY - grip - row.getBoundingClientRect().top}px)`;
    const edge = 60;
    if (moved.clientY < edge) scrollBy(0, -12);
    else if (moved.clientY > innerHeight - edge) scrollBy(0, 12);
  };
  /** @param {Event} ended */
  const end = (ended) => {
    list.removeEventListener("pointermove", move);
    list.removeEventListener("pointerup", end);
    list.removeEventListener("pointercancel", end);
    row.classList.remove("dragging");
    row.style.transform = "";
    if (ended.type === "pointercancel") cancelMove();
    else settle(row);
  };
  list.addEventListener("pointermove", move);
  list.addEventListener("pointerup", end);
  list.addEventListener("pointercancel", end);
}

/** The middle of a row where it is laid out, whatever its movement. @param {Element} row */
function centre(row) {
  const list = byId("rows");
  const one = /** @type {HTMLElement} */ (row);
  return list.getBoundingClientRect().top + (one.offsetTop - list.offsetTop) + one.offsetHeight / 2;
}
