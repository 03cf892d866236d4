/** Requests to the server that the page came from, and its errors in plain words. */

/** @typedef {import("./types.js").Ranking} Ranking */

/** What went wrong, in words, and what to do about it. */
export class Trouble extends Error {
  /** @param {string} message @param {string} [remedy] @param {number} [status] */
  constructor(message, remedy = "", status = 0) {
    super(message);
    this.remedy = remedy;
    this.status = status;
  }
}

const KEY = "ccrank-key";

/** The API key lives as long as the tab. */
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  /** @param {string} value */
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/**
 * @param {string} path relative to the page
 * @param {any} [body] posted as JSON; a GET without it
 * @param {AbortSignal} [signal]
 * @returns {Promise<Response>}
 */
async function send(path, body, signal) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json, text/event-stream" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  /** @type {Response} */
  let response;
  try {
    response = await fetch(path, { method: body === undefined ? "GET" : "POST", headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Trouble("The server does not answer.", "Check that `ccrank serve` is still running, then try again.");
  }
  if (!response.ok) throw await troubleOf(response);
  return response;
}

/** @param {string} path @param {any} [body] @param {AbortSignal} [signal] @returns {Promise<any>} */
export const call = async (path, body, signal) => (await send(path, body, signal)).json();

/**
 * A ranking with its progress, as server-sent events.
 * @param {import("./types.js").RankRequest} request
 * @param {{progress?: (done: number, total: number) => void, partial?: (scores: Record<string, number>) => void}} watch
 * @param {AbortSignal} [signal]
 * @returns {Promise<Ranking>}
 */
export async function rank(request, watch, signal) {
  const response = await send("v1/rank", { ...request, stream: true, partial: Boolean(watch.partial) }, signal);
  if (!response.headers.get("Content-Type")?.startsWith("text/event-stream")) return response.json();
  for await (const { event, data } of events(response)) {
    if (event === "progress") watch.progress?.(data.done, data.total);
    else if (event === "partial") watch.partial?.(data.scores);
    else if (event === "result") return data;
    else if (event === "error") throw new Trouble(plain(messageOf(data) || "The ranking failed."), remedyOf(data.status ?? data.error?.status ?? 0));
  }
  throw new Trouble("The connection ended before the ranking was complete.", "Try again; if it happens again, look at the server's log.");
}

/** @param {Response} response @returns {AsyncGenerator<{event: string, data: any}>} */
async function* events(response) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      rest += done ? decoder.decode() + "\n\n" : decoder.decode(value, { stream: true });
      const blocks = rest.split(/\r?\n\r?\n/);
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const lines = block.split(/\r?\n/);
        const event = lines.find((line) => line.startsWith("event:"))?.slice(6).trim() ?? "message";
        const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
        if (data) yield { event, data: JSON.parse(data) };
      }
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** @param {Response} response */
async function troubleOf(response) {
  /** @type {any} */
  let data = null;
  try {
    data = await response.json();
  } catch {
    // not JSON: the status says what there is to say
  }
  const status = response.status;
  const wait = Number(response.headers.get("Retry-After")) || 0;
  const message = plain(messageOf(data)) || `The server answered with status ${status}.`;
  if (status === 401 || status === 403) return new Trouble("The server asks for an API key.", "Give it under “More”, then try again.", status);
  return new Trouble(message, remedyOf(status, wait), status);
}

/** @param {number} status @param {number} [wait] */
function remedyOf(status, wait = 0) {
  if (status === 413) return "Rank fewer or shorter items, or start the server with higher limits.";
  if (status === 429 || status === 503) return wait ? `The server is busy. Try again in ${wait} s.` : "The server is busy. Try again in a moment.";
  if (status === 504 || status === 408) return "Rank fewer items, or choose a quicker method.";
  if (status >= 500) return "The server's log says more.";
  return "";
}

/** The message of any form of JSON error. @param {any} data @returns {string} */
function messageOf(data) {
  const found = data?.error?.message ?? data?.error ?? data?.message ?? data?.detail;
  if (typeof found === "string") return found;
  if (Array.isArray(found)) return found.map((one) => `${(one.loc ?? []).slice(1).join(".")}: ${one.msg}`).join("; ");
  return "";
}

/** @type {[RegExp, string][]} */
const PLAIN = [
  [/name the poles with --poles LOW HIGH \(in Python poles=\(low, high\)\)/g, "name the poles, under the criterion"],
  [/say what the items are with --category \(category=…\)/g, "say what the items are"],
  [/give a few labels with --labels \(labels=\{…\}\)/g, "answer a few questions or move items"],
  [/use a larger model with --model \(model=…\)/g, "use a larger model"],
  [/name the poles: --poles \S+ \S+ \(poles=.*?\)\)/g, "choose it below"],
  [/or name the poles \(--poles LOW HIGH\)/g, "or name the poles below"],
  [/use --method auto \(method='auto'\)/g, "use the method auto"],
  [/give your own with --poles LOW HIGH/g, "name the poles, under the criterion"],
  [/give --query TEXT \(query=…\)/g, "choose “For a query” and type one"],
  [/, or have them cut with --truncate/g, ""],
  [/try --dtype float32/g, "start the server with --dtype float32"],
  [/; give one, such as --by size or --by 'how positive it is'/g, "; type one, such as size, or how positive it is"],
  [/the model itself: --model with .*/g, "a model that the server loads itself"],
  [/ \((?:in Python )?(?:by|category|labels|method|model|poles|query)=[^()]*(?:\([^()]*\))?\)/g, ""],
  [/--(by|category|context|method|model|poles|query)\b/g, "the $1"],
];

/** A message of the command line in the words of the page; flags that are not on the page name their setting of the server.
 * @param {string} text */
export const plain = (text) => PLAIN.reduce((said, [from, to]) => said.replace(from, to), text);
