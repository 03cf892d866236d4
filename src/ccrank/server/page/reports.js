/** /reports/: links to the reports of studies. */

import { call } from "./api.js";
import { byId, fill, h, show } from "./dom.js";

/** @type {string[]} */
const names = (await call("../v1/page").catch(() => ({ reports: [] }))).reports;
fill(byId("reports"), ...names.map((name) => h("li", null, h("a", { href: name.split("/").map(encodeURIComponent).join("/") }, name.replace(/\.html$/, "")))));
show(byId("none"), !names.length);
