/** /docs: the routes of openapi.json with their fields, and forms that send requests. */

import { key } from "./api.js";
import { byId, fill, h } from "./dom.js";

/** @typedef {Record<string, any>} Schema */

const field = /** @type {HTMLInputElement} */ (byId("key"));
field.value = key.get();
field.addEventListener("change", () => key.set(field.value));

/** @type {Schema} */
const api = await (await fetch("openapi.json")).json();
fill(byId("routes"), ...Object.entries(api.paths).flatMap(([path, methods]) => (
  Object.entries(methods).map(([method, about]) => route(path, method.toUpperCase(), /** @type {Schema} */ (about))))));

/** @param {string} path @param {string} method @param {Schema} about */
function route(path, method, about) {
  const json = about.requestBody?.content["application/json"];
  const example = JSON.stringify(json?.example ?? {}, null, 1);
  const body = json && /** @type {HTMLTextAreaElement} */ (h("textarea", { rows: 6, "aria-label": "The body of the request", value: example }));
  const answer = h("pre", { "aria-live": "polite" });
  const statuses = Object.entries(about.responses).map(([status, reply]) => h("li", null, h("code", null, status), ` ${reply.description}`));
  const onsubmit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    answer.textContent = "…";
    /** @type {Record<string, string>} */
    const headers = body ? { "Content-Type": "application/json" } : {};
    if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
    try {
      const response = await fetch(path.slice(1), { method, headers, body: body?.value });
      answer.textContent = `${response.status}\n${shown(await response.text())}`;
    } catch (error) {
      answer.textContent = String(error);
    }
  };
  return h("section", null, h("h2", null, h("code", null, `${method} ${path}`)),
    ...about.description.split("\n\n").map((/** @type {string} */ text) => h("p", null, text)),
    json && h("h3", null, "Fields"), json && h("ul", null, ...fields(json.schema)),
    h("h3", null, "Answers"), h("ul", null, ...statuses),
    h("form", { onsubmit }, h("h3", null, "Try it"), body, h("p", null, h("button", null, "Send")), answer));
}

/** Name, type and description of each field of a body. @param {Schema} reference */
function fields(reference) {
  const { properties, required = [] } = api.components.schemas[nameOf(reference)];
  return Object.entries(properties).map(([name, about]) => h("li", null, h("code", null, name), " ",
    h("span", null, typeOf(about), !required.includes(name) && ", optional"), " ", about.description));
}

/** @param {Schema} about */
function nameOf(about) {
  return about.$ref.split("/").at(-1);
}

/** @param {Schema} about @returns {string} */
function typeOf(about) {
  if (about.anyOf) return about.anyOf.map(typeOf).filter((/** @type {string} */ kind) => kind !== "null").join(" or ");
  if (about.$ref) return nameOf(about);
  if (about.type === "array") return about.items?.type || about.items?.anyOf || about.items?.$ref ? `list of ${typeOf(about.items)}` : "list";
  return about.type ?? "any";
}

/** JSON with one value in each line; anything else as it is. @param {string} text */
function shown(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 1);
  } catch {
    return text;
  }
}
