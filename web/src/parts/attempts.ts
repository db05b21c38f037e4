// Rows of the table of attempts: those in view, failed ones first.

import { number, time } from "../draw/axis";
import { PROVENANCES, type Run } from "../data/run";
import type { Cell, Head } from "./table";

const MOST = 20_000;
const seconds = (value: Cell): string => time(Number(value));

export const attemptHeads: Head[] = [
  { key: "task", label: "task" }, { key: "function", label: "function" }, { key: "workflow", label: "workflow" }, { key: "node", label: "node" },
  { key: "outcome", label: "outcome" }, { key: "wait_reason", label: "waited for" }, { key: "start_s", label: "start", show: seconds },
  { key: "end_s", label: "end", show: seconds }, { key: "waited_s", label: "waited", show: seconds },
  { key: "energy_j", label: "J", show: (value) => number(Number(value)) }, { key: "low_j", label: "J from", show: (value) => number(Number(value)) },
  { key: "high_j", label: "J to", show: (value) => number(Number(value)) }, { key: "source", label: "source" },
];

/** Attempts that overlap the range and match; failed ones first, then by start. At most 20,000. */
export function visibleAttempts(run: Run, range: [number, number] | null, matches: Uint8Array | null): number[] {
  const bad: number[] = [], good: number[] = [];
  for (let i = 0; i < run.count && bad.length + good.length < MOST; i++) {
    if (range && (run.end[i] < range[0] || run.placed[i] > range[1])) continue;
    if (matches && !matches[i]) continue;
    (run.outcome[i] > 0 ? bad : good).push(i);
  }
  const byStart = (a: number, b: number): number => run.start[a] - run.start[b] || a - b;
  return [...bad.sort(byStart), ...good.sort(byStart)];
}

export function attemptRows(run: Run, shown: number[]): Cell[][] {
  const known = (value: number): Cell => (Number.isFinite(value) ? value : null);
  return shown.map((i) => [
    run.tasks.id(run.task[i]), run.functions[run.fn[i]] ?? null, run.flows.name(run.flow[i]) || null, run.nodes[run.node[i]].name,
    run.outcomes[run.outcome[i]] ?? "under way", run.waits[run.wait[i]] ?? null, run.start[i], run.end[i], Math.max(0, run.start[i] - run.ready[i]),
    known(run.joules[i]), known(run.low[i]), known(run.high[i]), PROVENANCES[run.provenance[i]] ?? "unknown",
  ]);
}
