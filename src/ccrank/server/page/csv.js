/** CSV in and out, as RFC 4180 has it; the delimiter of a file is guessed. */

const DELIMITERS = [",", "\t", ";", "|"];

/**
 * The rows of a text; quoted cells may hold delimiters, quotes and line breaks. Empty lines are left out.
 * @param {string} text
 * @param {string} [delimiter]
 * @returns {string[][]}
 */
export function parseCsv(text, delimiter = guess(text)) {
  /** @type {string[][]} */
  const rows = [];
  /** @type {string[]} */
  let row = [];
  let cell = "", quoted = false, wasQuoted = false;
  const source = text.replace(/^\uFEFF/, "");
  const endRow = () => {
    row.push(cell);
    if (row.length > 1 || row[0] !== "" || wasQuoted) rows.push(row);
    row = [];
    cell = "";
    wasQuoted = false;
  };
  for (let place = 0; place < source.length; place++) {
    const char = source[place];
    if (quoted) {
      if (char !== '"') cell += char;
      else if (source[place + 1] === '"') {
        cell += '"';
        place++;
      } else quoted = false;
    } else if (char === '"' && cell === "") {
      quoted = wasQuoted = true;
    } else if (char === delimiter) {
      row.push(cell);
      cell = "";
    } else if (char === "\n" || char === "\r") {
      if (char === "\r" && source[place + 1] === "\n") place++;
      endRow();
    } else cell += char;
  }
  if (cell !== "" || row.length || wasQuoted) endRow();
  return rows;
}

/** The delimiter that is most frequent outside quotes in the first line. @param {string} text */
function guess(text) {
  const line = text.replace(/^\uFEFF/, "").replace(/"(?:[^"]|"")*"/g, "").split(/[\r\n]/, 1)[0];
  const counts = DELIMITERS.map((one) => line.split(one).length);
  return DELIMITERS[counts.indexOf(Math.max(...counts))];
}

/** @param {(string | number | null | undefined)[][]} rows */
export function writeCsv(rows) {
  return rows.map((row) => row.map(quote).join(",")).join("\r\n") + "\r\n";
}

/** @param {string | number | null | undefined} cell */
function quote(cell) {
  const text = cell === null || cell === undefined ? "" : String(cell);
  return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** One line for the box of items. @param {string} cell */
export const oneLine = (cell) => cell.replace(/\s+/g, " ").trim();

/** The column most likely to hold the items: the one with the most letters and distinct values. @param {string[][]} rows */
export function likelyColumn(rows) {
  const [head, ...body] = rows;
  const worth = head.map((_, column) => {
    const cells = body.slice(0, 200).map((row) => row[column] ?? "");
    const letters = cells.filter((cell) => /\p{L}/u.test(cell)).length;
    return letters * new Set(cells).size;
  });
  return worth.indexOf(Math.max(...worth));
}
