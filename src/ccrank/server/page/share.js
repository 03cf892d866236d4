/** A link that holds the input in its fragment, which browsers send to no server. */

/** @typedef {import("./types.js").Label} Label */
/**
 * @typedef {{mode: string, items: string, by: string, query: string, low: string, high: string, category: string,
 *   context: string, method: string, model: string, labels: Label[], second: string}} Shared
 */

const MOST_CHARACTERS = 4_000_000;
const FIELDS = ["mode", "items", "by", "query", "low", "high", "category", "context", "method", "model", "second"];

/** @param {Shared} input @returns {Promise<string>} the fragment, without # */
export async function toFragment(input) {
  const kept = Object.fromEntries(Object.entries(input).filter(([, value]) => value.length));
  const packed = await through(new TextEncoder().encode(JSON.stringify(kept)), new CompressionStream("deflate-raw"));
  let binary = "";
  for (const byte of packed) binary += String.fromCharCode(byte);
  return "in=" + btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** @param {string} fragment with or without # @returns {Promise<Partial<Shared> | null>} null if it holds no input */
export async function fromFragment(fragment) {
  const found = /^#?in=([\w-]+)$/.exec(fragment);
  if (!found) return null;
  const binary = atob(found[1].replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(binary, (char) => char.charCodeAt(0));
  const text = new TextDecoder().decode(await through(bytes, new DecompressionStream("deflate-raw"), MOST_CHARACTERS));
  const given = JSON.parse(text);
  /** @type {Record<string, any>} */
  const input = {};
  for (const field of FIELDS) if (typeof given[field] === "string") input[field] = given[field];
  input.labels = Array.isArray(given.labels) ? given.labels.filter(isLabel) : [];
  return input;
}

/** @param {any} label @returns {label is Label} */
const isLabel = (label) => {
  const texts = label?.kind === "move" ? [label.item, label.above, label.below] : ["pair", "equal", "unknown"].includes(label?.kind) ? label.items : null;
  return Array.isArray(texts) && texts.length >= 2 && texts.every((text) => typeof text === "string");
};

/**
 * @param {Uint8Array} bytes
 * @param {CompressionStream | DecompressionStream} stream
 * @param {number} [most] more bytes than this are refused: a short link may unpack to a very long text
 * @returns {Promise<Uint8Array>}
 */
async function through(bytes, stream, most = Infinity) {
  const source = new Blob([/** @type {any} */ (bytes)]).stream();
  const reader = source.pipeThrough(/** @type {any} */ (stream)).getReader();
  /** @type {Uint8Array[]} */
  const parts = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > most) throw new Error("the link holds too much");
    parts.push(value);
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
