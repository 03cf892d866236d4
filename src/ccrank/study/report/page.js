"use strict";
(() => {
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const make = (tag, text, name) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (name) element.className = name;
    return element;
  };

  // Tables: sorted by the buttons in their headers, filtered by search terms and columns.
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    if (!("value" in cell.dataset)) return cell.textContent;
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  };
  const compare = (a, b, sign) => {
    if (a === null || b === null) return (a === null) - (b === null); // missing values come last
    return sign * (typeof a === "number" && typeof b === "number" ? a - b : collator.compare(a, b));
  };
  for (const box of document.querySelectorAll(".tablebox")) {
    const body = box.querySelector("tbody");
    const rows = [...body.rows];
    const heads = [...box.querySelectorAll("thead th")];
    const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const numeric = rows.some((row) => row.cells[column].classList.contains("n"));
        const before = head.getAttribute("aria-sort");
        const first = numeric ? "descending" : "ascending";
        const second = numeric ? "ascending" : "descending";
        const now = before === first ? second : first;
        for (const other of heads) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", now);
        const sign = now === "ascending" ? 1 : -1;
        const keyed = rows.map((row, place) => [valueOf(row, column), place, row]);
        keyed.sort((a, b) => compare(a[0], b[0], sign) || a[1] - b[1]);
        body.append(...keyed.map((entry) => entry[2]));
      });
    });
    const search = box.querySelector("[data-filter]");
    const selects = [...box.querySelectorAll("[data-filter-column]")];
    const count = box.querySelector("[data-count]");
    for (const select of selects) {
      const found = new Set(rows.map((row) => row.cells[select.dataset.filterColumn].textContent));
      for (const text of found) select.append(new Option(text, text));
    }
    const filter = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const fits =
          words.every((word) => texts.get(row).includes(word)) &&
          selects.every((one) => !one.value || row.cells[one.dataset.filterColumn].textContent === one.value);
        row.hidden = !fits;
        shown += fits;
      }
      const all = `${rows.length} row${rows.length === 1 ? "" : "s"}`;
      count.textContent = shown === rows.length ? all : `${shown} of ${all}`;
    };
    box.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
    search.addEventListener("input", filter);
    for (const select of selects) select.addEventListener("change", filter);
    filter();
  }

  // Tasks: rankings side by side, drawn when chosen.
  const source = document.getElementById("rankings");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const byId = (name) => document.getElementById(name);
  const [search, model, setting, picker, count] = ["search", "model", "setting", "select", "count"].map((name) =>
    byId("task-" + name)
  );
  const MAIN = "main";
  const MOST_OPTIONS = 1000;
  const SHADES = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
  const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const settingOf = (column) => (column.split === "none" || column.split === "same-task" ? MAIN : column.split);
  const unpack = (text) =>
    Array.from({ length: text.length / 2 }, (_, i) => (64 * DIGITS.indexOf(text[2 * i]) + DIGITS.indexOf(text[2 * i + 1])) / 4095);
  const number = (percent, signed) =>
    percent === null ? "–" : (percent < 0 ? "−" : signed ? "+" : "") + (Math.abs(percent) / 100).toFixed(2);

  data.models.forEach((name, index) => model.append(new Option(name, index)));
  for (const name of [...new Set(data.columns.map(settingOf))].sort((a, b) => (b === MAIN) - (a === MAIN)))
    setting.append(new Option(name === MAIN ? "main" : name, name));
  const haystacks = data.tasks.map((task) => [task.dataset, task.id, task.by, ...task.items].join("\n").toLowerCase());

  const itemCell = (task, item, score) => {
    const cell = make("td");
    const chip = make("span", undefined, "item");
    const name = make("span", undefined, "name");
    name.dir = "auto";
    name.textContent = task.items[item];
    name.title = task.items[item];
    if (task.gold) {
      const last = task.items.length - 1;
      const shade = Math.round((SHADES.length - 1) * (1 - task.gold[item] / last));
      chip.style.background = SHADES[shade];
      chip.style.color = shade < 5 ? "#fff" : "#000";
      const rank = make("sup", String(task.gold[item] + 1));
      rank.setAttribute("aria-label", `gold rank ${task.gold[item] + 1}`);
      chip.append(rank);
    }
    chip.append(name);
    if (score !== undefined) {
      const bar = make("i");
      bar.style.width = `${Math.max(2, Math.round(100 * score))}%`;
      chip.append(bar);
    }
    cell.append(chip);
    return cell;
  };

  const show = () => {
    const task = data.tasks[picker.value];
    const table = byId("task-table");
    table.replaceChildren();
    byId("task-title").textContent = task ? `${task.dataset}: ${task.id}, by ${task.by}` : "No matching task";
    const context = byId("task-context");
    context.hidden = !(task && task.context);
    context.textContent = (task && task.context) || "";
    if (!task) return;
    const columns = [];
    if (task.gold) {
      const order = task.items.map((_, item) => item).sort((a, b) => task.gold[a] - task.gold[b]);
      columns.push({ head: "gold", notes: [], order });
    }
    for (const [place, packed, tau, low, high] of task.rankings) {
      const column = data.columns[place];
      if (column.model !== Number(model.value) || settingOf(column) !== setting.value) continue;
      const scores = unpack(packed);
      const order = task.items.map((_, item) => item);
      order.sort((a, b) => scores[b] - scores[a] || collator.compare(task.items[a], task.items[b]));
      const sign = column.directed ? "τ" : "|τ|";
      const notes = [column.family];
      if (tau !== null) notes.push(`${sign} ${number(tau, column.directed)}`);
      if (low !== high) notes.push(`runs ${number(low, column.directed)} to ${number(high, column.directed)}`);
      columns.push({ head: column.method + (column.directed ? "" : " ↕"), notes, order, scores });
    }
    const head = table.createTHead().insertRow();
    const corner = make("th", "rank");
    corner.scope = "col";
    head.append(corner);
    for (const column of columns) {
      const cell = make("th", column.head);
      cell.scope = "col";
      for (const note of column.notes) cell.append(make("span", note));
      head.append(cell);
    }
    const body = table.createTBody();
    for (let rank = 0; rank < task.items.length; rank++) {
      const row = body.insertRow();
      const cell = make("th", String(rank + 1));
      cell.scope = "row";
      row.append(cell);
      for (const column of columns) {
        const item = column.order[rank];
        row.append(itemCell(task, item, column.scores && column.scores[item]));
      }
    }
  };

  const list = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const before = picker.value;
    const fitting = [];
    haystacks.forEach((text, index) => words.every((word) => text.includes(word)) && fitting.push(index));
    const groups = new Map();
    for (const index of fitting.slice(0, MOST_OPTIONS)) {
      const { dataset, id } = data.tasks[index];
      if (!groups.has(dataset)) groups.set(dataset, make("optgroup"));
      groups.get(dataset).label = dataset;
      const option = new Option(id, index);
      option.title = id;
      groups.get(dataset).append(option);
    }
    picker.replaceChildren(...groups.values());
    count.textContent =
      `${fitting.length} of ${data.tasks.length} tasks` + (fitting.length > MOST_OPTIONS ? `, the first ${MOST_OPTIONS} listed` : "");
    picker.value = fitting.includes(Number(before)) && before !== "" ? before : String(fitting[0] ?? "");
    show();
  };
  search.form.addEventListener("submit", (event) => event.preventDefault());
  search.addEventListener("input", list);
  for (const one of [model, setting, picker]) one.addEventListener("change", show);
  list();
})();
