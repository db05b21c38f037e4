"use strict";
// Tables that sort and filter, and every figure as SVG and CSV. Works on what is on the page; needs no network.
(() => {
  const all = (what, from = document) => [...from.querySelectorAll(what)];
  const raw = (cell) => cell.dataset.v !== undefined ? cell.dataset.v : "";
  const value = (cell) => { const text = raw(cell); return text === "" ? null : isNaN(text) ? text : +text; };

  function save(name, text, type) {
    const link = document.createElement("a"), address = URL.createObjectURL(new Blob([text], { type }));
    link.href = address;
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }
  const fileName = (name, ending) => name.replace(/[^\w.+-]+/g, "-").replace(/^-+|-+$/g, "") + ending;
  const quoted = (cell) => { const text = cell === null || cell === undefined ? "" : String(cell); return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text; };
  const csv = (rows) => rows.map((row) => row.map(quoted).join(",")).join("\n") + "\n";

  function ofRecords(records) {
    const names = [...new Set(records.flatMap((record) => Object.keys(record)))];
    return csv([names, ...records.map((record) => names.map((name) => record[name]))]);
  }
  function ofTable(table) {
    const rows = all("tbody tr", table).filter((row) => !row.hidden).map((row) => [...row.cells].map(raw));
    return csv([all("thead th", table).map((head) => head.dataset.key), ...rows]);
  }
  // A picture that stands alone carries the page's light colours with it.
  function ofSvg(svg) {
    const copy = svg.cloneNode(true), style = document.createElementNS("http://www.w3.org/2000/svg", "style");
    const rules = [...document.styleSheets[0].cssRules].filter((rule) => rule.selectorText !== undefined);
    style.textContent = rules.map((rule) => rule.cssText).join("\n") + "\nsvg { background: #fff; width: auto }";
    const [, , width, height] = svg.getAttribute("viewBox").split(" ");
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    copy.prepend(style);
    return new XMLSerializer().serializeToString(copy);
  }
  function button(text, about, act) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.title = about;
    made.addEventListener("click", act);
    return made;
  }
  function tools(...buttons) {
    const box = document.createElement("span");
    box.className = "tools";
    box.append(...buttons);
    return box;
  }
  function offer(figure, records) {
    const name = figure.dataset.name, svg = figure.querySelector("svg"), caption = figure.querySelector("figcaption");
    const made = [button("CSV", "the numbers of this figure", () => save(fileName(name, ".csv"), ofRecords(records()), "text/csv"))];
    if (svg) made.unshift(button("SVG", "this figure as a picture", () => save(fileName(name, ".svg"), ofSvg(svg), "image/svg+xml")));
    caption.append(tools(...made));
  }

  function sortable(table) {
    const heads = all("thead th", table), body = table.tBodies[0];
    heads.forEach((head, column) => {
      const sort = () => {
        const down = head.getAttribute("aria-sort") === "ascending", sign = down ? -1 : 1;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => value(row.cells[column]);
        const compare = (a, b) => a === null ? (b === null ? 0 : 1) : b === null ? -1 : sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
        body.append(...[...body.rows].sort((a, b) => compare(key(a), key(b))));
      };
      head.tabIndex = 0;
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); } });
    });
  }
  function filterable(table) {
    const box = document.createElement("p"), input = document.createElement("input"), count = document.createElement("small");
    const rows = [...table.tBodies[0].rows], total = rows.length;
    const save_ = button("CSV", "the rows shown", () => save(fileName(table.dataset.name, ".csv"), ofTable(table), "text/csv"));
    input.type = "search";
    input.placeholder = "filter, such as sleep";
    input.setAttribute("aria-label", `filter the policies of ${table.dataset.name}`);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/[\s,|]+/).filter(Boolean);
      rows.forEach((row) => { row.hidden = words.length > 0 && !words.some((word) => raw(row.cells[0]).toLowerCase().includes(word)); });
      const shown = rows.filter((row) => !row.hidden).length;
      count.textContent = shown < total ? ` ${shown} of ${total}` : "";
    });
    box.className = "filter";
    box.append(input, count, tools(save_));
    table.parentElement.before(box);
  }

  window.wattflowPage = { offer, ofRecords, ofSvg, ofTable };
  all("table.sort").forEach((table) => { sortable(table); filterable(table); });
  all("figure").forEach((figure) => {
    const rows = figure.querySelector("script.rows");
    if (rows) offer(figure, () => JSON.parse(rows.textContent));
  });
})();
