/** Two criteria as a scatter plot. */

import { fill, h, signed, svg } from "./dom.js";
import { placer, ranks, tau } from "./stats.js";

/** @typedef {import("./types.js").Ranking} Ranking */
/** @typedef {{x: number, y: number, width: number, height: number}} Box */

const LEFT = 56, RIGHT = 24, TOP = 24, BOTTOM = 56;
/** A narrow plot is drawn smaller, so that its texts keep their size. */
let [WIDTH, HEIGHT] = [720, 520];
const MOST_NAMED = 60;
const LETTERS = 26;

/**
 * @param {HTMLElement} place
 * @param {Ranking} across
 * @param {Ranking} up
 */
export function showScatter(place, across, up) {
  [WIDTH, HEIGHT] = innerWidth < 620 ? [360, 400] : [720, 520];
  const items = across.items.map((row) => row.item);
  const xs = across.items.map((row) => row.score);
  const other = new Map(up.items.map((row) => [row.item, row.score]));
  const ys = items.map((item) => other.get(item) ?? NaN);
  const agreement = tau(xs, ys);
  const byX = ranks(xs), byY = ranks(ys);
  const toX = placer(xs), toY = placer(ys);
  const points = items.map((item, index) => ({
    item, x: LEFT + toX(xs[index]) * (WIDTH - LEFT - RIGHT), y: HEIGHT - BOTTOM - toY(ys[index]) * (HEIGHT - TOP - BOTTOM),
  }));
  const titles = [across, up].map(title);
  fill(place,
    h("p.lead", null, `${describe(agreement)} (τ = ${signed(agreement)}; 0 by chance).`),
    h("figure", null, drawing(points, across, up, titles), h("figcaption.hidden", null, `${titles[0]} across, ${titles[1]} upwards; the table below has the same ranks.`)),
    h("details", null, h("summary", null, "As a table"),
      h("div.scroll", { tabIndex: 0, role: "region", "aria-label": "Ranks by both criteria" }, h("table", null,
        h("thead", null, h("tr", null, ...["Item", ...titles].map((text, index) => h(index ? "th.number" : "th", { scope: "col" }, text)))),
        h("tbody", null, ...items.map((item, index) => h("tr", null,
          h("th", { scope: "row", dir: "auto" }, item), h("td.number", null, byX[index]), h("td.number", null, byY[index]))))))));
}

/** @param {Ranking} ranking */
const title = (ranking) => ranking.understood?.name ?? ranking.criterion.name;

/** @param {number} agreement */
function describe(agreement) {
  if (!Number.isFinite(agreement)) return "One of the two puts all items in the same place";
  const size = Math.abs(agreement);
  if (size < 0.15) return "The two orders have little to do with each other";
  const much = size > 0.6 ? "much" : size > 0.35 ? "fairly" : "somewhat";
  if (agreement > 0) return much === "much" ? "The two orders are much alike" : `The two orders are ${much} alike`;
  return much === "much" ? "The two orders are nearly opposite" : `The two orders are ${much} opposed`;
}

/**
 * @param {{item: string, x: number, y: number}[]} points
 * @param {Ranking} across @param {Ranking} up @param {string[]} titles
 */
function drawing(points, across, up, titles) {
  const [left, right] = poles(across), [bottom, top] = poles(up);
  const floor = HEIGHT - BOTTOM;
  const named = points.length <= MOST_NAMED;
  const texts = named ? labels(points) : [];
  const plot = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "scatter", "aria-label": `${points.length} items by ${titles[0]} and by ${titles[1]}` },
    svg("path", { class: "axis", d: `M${LEFT} ${TOP}V${floor}H${WIDTH - RIGHT}` }),
    svg("text", { x: LEFT, y: floor + 22, class: "pole" }, left),
    svg("text", { x: WIDTH - RIGHT, y: floor + 22, class: "pole", "text-anchor": "end" }, right),
    svg("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: floor + 42, class: "name", "text-anchor": "middle" }, titles[0]),
    svg("text", { x: -floor, y: LEFT - 14, class: "pole", transform: "rotate(-90)" }, bottom),
    svg("text", { x: -TOP, y: LEFT - 14, class: "pole", transform: "rotate(-90)", "text-anchor": "end" }, top),
    svg("text", { x: -(TOP + floor) / 2, y: LEFT - 36, class: "name", transform: "rotate(-90)", "text-anchor": "middle" }, titles[1]));
  for (const { item, x, y } of points) plot.append(svg("circle", { cx: x, cy: y, r: 5 }, svg("title", {}, item)));
  for (const { text, x, y } of texts) plot.append(svg("text", { x, y, class: "label" }, text));
  return plot;
}

/** @param {Ranking} ranking @returns {[string, string]} */
const poles = (ranking) => ranking.understood?.poles ?? ranking.details?.poles ?? ["low", "high"];

/**
 * A place for the name of each point, beside, above or below it, where no other name is and no other point is nearer; none
 * if all are taken.
 * @param {{item: string, x: number, y: number}[]} points
 */
function labels(points) {
  /** @type {Box[]} */
  const taken = points.map(({ x, y }) => ({ x: x - 6, y: y - 6, width: 12, height: 12 }));
  const found = [];
  const pen = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  for (const { item, x, y } of points) {
    const text = item.length > LETTERS ? `${item.slice(0, LETTERS - 1)}…` : item;
    const width = pen.measureText(text).width + 1, height = 15;
    const middle = Math.max(LEFT + 1, Math.min(WIDTH - 3 - width, x - width / 2));
    const options = [[x + 9, y + 4], [x - 9 - width, y + 4], [middle, y - 10], [middle, y + 20]];
    for (const [left, base] of options) {
      const box = { x: left, y: base - 12, width, height };
      const inside = left > LEFT && left + width < WIDTH - 2 && box.y > 2 && base < HEIGHT - BOTTOM;
      const clear = points.every((one) => (one.x === x && one.y === y) || gap(one, box) > gap({ x, y }, box));
      if (inside && clear && !taken.some((one) => overlap(one, box))) {
        taken.push(box);
        found.push({ text, x: left, y: base });
        break;
      }
    }
  }
  return found;
}

/** How far a point is from a box. @param {{x: number, y: number}} point @param {Box} box */
const gap = ({ x, y }, box) => Math.hypot(Math.max(box.x - x, 0, x - box.x - box.width), Math.max(box.y - y, 0, y - box.y - box.height));

/** @param {Box} a @param {Box} b */
const overlap = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
