/** The forms of /docs: send a request and show the answer. */

import { key } from "./api.js";
import { byId } from "./dom.js";

const field = /** @type {HTMLInputElement} */ (byId("key"));
field.value = key.get();
field.addEventListener("change", () => key.set(field.value));

for (const form of document.querySelectorAll("form")) {
  const body = form.querySelector("textarea");
  const answer = /** @type {HTMLElement} */ (form.querySelector("pre"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    answer.textContent = "…";
    /** @type {Record<string, string>} */
    const headers = body ? { "Content-Type": "application/json" } : {};
    if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
    try {
      const response = await fetch(form.dataset.path ?? "", { method: form.dataset.method, headers, body: body?.value });
      answer.textContent = `${response.status}\n${shown(await response.text())}`;
    } catch (error) {
      answer.textContent = String(error);
    }
  });
}

/** JSON with one value in each line; anything else as it is. @param {string} text */
function shown(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 1);
  } catch {
    return text;
  }
}
