// Joules by task, function, workflow, user: sums of what attempts were charged, with their bands and their sources.

import { categories, PROVENANCES, type ColourBy, type Run } from "./run";

export type ShareBy = ColourBy | "user" | "task" | "node";

export interface Share {
  index: number;
  name: string;
  attempts: number;
  /** Attempts whose joules are known. */
  known: number;
  joules: number;
  low: number;
  high: number;
  busy_s: number;
  /** The weakest source among them. */
  source: string;
}

/** The most joules first; categories without an attempt are left out. */
export function shares(run: Run, by: ShareBy): Share[] {
  const { of, name } = grouping(run, by), found = new Map<number, Share & { weakest: number }>();
  for (let i = 0; i < run.count; i++) {
    let share = found.get(of[i]);
    if (!share) found.set(of[i], (share = { index: of[i], name: "", attempts: 0, known: 0, joules: 0, low: 0, high: 0, busy_s: 0, source: "", weakest: -1 }));
    share.attempts++;
    share.busy_s += run.end[i] - run.start[i];
    const joules = run.joules[i];
    if (Number.isNaN(joules)) continue;
    share.known++;
    share.joules += joules;
    share.low += Number.isNaN(run.low[i]) ? joules : run.low[i];
    share.high += Number.isNaN(run.high[i]) ? joules : run.high[i];
    share.weakest = Math.max(share.weakest, run.provenance[i] < 0 ? PROVENANCES.length - 1 : run.provenance[i]);
  }
  const sorted = [...found.values()].sort((a, b) => b.joules - a.joules || b.busy_s - a.busy_s || a.index - b.index);
  for (const share of sorted) { share.name = name(share.index); share.source = PROVENANCES[share.weakest] ?? "unknown"; }
  return sorted;
}

function grouping(run: Run, by: ShareBy): { of: ArrayLike<number>; name: (index: number) => string } {
  if (by === "task") return { of: run.task, name: run.tasks.id };
  if (by === "node") return { of: run.node, name: (index) => run.nodes[index].name };
  if (by !== "user") return categories(run, by);
  const of = new Int32Array(run.count);
  for (let i = 0; i < run.count; i++) of[i] = run.flow[i] < 0 ? -1 : run.flows.owner[run.flow[i]];
  return { of, name: (index) => run.owners[index] ?? "no user" };
}

/** Sum of the known joules of all attempts. */
export function attributed(run: Run): number {
  let sum = 0;
  for (let i = 0; i < run.count; i++) if (!Number.isNaN(run.joules[i])) sum += run.joules[i];
  return sum;
}
