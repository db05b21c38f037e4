// Power as stacked bands: idle of all nodes at the bottom, then what each kind of machine draws above it.

import { blend } from "./colour";
import { firstAbove } from "./lanes";
import { PROVENANCES, type PowerSteps, type Provenance, type Run, type RunNode } from "../data/run";
import type { Window } from "./pixels";

export interface Band {
  name: string;
  /** The weakest source among its nodes: it chooses the texture. */
  provenance: Provenance;
  /** Joules from the window's start up to each edge. */
  joules: Float64Array;
}

export interface Watts { from: number; to: number; edges: number; bands: Band[]; peak: number }

const EDGES = 1 << 14;

/** Mean watts over a window, exact at its edges: areas, and so joules, stay right. Null without a power log. */
export function wattsOf(run: Run, from: number, to: number): Watts | null {
  const steps = run.power;
  if (!steps.node.length) return null;
  const width = (to - from) / EDGES, bounds = nodeBounds(steps, run.nodes.length);
  const sums = Array.from({ length: run.kinds.length + 1 }, () => ({ delta: new Float64Array(EDGES + 1), moment: new Float64Array(EDGES + 1) }));
  run.nodes.forEach((node, n) => {
    const own = sums[1 + node.kind];
    let idle = 0, dynamic = 0;
    for (let i = Math.max(bounds[n], firstAbove(steps.time, from, bounds[n], bounds[n + 1]) - 1); i < bounds[n + 1] && steps.time[i] < to; i++) {
      const time = Math.max(0, steps.time[i] - from), edge = Math.min(EDGES, Math.ceil(time / width));
      const base = steps.idle[i] || 0, above = steps.dynamic[i] || 0;
      sums[0].delta[edge] += base - idle; sums[0].moment[edge] += (base - idle) * time;
      own.delta[edge] += above - dynamic; own.moment[edge] += (above - dynamic) * time;
      idle = base; dynamic = above;
    }
  });
  const bands = sums.map((sum, s) => ({
    name: s === 0 ? "idle and sleep" : run.kinds[s - 1],
    provenance: weakest(run.nodes.filter((node) => s === 0 || node.kind === s - 1)),
    joules: integral(sum.delta, sum.moment, width),
  }));
  return { from, to, edges: EDGES, bands, peak: highest(bands, width) };
}

function weakest(nodes: RunNode[]): Provenance {
  return PROVENANCES[nodes.reduce((worst, node) => Math.max(worst, PROVENANCES.indexOf(node.provenance)), 0)];
}

function nodeBounds(steps: PowerSteps, nodes: number): number[] {
  return Array.from({ length: nodes + 1 }, (_, n) => firstAbove(steps.node, n - 0.5, 0, steps.node.length));
}

/** A jump of d watts at time t adds d · (edge − t) joules up to each later edge. */
function integral(delta: Float64Array, moment: Float64Array, width: number): Float64Array {
  const joules = new Float64Array(delta.length);
  let watts = 0, moments = 0;
  for (let e = 0; e < delta.length; e++) {
    watts += delta[e]; moments += moment[e];
    joules[e] = watts * e * width - moments;
  }
  return joules;
}

function highest(bands: Band[], width: number): number {
  let peak = 0;
  for (let e = 0; e + 1 <= EDGES; e++) {
    let sum = 0;
    for (const band of bands) sum += band.joules[e + 1] - band.joules[e];
    peak = Math.max(peak, sum / width);
  }
  return peak;
}

/** Mean watts of a band between two times. */
export function meanWatts(watts: Watts, band: Band, from: number, to: number): number {
  const low = Math.max(from, watts.from), high = Math.min(to, watts.to);
  return high > low ? (joulesAt(watts, band, high) - joulesAt(watts, band, low)) / (to - from) : 0;
}

export function joulesAt(watts: Watts, band: Band, time: number): number {
  const at = Math.min(watts.edges, Math.max(0, ((time - watts.from) / (watts.to - watts.from)) * watts.edges)), edge = Math.floor(at);
  return edge >= watts.edges ? band.joules[watts.edges] : band.joules[edge] + (band.joules[edge + 1] - band.joules[edge]) * (at - edge);
}

/** Paint the stack. Textures tell sources apart: measured full, attributed ruled, modelled striped, guessed dotted. */
export function paintWatts(pixels: Uint32Array, watts: Watts, view: Window, top: number, colours: Uint32Array, paper: number): void {
  pixels.fill(paper);
  const pixel = (view.to - view.from) / view.width, scale = view.height / top;
  const tiles = watts.bands.map((band, b) => tile(TEXTURES[band.provenance], colours[b], blend(colours[b], paper, 0.62)));
  for (let x = 0; x < view.width; x++) {
    const at = view.from + x * pixel, column = (x % TILE) * TILE;
    let height = 0;
    for (let b = 0; b < tiles.length; b++) {
      const next = height + meanWatts(watts, watts.bands[b], at, at + pixel) * scale, own = tiles[b];
      const low = Math.max(0, view.height - Math.round(next)), high = Math.min(view.height, view.height - Math.round(height));
      for (let y = low, i = low * view.width + x; y < high; y++, i += view.width) pixels[i] = own[column + (y % TILE)];
      height = next;
    }
  }
}

const TILE = 24;
type Texture = (x: number, y: number) => boolean;

/** A texture worked out once: pixels of a 24 by 24 tile, column by column. */
function tile(texture: Texture, full: number, pale: number): Uint32Array {
  return Uint32Array.from({ length: TILE * TILE }, (_, i) => (texture(Math.floor(i / TILE), i % TILE) ? full : pale));
}

const TEXTURES: Record<Provenance, Texture> = {
  measured: () => true,
  attributed: (_, y) => y % 8 !== 0,
  modelled: (x, y) => (x + y) % 6 < 4,
  guessed: (x, y) => (x >> 1) % 3 === 0 && (y >> 1) % 3 === 0,
  unknown: (x, y) => (x >> 1) % 3 === 0 && (y >> 1) % 3 === 0,
};
