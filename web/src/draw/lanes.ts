// Rows (a node, or a device of it) and their lanes: bars of a lane never overlap, so that a search finds the visible ones.

import type { Run } from "../data/run";

export interface Row { node: number; device: number; name: string; firstLane: number; lanes: number }

export interface Layout {
  rows: Row[];
  laneCount: number;
  rowOfLane: Int32Array;
  /** Bars of lane l are laneStart[l] up to laneStart[l + 1] of the arrays below, in order of time. */
  laneStart: Uint32Array;
  attempt: Uint32Array;
  from: Float64Array;
  run: Float64Array;
  to: Float64Array;
}

/** The lowest free lane for each attempt in order of placement; O(n log n). */
export function layout(run: Run): Layout {
  const rowOf = rowNumbers(run), order = sortedBy(rowOf, run.placed);
  const lane = new Int32Array(run.count), lanes: number[] = [];
  let row = -1, ends = new Heap(), free = new Heap(), used = 0, base = 0;
  const close = (): void => { if (row >= 0) { lanes[row] = Math.max(1, used); base += Math.max(1, used); } };
  for (const i of order) {
    while (rowOf[i] !== row) { close(); row++; ends = new Heap(); free = new Heap(); used = 0; }
    while (ends.size && ends.least() <= run.placed[i]) { const open = ends.pop(); free.push(open, open); }
    const mine = free.size ? free.pop() : used++;
    lane[i] = base + mine;
    ends.push(Math.max(run.end[i], run.placed[i]), mine);
  }
  const rows = rowsOf(run);
  while (row < rows.length) { close(); row++; used = 0; }
  return arranged(run, rows, lanes, lane);
}

function rowsOf(run: Run): Row[] {
  return run.nodes.flatMap((node, n) => [
    { node: n, device: -1, name: node.name, firstLane: 0, lanes: 1 },
    ...node.devices.map((device, d) => ({ node: n, device: d, name: `${node.name} · ${device.model || device.kind} ${d}`, firstLane: 0, lanes: 1 })),
  ]);
}

function rowNumbers(run: Run): Int32Array {
  const first: number[] = [];
  let next = 0;
  for (const node of run.nodes) { first.push(next); next += 1 + node.devices.length; }
  const rows = new Int32Array(run.count), devices = Int32Array.from(run.nodes, (node) => node.devices.length);
  for (let i = 0; i < run.count; i++) rows[i] = first[run.node[i]] + 1 + Math.min(Math.max(run.device[i], -1), devices[run.node[i]] - 1);
  return rows;
}

function arranged(run: Run, rows: Row[], lanes: number[], lane: Int32Array): Layout {
  let laneCount = 0;
  rows.forEach((row, r) => { row.firstLane = laneCount; row.lanes = lanes[r] ?? 1; laneCount += row.lanes; });
  const rowOfLane = new Int32Array(laneCount);
  rows.forEach((row, r) => rowOfLane.fill(r, row.firstLane, row.firstLane + row.lanes));
  const attempt = sortedBy(lane, run.placed), laneStart = new Uint32Array(laneCount + 1);
  for (const i of lane) laneStart[i + 1]++;
  for (let l = 0; l < laneCount; l++) laneStart[l + 1] += laneStart[l];
  const taken = (values: Float64Array): Float64Array => {
    const found = new Float64Array(attempt.length);
    for (let i = 0; i < attempt.length; i++) found[i] = values[attempt[i]];
    return found;
  };
  return { rows, laneCount, rowOfLane, laneStart, attempt, from: taken(run.placed), run: taken(run.start), to: taken(run.end) };
}

/** Indices sorted by group, then value: by counting on the group, so that each sort is short. */
function sortedBy(group: Int32Array, value: Float64Array): Uint32Array {
  const count = group.length, starts = new Uint32Array(largest(group) + 2);
  for (let i = 0; i < count; i++) starts[group[i] + 1]++;
  for (let g = 0; g + 1 < starts.length; g++) starts[g + 1] += starts[g];
  const order = new Uint32Array(count), next = starts.slice();
  for (let i = 0; i < count; i++) order[next[group[i]]++] = i;
  for (let g = 0; g + 1 < starts.length; g++) {
    const mine = order.subarray(starts[g], starts[g + 1]);
    let sorted = true;
    for (let k = 1; k < mine.length && sorted; k++) sorted = value[mine[k - 1]] <= value[mine[k]];
    if (!sorted) mine.sort((a, b) => value[a] - value[b] || a - b);
  }
  return order;
}

function largest(values: Int32Array): number {
  let most = -1;
  for (let i = 0; i < values.length; i++) if (values[i] > most) most = values[i];
  return most;
}

/** First index in [low, high) whose value is above `limit`, in a rising array. */
export function firstAbove(values: ArrayLike<number>, limit: number, low: number, high: number): number {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] > limit) high = middle; else low = middle + 1;
  }
  return low;
}

/** The bar of a lane at a time, or -1. */
export function barAt(laid: Layout, lane: number, time: number, slack: number): number {
  const end = laid.laneStart[lane + 1], found = firstAbove(laid.to, time - slack, laid.laneStart[lane], end);
  return found < end && laid.from[found] <= time + slack ? found : -1;
}

/** A heap of numbers by key; the least first. */
class Heap {
  private keys: number[] = [];
  private values: number[] = [];
  get size(): number { return this.keys.length; }
  least(): number { return this.keys[0]; }
  push(key: number, value: number): void {
    let at = this.keys.length;
    this.keys.push(key); this.values.push(value);
    while (at > 0) {
      const up = (at - 1) >> 1;
      if (this.keys[up] <= key) break;
      this.keys[at] = this.keys[up]; this.values[at] = this.values[up]; at = up;
    }
    this.keys[at] = key; this.values[at] = value;
  }
  pop(): number {
    const top = this.values[0], key = this.keys.pop()!, value = this.values.pop()!, size = this.keys.length;
    if (size) {
      let at = 0;
      for (;;) {
        let child = 2 * at + 1;
        if (child >= size) break;
        if (child + 1 < size && this.keys[child + 1] < this.keys[child]) child++;
        if (this.keys[child] >= key) break;
        this.keys[at] = this.keys[child]; this.values[at] = this.values[child]; at = child;
      }
      this.keys[at] = key; this.values[at] = value;
    }
    return top;
  }
}
