/** Files to items: CSV, JSON, JSON Lines and plain text, in UTF-8, or UTF-16 with a mark, as on the command line. */

import { Trouble } from "./api.js";
import { oneLine, parseCsv } from "./csv.js";

const MOST_BYTES = 20_000_000;

/**
 * The rows below the names of their columns; a file of texts alone has one column without a name.
 * @param {File} file
 * @returns {Promise<{names: string[] | null, rows: string[][]}>}
 */
export async function rowsOf(file) {
  const { name } = file;
  if (file.size > MOST_BYTES) throw new Trouble(`“${name}” is larger than 20 MB.`, "Use `ccrank rank --file` for files of this size.");
  const text = decoded(name, await file.arrayBuffer());
  const found = /\.(csv|tsv)$/i.test(name) ? table(name, parseCsv(text))
    : /\.json$/i.test(name) ? records(name, array(name, text))
    : /\.(jsonl|ndjson)$/i.test(name) ? records(name, lines(text).map((line, index) => parsed(line, `“${name}”, line ${index + 1},`)))
    : { names: null, rows: lines(text).map((line) => [line]) };
  if (!found.rows.length) throw new Trouble(`“${name}” is empty.`, "Choose a file with one item per row.");
  return found;
}

/** @param {string} text */
const lines = (text) => text.split(/\r?\n/).filter((line) => line.trim());

/** @param {string} name @param {ArrayBuffer} bytes */
function decoded(name, bytes) {
  const remedy = "Save it as CSV in UTF-8 (in Excel: “CSV UTF-8”), or use `ccrank rank --file`, which reads Excel and Parquet.";
  const mark = [...new Uint8Array(bytes).subarray(0, 2)].join();
  const encoding = mark === "255,254" ? "utf-16le" : mark === "254,255" ? "utf-16be" : "utf-8";
  /** @type {string} */
  let text;
  try {
    text = new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    throw new Trouble(`“${name}” is not text in UTF-8 or UTF-16.`, remedy);
  }
  if (text.includes("\0")) throw new Trouble(`“${name}” is not a text file.`, remedy);
  return text;
}

/** @param {string} name @param {string[][]} rows */
function table(name, rows) {
  if (rows.length === 1) throw new Trouble(`“${name}” has no rows below its head.`, "The first row of a CSV file names the columns.");
  const width = Math.max(...rows.map((row) => row.length));
  const names = Array.from({ length: width }, (_, column) => rows[0]?.[column]?.trim() || `column ${column + 1}`);
  return { names, rows: rows.slice(1) };
}

/** @param {string} text @param {string} where @returns {unknown} */
function parsed(text, where) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Trouble(`${where} is not valid JSON.`, "A JSON file holds one array; a JSON Lines file one value on each line.");
  }
}

/** @param {string} name @param {string} text @returns {unknown[]} */
function array(name, text) {
  const found = parsed(text, `“${name}”`);
  if (!Array.isArray(found)) throw new Trouble(`“${name}” is not a JSON array.`, "Give an array of texts, or of objects with the same fields.");
  return found;
}

/** Texts as lines, objects as rows. @param {string} name @param {unknown[]} values */
function records(name, values) {
  if (values.every((value) => typeof value === "string")) return { names: null, rows: values.filter((value) => value.trim()).map((value) => [value]) };
  const strange = values.findIndex((value) => typeof value !== "object" || value === null || Array.isArray(value));
  if (strange >= 0) throw new Trouble(`“${name}”: value ${strange + 1} is not an object.`, "Give texts alone, or objects with the same fields.");
  const objects = /** @type {Record<string, unknown>[]} */ (values);
  const names = [...new Set(objects.flatMap(Object.keys))];
  return { names, rows: objects.map((one) => names.map((field) => cell(one[field]))) };
}

/** @param {unknown} value */
const cell = (value) => (value === undefined || value === null ? "" : typeof value === "string" ? value : JSON.stringify(value));

/** The items of one line with commas, where there are three or more short ones. @param {string[]} items @returns {string[] | null} */
export function splitAtCommas(items) {
  const parts = items.length === 1 ? items[0].split(/[,;]/).map(oneLine).filter(Boolean) : [];
  return parts.length > 2 && parts.every((part) => part.length < 40) ? parts : null;
}
