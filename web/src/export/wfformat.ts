// The run as WfFormat 1.5: what ran, how long, where, and with how many joules (standard field energyInKWh).

import type { Run } from "../data/run";

const J_PER_KWH = 3.6e6;

interface Executed { id: string; runtimeInSeconds: number; executedAt: string; machines: string[]; energyInKWh?: number; avgPowerInW?: number }

/** Tasks that were done; attempts before them count in their joules. Ids hold only what the schema allows. */
export function wfformat(run: Run): object {
  const ids = idsOf(run), parents: string[][] = ids.map(() => []), children: string[][] = ids.map(() => []);
  for (let e = 0; e < run.edges.parent.length; e++) {
    children[run.edges.parent[e]].push(ids[run.edges.child[e]]);
    parents[run.edges.child[e]].push(ids[run.edges.parent[e]]);
  }
  return {
    name: run.about.workload || run.about.title || "workflow",
    description: `${run.about.simulated ? "Simulated" : "Run"} under ${run.about.policy}; saved by wattflow ${run.about.wattflow}.`,
    schemaVersion: "1.5",
    workflow: {
      specification: {
        tasks: ids.map((id, t) => ({ name: run.functions[run.tasks.fn[t]] ?? id, id, parents: parents[t], children: children[t], inputFiles: [], outputFiles: [] })),
        files: [],
      },
      execution: {
        makespanInSeconds: run.about.makespan_s ?? run.span, executedAt: stamp(run, 0), tasks: executed(run, ids),
        machines: run.nodes.map((node) => ({ nodeName: node.name, cpu: { coreCount: node.cores } })),
      },
    },
  };
}

function idsOf(run: Run): string[] {
  const used = new Set<string>();
  return Array.from({ length: run.tasks.count }, (_, t) => {
    const own = `${run.flows.count > 1 ? `${run.flows.name(run.tasks.flow[t]) || run.tasks.flow[t]}.` : ""}${run.tasks.id(t) || t}`.replace(/[^0-9a-zA-Z\-_.#]/g, "_");
    let id = own;
    for (let k = 2; used.has(id); k++) id = `${own}_${k}`;
    used.add(id);
    return id;
  });
}

function executed(run: Run, ids: string[]): Executed[] {
  const found = new Map<number, Executed>(), joules = new Map<number, number>();
  for (let i = 0; i < run.count; i++) {
    const task = run.task[i];
    joules.set(task, (joules.get(task) ?? 0) + run.joules[i]);
    if (run.outcome[i] !== 0) continue;
    found.set(task, { id: ids[task], runtimeInSeconds: run.end[i] - run.start[i], executedAt: stamp(run, run.start[i]), machines: [run.nodes[run.node[i]].name] });
  }
  for (const [task, one] of found) {
    const spent = joules.get(task) ?? NaN;
    if (!Number.isFinite(spent)) continue;
    one.energyInKWh = spent / J_PER_KWH;
    if (one.runtimeInSeconds > 0) one.avgPowerInW = spent / one.runtimeInSeconds;
  }
  return [...found.values()];
}

const stamp = (run: Run, at: number): string => new Date(((run.about.origin_s ?? 0) + at) * 1000).toISOString();
