"use strict";
// Draws two timelines (attempts by node over stacked power) side by side on one shared time axis. Data: the JSON in #runs.
(() => {
  const runs = JSON.parse(document.getElementById("runs").textContent);
  const box = document.getElementById("timelines");
  if (!runs.length || !box) return;
  const RIGHT = 14, POWER = 130, GAP = 16, AXIS = 26, PAIR = 860, BETWEEN = 16, BOX = 30;
  let WIDTH = 1120, LEFT = 132;
  const choose = { workload: id("workload"), above: id("above"), below: id("below") }, tip = id("tip");
  const unique = (list) => [...new Set(list)];
  const of = (workload) => runs.filter((run) => run.workload === workload);

  function id(name) { return document.getElementById(name); }
  function el(name, attributes, text) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    return node;
  }
  function fill(select, names, wanted) {
    select.replaceChildren(...names.map((name) => new Option(name, name, false, name === wanted)));
  }
  function time(s) {
    if (s >= 7200) return (s / 3600).toFixed(1) + " h";
    return s >= 600 ? (s / 60).toFixed(1) + " min" : +s.toFixed(s < 10 ? 2 : 1) + " s";
  }
  function energy(j) { return j >= 1e8 ? (j / 3.6e6).toFixed(1) + " kWh" : +(j / 1000).toPrecision(4) + " kJ"; }
  function timeTicks(span) {
    const [size, unit] = span >= 7200 ? [3600, " h"] : span >= 600 ? [60, " min"] : [1, " s"];
    return ticks(span / size, Math.max(3, Math.min(8, Math.floor(WIDTH / 90)))).map((at) => [at * size, at + unit]);
  }
  function ticks(high, wanted) {
    const raw = high / wanted, size = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((f) => f * size).find((s) => s >= raw) || raw;
    const list = [];
    for (let i = 0; i * step <= high * 1.0001; i++) list.push(+(i * step).toPrecision(6));
    return list;
  }
  const colour = (group) => `var(--g${group % 8})`;

  function rowsOf(run) {
    const lanes = run.lanes || run.rows.map(() => 1), all = lanes.reduce((a, b) => a + b, 0);
    const lane = Math.max(2, Math.min(9, 300 / all));
    let y = 4;
    return run.rows.map((name, i) => {
      const height = Math.max(run.rows.length > 20 ? 9 : 14, lanes[i] * lane), row = { name, y, height, lane: height / lanes[i], group: run.rowGroup[i] };
      y += height + 3;
      return row;
    });
  }

  // Hatched where a node sleeps; of a row of several nodes, as high as their share.
  function sleeping(run, rows, x, svg) {
    const hatch = el("pattern", { id: `hatch-${svg.dataset.side}`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
    hatch.append(el("rect", { class: "hatch-back", width: 6, height: 6 }), el("line", { class: "hatch", x1: 0, x2: 0, y1: 0, y2: 6 }));
    svg.append(hatch);
    for (const [row, from, to, share] of run.asleep) {
      const { y, height, name } = rows[row];
      const bar = el("rect", { class: "asleep", x: x(from), y, width: Math.max(0.5, x(to) - x(from)), height, fill: `url(#hatch-${svg.dataset.side})`, opacity: share });
      bar.dataset.tip = `${name}${share < 1 ? " (in part)" : ""} asleep\n${time(from)} → ${time(to)}`;
      svg.append(bar);
    }
  }

  function bars(run, rows, x, svg) {
    for (const [row, lane, placed, start, end, task, func, node, variant, outcome] of run.bars) {
      const { y, lane: height, group } = rows[row], top = y + lane * height, tall = Math.max(0.8, height - 0.6);
      if (start > placed) svg.append(el("rect", { class: "before", x: x(placed), y: top, width: x(start) - x(placed), height: tall, fill: colour(group) }));
      const bar = el("rect", { class: outcome ? "bar failed" : "bar", x: x(start), y: top, width: Math.max(0.5, x(end) - x(start)), height: tall, fill: colour(group) });
      bar.dataset.tip = `${task} (${func}) on ${node} as ${variant}${outcome ? ", " + outcome.replace("_", " ") : ""}\n${time(start)} → ${time(end)}, runs ${time(end - start)}` + (start > placed ? `\nplaced at ${time(placed)}` : "");
      svg.append(bar);
    }
  }

  function strips(run, rows, x, svg) {
    run.busy.forEach((shares, row) => {
      const step = run.span / shares.length, { y, height, group, name } = rows[row];
      shares.forEach((share, i) => {
        if (share <= 0) return;
        const bin = el("rect", { x: x(i * step), y, width: x((i + 1) * step) - x(i * step) + 0.3, height, fill: colour(group), opacity: 0.12 + 0.88 * Math.min(1, share) });
        bin.dataset.tip = `${name}: ${(100 * share).toFixed(0)} % of its threads busy`;
        svg.append(bin);
      });
    });
  }

  function power(run, x, y, svg, most) {
    const bins = run.watts[0].length, step = run.span / bins, under = new Array(bins).fill(0);
    run.watts.forEach((watts, group) => {
      const upper = watts.map((w, i) => under[i] + w);
      let path = `M${x(0)} ${y(under[0])}`;
      upper.forEach((w, i) => { path += `V${y(w).toFixed(1)}H${x((i + 1) * step).toFixed(1)}`; });
      for (let i = bins - 1; i >= 0; i--) path += `V${y(under[i]).toFixed(1)}H${x(i * step).toFixed(1)}`;
      svg.append(el("path", { d: path + "Z", fill: colour(group), opacity: 0.82 }));
      upper.forEach((w, i) => { under[i] = w; });
    });
    return under;
  }

  function draw(run, span, most, side) {
    const rows = rowsOf(run), last = rows[rows.length - 1], gantt = last.y + last.height, base = gantt + GAP + POWER;
    const x = (s) => LEFT + (WIDTH - LEFT - RIGHT) * s / span, y = (w) => base - POWER * w / most;
    const svg = el("svg", { viewBox: `0 0 ${WIDTH} ${base + AXIS}`, role: "img", "data-side": side });
    for (const [at, text] of timeTicks(span)) {
      svg.append(el("line", { class: "grid", x1: x(at), x2: x(at), y1: 2, y2: base }));
      svg.append(el("text", { class: "tick", x: x(at), y: base + 16, "text-anchor": "middle" }, text));
    }
    rows.forEach((row) => {
      svg.append(el("rect", { class: "band", x: LEFT, y: row.y, width: WIDTH - LEFT - RIGHT, height: row.height }));
      svg.append(el("rect", { x: LEFT - 8, y: row.y, width: 4, height: row.height, fill: colour(row.group) }));
      const name = row.name.length > LEFT / 7.2 ? row.name.slice(0, LEFT / 7.2 - 1) + "…" : row.name;
      const label = el("text", { class: "name", x: LEFT - 14, y: row.y + row.height / 2 + 4, "text-anchor": "end" }, name);
      label.dataset.tip = row.name;
      if (row.height >= 9) svg.append(label);
    });
    for (const w of ticks(most, 3)) {
      svg.append(el("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(w), y2: y(w) }));
      svg.append(el("text", { class: "tick", x: LEFT - 8, y: y(w) + 4, "text-anchor": "end" }, w >= 1e4 ? w / 1000 + " kW" : w + " W"));
    }
    sleeping(run, rows, x, svg);
    if (run.bars) bars(run, rows, x, svg); else strips(run, rows, x, svg);
    const total = power(run, x, y, svg, most);
    follow(svg, run, x, total, base, span);
    const figure = document.createElement("figure"), caption = document.createElement("figcaption"), sum = document.createElement("span");
    const joules = run.joules;
    sum.className = "sum";
    sum.textContent = `${time(run.span)} · ${energy(joules)} · mean ${(joules / run.span).toFixed(0)} W · ${run.attempts.toLocaleString("en")} attempts`;
    caption.append(run.policy, sum);
    figure.append(caption, svg);
    figure.dataset.name = `${run.workload}: ${run.policy}, timeline`;
    window.wattflowPage.offer(figure, () => records(run));
    return figure;
  }

  // What the CSV of a timeline holds: its attempts, or its watts where they are too many to be drawn.
  function records(run) {
    if (run.bars) return run.bars.map(([, , placed_s, start_s, end_s, task, func, node, variant, outcome]) => ({ task, function: func, node, variant, placed_s, start_s, end_s, outcome: outcome || "done" }));
    const step = run.span / run.watts[0].length;
    return run.watts[0].map((_, i) => Object.fromEntries([["from_s", i * step], ...run.groups.map((name, g) => [`${name}_w`, run.watts[g][i]])]));
  }

  function follow(svg, run, x, total, base, span) {
    const cross = el("line", { class: "cross", y1: 2, y2: base, visibility: "hidden" });
    svg.append(cross);
    svg.addEventListener("mousemove", (event) => {
      const seen = svg.getBoundingClientRect(), px = (event.clientX - seen.left) * WIDTH / seen.width;
      const at = (px - LEFT) / (WIDTH - LEFT - RIGHT) * span, about = event.target.dataset ? event.target.dataset.tip : "";
      if (at < 0 && !about) return hide();
      const bin = Math.floor(at / run.span * total.length);
      const watts = bin >= 0 && bin < total.length ? `${total[bin].toFixed(0)} W` : "";
      tip.textContent = [about, at >= 0 ? `at ${time(at)}${watts ? ": " + watts : ""}` : ""].filter(Boolean).join("\n");
      tip.hidden = false;
      tip.style.left = Math.min(event.clientX + 14, innerWidth - 330) + "px";
      tip.style.top = event.clientY + 16 + "px";
      cross.setAttribute("x1", px); cross.setAttribute("x2", px);
      cross.setAttribute("visibility", at >= 0 ? "visible" : "hidden");
    });
    function hide() { tip.hidden = true; cross.setAttribute("visibility", "hidden"); }
    svg.addEventListener("mouseleave", hide);
  }

  function show() {
    const list = of(choose.workload.value);
    const chosen = [choose.above, choose.below].map((select) => list.find((run) => run.policy === select.value)).filter(Boolean);
    const span = Math.max(...chosen.map((run) => run.span)) || 1;
    const most = Math.max(1, ...chosen.map((run) => Math.max(...run.watts[0].map((_, i) => run.watts.reduce((a, w) => a + w[i], 0)))));
    const room = box.clientWidth || 1120, beside = chosen.length > 1 && room >= PAIR;
    WIDTH = Math.round(beside ? (room - BETWEEN) / 2 : room) - BOX;
    LEFT = WIDTH < 460 ? 78 : WIDTH < 760 ? 104 : 132;
    box.classList.toggle("beside", beside);
    box.replaceChildren(...unique(chosen).map((run, side) => draw(run, span, most, side)));
    id("kinds").replaceChildren(...kinds(chosen[0]));
  }

  function kinds(run) {
    const swatch = (name, style) => {
      const key = document.createElement("span"), colour = document.createElement("i");
      Object.assign(colour.style, style);
      key.append(colour, name);
      return key;
    };
    const asleep = swatch("asleep", {});
    asleep.firstChild.className = "hatched";
    return [...run.groups.map((name, group) => swatch(name, { background: colour(group) })), asleep];
  }

  function reset() {
    const names = of(choose.workload.value).map((run) => run.policy);
    const first = (select, other) => names.includes(select.dataset.first) ? select.dataset.first : other;
    fill(choose.above, names, first(choose.above, names[0]));
    fill(choose.below, names, first(choose.below, names[1] || names[0]));
    show();
  }

  fill(choose.workload, unique(runs.map((run) => run.workload)));
  choose.workload.addEventListener("change", reset);
  choose.above.addEventListener("change", show);
  choose.below.addEventListener("change", show);
  let drawn = 0;
  new ResizeObserver(() => { if (Math.abs(box.clientWidth - drawn) > 20) { drawn = box.clientWidth; show(); } }).observe(box);
  drawn = box.clientWidth;
  reset();
})();
