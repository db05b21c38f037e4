// Laws of drawing on random bars, without a browser: every pixel against a plain look at all bars, buckets against
// lengths, watts against a plain integral. Prints how many were checked; throws at the first that does not hold.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { rolldown } from "rolldown";

const folder = mkdtempSync(join(tmpdir(), "laws-")), source = (name) => fileURLToPath(new URL(`../src/draw/${name}.ts`, import.meta.url));
async function load(name) {
  const bundle = await rolldown({ input: source(name) });
  await bundle.write({ file: join(folder, `${name}.mjs`), format: "esm" });
  return import(pathToFileURL(join(folder, `${name}.mjs`)).href);
}

let state = Number(process.argv[2] ?? 1);
const random = () => ((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32), below = (n) => Math.floor(random() * n);
const demand = (holds, what) => { if (!holds) throw new Error(`${what} (seed ${process.argv[2] ?? 1})`); };

function someRun() {
  const count = below(200), span = 10 + 1000 * random(), nodes = 1 + below(4), kinds = Math.min(nodes, 2);
  const placed = Float64Array.from({ length: count }, () => random() * span * 0.95), length = () => span * 0.05 * random() ** (1 + below(6));
  const start = placed.map((at) => at + length()), end = start.map((at) => Math.min(span, at + length()));
  const times = Array.from({ length: nodes }, () => [0, ...Array.from({ length: below(40) }, () => random() * span).sort((a, b) => a - b)]);
  const flat = times.flatMap((each, n) => each.map((time) => [n, time, 50 * random(), 100 * random()]));
  return {
    span, count, placed, end, start: start.map((at, i) => Math.min(at, end[i])), node: Int32Array.from({ length: count }, () => below(nodes)), device: new Int8Array(count).fill(-1),
    nodes: Array.from({ length: nodes }, (_, n) => ({ name: `n${n}`, kind: n % kinds, devices: [], provenance: "measured" })), kinds: Array.from({ length: kinds }, (_, k) => `k${k}`),
    power: { node: Int32Array.from(flat, (row) => row[0]), time: Float64Array.from(flat, (row) => row[1]), idle: Float64Array.from(flat, (row) => row[2]), dynamic: Float64Array.from(flat, (row) => row[3]) },
  };
}

const { layout } = await load("lanes"), { paintLane } = await load("pixels"), { pyramid } = await load("pyramid"), { wattsOf, meanWatts } = await load("watts");
const ink = { full: Uint32Array.from({ length: 16 }, (_, c) => 100 + c), pale: Uint32Array.from({ length: 16 }, (_, c) => 200 + c), bad: 999 };
const checked = { lanes: 0, pixels: 0, buckets: 0, watts: 0 };

for (let turn = 0; turn < 60; turn++) {
  const run = someRun(), laid = layout(run), { laneStart, from, to, laneCount } = laid, category = Uint8Array.from({ length: run.count }, () => below(9));
  demand([...laid.attempt].sort((a, b) => a - b).every((attempt, i) => attempt === i), "every attempt is laid out once");
  const bars = { laid, category, failed: new Uint8Array(run.count), cells: null }, cells = pyramid(laid, category, run.span, false);
  for (let lane = 0; lane < laneCount; lane++, checked.lanes++) {
    for (let i = laneStart[lane]; i + 1 < laneStart[lane + 1]; i++) demand(to[i] <= from[i + 1], "bars of a lane do not overlap");
    const low = random() * run.span * 0.9, view = { from: low, to: low + (run.span - low) * Math.max(0.01, random()), top: 0, width: 200, height: 1 };
    const target = new Uint32Array(view.width), pixel = (view.to - view.from) / view.width;
    paintLane(target, bars, lane, view, ink);
    for (let x = 0; x < view.width; x++, checked.pixels++) {
      const left = view.from + x * pixel, near = [], wholly = [];
      for (let i = laneStart[lane]; i < laneStart[lane + 1]; i++) {
        if (to[i] > left - 0.51 * pixel && from[i] < left + 1.51 * pixel) near.push(i);
        if (from[i] <= left && to[i] >= left + pixel) wholly.push(i);
      }
      if (target[x] === 0) demand(wholly.length === 0, "a pixel within a bar is painted");
      else demand(near.some((i) => target[x] % 100 === category[i]), "a painted pixel has the colour of a bar that is there");
    }
    for (let b = 0; b < cells.buckets; b += 17, checked.buckets++) {
      const left = (b * run.span) / cells.buckets, right = ((b + 1) * run.span) / cells.buckets;
      let covered = 0, least = 0;
      for (let i = laneStart[lane]; i < laneStart[lane + 1]; i++) { const part = Math.min(right, to[i]) - Math.max(left, from[i]); if (part >= 0) { covered += part; least++; } }
      const share = (cells.levels[0][lane * cells.buckets + b] & 255) / 255, true_ = covered / (right - left);
      demand(Math.abs(share - true_) <= (1 + least) / 255 + 1e-6, `a bucket's share is what its bars cover: ${share} and ${true_}`);
    }
  }
  const watts = wattsOf(run, 0, run.span);
  for (let k = 0; k < 20; k++, checked.watts++) {
    const step = run.span / watts.edges, low = below(watts.edges - 1) * step, high = low + (1 + below(watts.edges / 2)) * step, until = Math.min(high, run.span);
    let joules = 0;
    for (let i = 0; i < run.power.node.length; i++) {
      const next = run.power.node[i + 1] === run.power.node[i] ? run.power.time[i + 1] : run.span;
      joules += Math.max(0, Math.min(until, next) - Math.max(low, run.power.time[i])) * (run.power.idle[i] + run.power.dynamic[i]);
    }
    const drawn = watts.bands.reduce((sum, band) => sum + meanWatts(watts, band, low, until), 0) * (until - low);
    demand(Math.abs(drawn - joules) <= 1e-6 * (1 + joules), `areas are joules: ${drawn} and ${joules}`);
  }
}
rmSync(folder, { recursive: true });
console.log(JSON.stringify(checked));
