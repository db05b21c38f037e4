// Critical path and slack of one workflow, from the times that its tasks really took.

import type { Run } from "./run";

export interface Graph {
  /** Rows of the run's tasks that belong to the workflow. */
  tasks: number[];
  /** Pairs of places in `tasks`. */
  edges: [number, number][];
  /** The attempt that ended last, or -1: the task never ran. */
  attempt: Int32Array;
  duration: Float64Array;
  /** Seconds that a task could have been longer without the workflow taking longer; NaN where it never ran. */
  slack: Float64Array;
  critical: Uint8Array;
  level: Int32Array;
  joules: Float64Array;
}

export function graphOf(run: Run, flow: number): Graph {
  const tasks: number[] = [], place = new Map<number, number>();
  for (let t = 0; t < run.tasks.count; t++) if (run.tasks.flow[t] === flow) { place.set(t, tasks.length); tasks.push(t); }
  const edges: [number, number][] = [];
  for (let e = 0; e < run.edges.parent.length; e++) {
    const parent = place.get(run.edges.parent[e]), child = place.get(run.edges.child[e]);
    if (parent !== undefined && child !== undefined) edges.push([parent, child]);
  }
  const attempt = new Int32Array(tasks.length).fill(-1), joules = new Float64Array(tasks.length);
  for (let i = 0; i < run.count; i++) {
    const own = place.get(run.task[i]);
    if (own === undefined) continue;
    joules[own] += run.joules[i];
    if (attempt[own] < 0 || run.end[i] >= run.end[attempt[own]]) attempt[own] = i;
  }
  const duration = Float64Array.from(attempt, (i) => (i < 0 ? 0 : run.end[i] - run.start[i]));
  return { tasks, edges, attempt, duration, joules, ...slackOf(tasks.length, edges, duration, attempt) };
}

/** Longest paths to and from each task; a task is critical where both sum to the longest of all. */
function slackOf(count: number, edges: [number, number][], duration: Float64Array, attempt: Int32Array): Pick<Graph, "slack" | "critical" | "level"> {
  const children: number[][] = Array.from({ length: count }, () => []), left = new Int32Array(count), order: number[] = [];
  for (const [parent, child] of edges) { children[parent].push(child); left[child]++; }
  for (let t = 0; t < count; t++) if (!left[t]) order.push(t);
  const level = new Int32Array(count), before = new Float64Array(count), after = new Float64Array(count);
  for (let k = 0; k < order.length; k++) {
    for (const child of children[order[k]]) {
      level[child] = Math.max(level[child], level[order[k]] + 1);
      before[child] = Math.max(before[child], before[order[k]] + duration[order[k]]);
      if (--left[child] === 0) order.push(child);
    }
  }
  for (const t of order.reverse()) after[t] = children[t].reduce((most, child) => Math.max(most, duration[child] + after[child]), 0);
  let longest = 0;
  for (let t = 0; t < count; t++) longest = Math.max(longest, before[t] + duration[t] + after[t]);
  const slack = Float64Array.from(before, (early, t) => (attempt[t] < 0 ? NaN : longest - early - duration[t] - after[t]));
  return { slack, level, critical: Uint8Array.from(slack, (each) => (each <= 1e-6 * Math.max(1, longest) ? 1 : 0)) };
}
