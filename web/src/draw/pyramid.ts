// Busy share and leading category of each row in buckets of time, halved level by level: what a million bars look like
// when many share a pixel. A cell is (category << 8) | share of 255.

import type { Layout } from "./lanes";

const MOST_CELLS = 1 << 22;
const CATEGORIES = 16;

export interface Pyramid {
  /** Cells of level k: buckets >> k per group of lanes. */
  levels: Uint16Array[];
  buckets: number;
  span: number;
  groups: number;
}

/** Build over lanes one by one, or with all lanes of a row as one group (`folded`). */
export function pyramid(laid: Layout, category: Uint8Array, span: number, folded: boolean): Pyramid {
  const groups = folded ? laid.rows.length : laid.laneCount;
  const buckets = 2 ** Math.max(8, Math.min(13, Math.floor(Math.log2(MOST_CELLS / Math.max(1, groups)))));
  const finest = new Uint16Array(groups * buckets), cover = new Float32Array(buckets * CATEGORIES);
  for (let g = 0; g < groups; g++) {
    const first = folded ? laid.rows[g].firstLane : g, lanes = folded ? laid.rows[g].lanes : 1;
    if (laid.laneStart[first] === laid.laneStart[first + lanes]) continue;
    cover.fill(0);
    collect(laid, category, laid.laneStart[first], laid.laneStart[first + lanes], buckets / span, buckets, cover);
    settle(cover, lanes, finest.subarray(g * buckets, (g + 1) * buckets));
  }
  return { levels: coarser(finest), buckets, span, groups };
}

function collect(laid: Layout, category: Uint8Array, low: number, high: number, scale: number, buckets: number, cover: Float32Array): void {
  for (let i = low; i < high; i++) {
    const from = Math.max(0, laid.from[i] * scale), to = Math.min(buckets, laid.to[i] * scale), own = category[i];
    const first = Math.floor(from), last = Math.min(buckets - 1, Math.floor(to));
    if (first > last) continue;
    if (first === last) { cover[first * CATEGORIES + own] += Math.max(to - from, 1 / 255); continue; }
    cover[first * CATEGORIES + own] += first + 1 - from;
    for (let b = first + 1; b < last; b++) cover[b * CATEGORIES + own] += 1;
    cover[last * CATEGORIES + own] += to - last;
  }
}

/** Turn covered lengths into cells; anything at all shows as at least 1 of 255. */
export function settle(cover: Float32Array, lanes: number, cells: Uint16Array): void {
  for (let b = 0; b < cells.length; b++) {
    let sum = 0, most = 0, leader = 0;
    for (let c = 0; c < CATEGORIES; c++) {
      const value = cover[b * CATEGORIES + c];
      sum += value;
      if (value > most) { most = value; leader = c; }
    }
    cells[b] = sum > 0 ? (leader << 8) | Math.max(1, Math.min(255, Math.round((255 * sum) / lanes))) : 0;
  }
}

function coarser(finest: Uint16Array): Uint16Array[] {
  const levels = [finest];
  for (let k = 0; k < 8; k++) {
    const below = levels[k], above = new Uint16Array(below.length >> 1);
    for (let i = 0; i < above.length; i++) {
      const a = below[2 * i], b = below[2 * i + 1], left = a & 255, right = b & 255;
      above[i] = ((left >= right ? a : b) & 0xff00) | ((left + right + 1) >> 1);
    }
    levels.push(above);
  }
  return levels;
}
