// Search: a text in the names of task, function, workflow, node, variant or outcome.

import type { Run } from "./run";

/** 1 for each attempt that matches; null for an empty search. Case does not matter. */
export function matching(run: Run, text: string): Uint8Array | null {
  const wish = text.trim().toLowerCase();
  if (!wish) return null;
  const found = new Uint8Array(run.count), has = (name: string): boolean => name.toLowerCase().includes(wish);
  const among = (names: string[]): Set<number> => new Set(names.flatMap((name, i) => (has(name) ? [i] : [])));
  const functions = among(run.functions), nodes = among(run.nodes.map((node) => node.name)), outcomes = among(run.outcomes), variants = among(run.variants);
  const flows = new Set<number>();
  for (let f = 0; f < run.flows.count; f++) if (has(run.flows.name(f))) flows.add(f);
  const tasks = new Uint8Array(run.tasks.count);
  for (let t = 0; t < run.tasks.count; t++) if (has(run.tasks.id(t))) tasks[t] = 1;
  for (let i = 0; i < run.count; i++) {
    found[i] = tasks[run.task[i]] || functions.has(run.fn[i]) || flows.has(run.flow[i]) || nodes.has(run.node[i]) || outcomes.has(run.outcome[i]) || variants.has(run.variant[i]) ? 1 : 0;
  }
  return found;
}

export function counted(matches: Uint8Array): number {
  let sum = 0;
  for (const one of matches) sum += one;
  return sum;
}
