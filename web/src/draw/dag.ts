// Places of a workflow's tasks: dagre's layers, or functions as single boxes where tasks are too many to look at.

import { graphlib, layout } from "@dagrejs/dagre";
import type { Graph } from "../data/path";
import type { Run } from "../data/run";

export const MOST_TASKS = 500;
/** Above so many boxes each has one line of text. */
const MOST_TALL = 30;

export interface Box { key: string; title: string; note: string; state: string; critical: boolean; x: number; y: number; width: number; height: number; task: number; count: number }
export interface Drawing { boxes: Box[]; lines: { points: { x: number; y: number }[]; critical: boolean }[]; width: number; height: number; grouped: boolean }

type Fact = Omit<Box, "x" | "y" | "width" | "height">;

export function drawing(run: Run, graph: Graph): Drawing {
  const grouped = graph.tasks.length > MOST_TASKS, facts = grouped ? functionFacts(run, graph) : taskFacts(run, graph);
  const compact = facts.length > MOST_TALL;
  if (compact) for (const fact of facts) fact.note = grouped ? fact.note : "";
  const own = new graphlib.Graph();
  own.setGraph({ rankdir: "LR", nodesep: compact ? 4 : 10, edgesep: 3, ranksep: compact ? 120 : 44, marginx: 8, marginy: 8, ranker: graph.tasks.length > 200 ? "longest-path" : "network-simplex" });
  own.setDefaultEdgeLabel(() => ({}));
  for (const fact of facts) own.setNode(fact.key, { width: Math.min(220, 22 + 7.2 * Math.max(fact.title.length, fact.note.length)), height: fact.note ? 38 : 20 });
  const keyOf = (place: number): string => (grouped ? `f${run.tasks.fn[graph.tasks[place]]}` : `t${place}`), critical = new Set<string>();
  for (const [parent, child] of graph.edges) {
    const from = keyOf(parent), to = keyOf(child);
    if (from === to) continue;
    own.setEdge(from, to, {});
    if (graph.critical[parent] && graph.critical[child]) critical.add(`${from} ${to}`);
  }
  layout(own);
  const size = own.graph() as { width?: number; height?: number };
  return {
    boxes: facts.map((fact) => { const at = own.node(fact.key) as { x: number; y: number; width: number; height: number }; return { ...fact, x: at.x, y: at.y, width: at.width, height: at.height }; }),
    lines: own.edges().map((edge) => ({ points: (own.edge(edge) as { points: { x: number; y: number }[] }).points, critical: critical.has(`${edge.v} ${edge.w}`) })),
    width: size.width ?? 10, height: size.height ?? 10, grouped,
  };
}

function taskFacts(run: Run, graph: Graph): Fact[] {
  return graph.tasks.map((task, place) => {
    const name = run.tasks.id(task) || String(task), fn = run.functions[run.tasks.fn[task]] ?? "";
    return { key: `t${place}`, title: cut(name), note: cut(fn === name ? "" : fn), state: stateOf(run, graph, place), critical: graph.critical[place] === 1, task: place, count: 1 };
  });
}

/** One box per function; its state is the worst of its tasks'. */
function functionFacts(run: Run, graph: Graph): Fact[] {
  const rank = ["done", "waiting", "unborn", "running", "cancelled", "failed"], found = new Map<number, Fact>();
  graph.tasks.forEach((task, place) => {
    const fn = run.tasks.fn[task], state = stateOf(run, graph, place), own = found.get(fn);
    if (!own) { found.set(fn, { key: `f${fn}`, title: cut(run.functions[fn] ?? "no function"), note: "", state, critical: graph.critical[place] === 1, task: place, count: 1 }); return; }
    own.count++;
    own.critical ||= graph.critical[place] === 1;
    if (rank.indexOf(state) > rank.indexOf(own.state)) own.state = state;
  });
  return [...found.values()].map((fact) => ({ ...fact, note: `${fact.count} tasks` }));
}

export function stateOf(run: Run, graph: Graph, place: number): string {
  return run.states[run.tasks.state[graph.tasks[place]]] ?? (graph.attempt[place] < 0 ? "waiting" : "done");
}

const cut = (text: string): string => (text.length > 28 ? `${text.slice(0, 16)}…${text.slice(-11)}` : text);
