/** Exports of a ranking: CSV, JSON and a link. */

import { oneLine, writeCsv } from "./csv.js";
import { announce, byId, h, show } from "./dom.js";
import { fields } from "./input.js";
import { toFragment } from "./share.js";
import { now } from "./state.js";

/** @typedef {import("./types.js").Ranking} Ranking */

/** @type {(id: string) => HTMLInputElement} */
const field = (id) => byId(id);

/** Allows or forbids to take the ranking. @param {boolean} on */
export function tools(on) {
  for (const id of ["share", "csv", "json"]) field(id).disabled = !on;
}

/** @param {string} name @param {string} type @param {string} text */
function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** The name of a file, from the criterion or the query. */
function fileName() {
  const words = now.request?.query ?? now.request?.by ?? "ranking";
  return `ranked-by-${words.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 40) || "criterion"}`;
}

/** Rank, item and score; or all columns of the CSV that was given. @param {Ranking} ranking */
export function csvOf(ranking) {
  const doubt = ranking.items[0]?.deviation !== undefined;
  const more = doubt ? ["deviation", "rank_low", "rank_high"] : [];
  const of = (/** @type {import("./types.js").Row} */ row) => [row.rank, row.score, ...(doubt ? [row.deviation, row.rank_low, row.rank_high] : [])];
  const table = now.table;
  if (!table) {
    return writeCsv([["rank", "item", "score", ...more], ...ranking.items.map((row) => {
      const [rank, ...rest] = of(row);
      return [rank, row.item, ...rest];
    })]);
  }
  const found = new Map(ranking.items.map((row) => [row.item, row]));
  const taken = new Set(table.names.map((name) => name.trim().toLowerCase()));
  const free = (/** @type {string} */ name) => {
    let tried = name;
    for (let number = 1; taken.has(tried); number++) tried = number === 1 ? `ccrank_${name}` : `ccrank_${name}_${number}`;
    return tried;
  };
  const rows = table.rows.map((cells) => ({ cells, row: found.get(oneLine(cells[table.column] ?? "")) }));
  rows.sort((one, other) => (one.row?.rank ?? Infinity) - (other.row?.rank ?? Infinity) || 0);
  return writeCsv([[...["rank", "score", ...more].map(free), ...table.names], ...rows.map(({ cells, row }) => [...(row ? of(row) : ["", "", ...more.map(() => "")]), ...table.names.map((_, column) => cells[column] ?? "")])]);
}

export async function share() {
  const link = new URL(location.href);
  const input = { .../** @type {any} */ (fields()), labels: now.labels, second: now.second ? now.secondBy : "" };
  link.hash = await toFragment(input);
  field("link").value = link.href;
  const local = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
  byId("link-note").textContent = `The link holds the input; nothing is stored on a server.${local ? " It opens on this machine alone, while the server runs." : ""}`;
  show(byId("link-box"), true);
  history.replaceState(null, "", link.href);
  try {
    await navigator.clipboard.writeText(link.href);
    announce("The link is copied. It holds the input; nothing is stored on a server.");
    byId("share").textContent = "Copied";
  } catch {
    field("link").focus();
    field("link").select();
    announce("The link is in the box below; copy it from there.");
  }
  setTimeout(() => (byId("share").textContent = "Copy link"), 2500);
}

export function startExport() {
  byId("share").addEventListener("click", share);
  byId("csv").addEventListener("click", () => now.ranking && download(`${fileName()}.csv`, "text/csv;charset=utf-8", csvOf(now.ranking)));
  byId("json").addEventListener("click", () => now.ranking && download(`${fileName()}.json`, "application/json", `${JSON.stringify(now.ranking, null, 2)}\n`));
}
