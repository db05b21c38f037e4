// A run as the page draws it: typed arrays, times in seconds from the run's start.

import { Columns, Trouble, type Numbers } from "./columns";

export const PROVENANCES = ["measured", "attributed", "modelled", "guessed", "unknown"] as const;
export type Provenance = (typeof PROVENANCES)[number];

export interface Curve { watts: number[]; busy?: number[]; share?: number[]; scope?: string; provenance: string | null; source: string | null; low?: (number | null)[]; high?: (number | null)[]; measured_s?: number | null }
export interface Device { kind: string; model: string; power: Curve | null }
export interface RunNode { name: string; kind: number; cores: number; threads: number; idle_w: number | null; sleep_w: number | null; provenance: Provenance; devices: Device[]; power: Curve | null; zone: string; /** When the node told its curves; missing where nobody noted it. */ announced_s?: number | null; /** Its curve as its counter corrects it. */ learned?: Curve | null }

/** Watts of each node from each time on, sorted by node, then time; NaN: not known from there on. */
export interface PowerSteps { node: Numbers; time: Float64Array; idle: Numbers; dynamic: Numbers }
export interface Spans { node: Numbers; from: Float64Array; to: Float64Array }

export interface About {
  id: string; title: string; workload: string; policy: string; kind: string; state: string; simulated: boolean;
  owner: string | null; origin_s: number | null; start_ms?: number; makespan_s: number | null; peak_w: number | null; carbon_g: number | null;
  energy_j: Record<string, number | null>; energy_total_j: number | null; power: string; energy_covers: string | null;
  figures: Record<string, number | null>; figure_labels: Record<string, [string, string]>; sequence: number | null;
  notes: string[]; wattflow: string; live?: unknown;
}

export interface Run {
  about: About;
  notes: string[];
  span: number;
  nodes: RunNode[];
  kinds: string[];
  functions: string[];
  variants: string[];
  outcomes: string[];
  waits: string[];
  states: string[];
  count: number;
  task: Numbers; number: Numbers; node: Numbers; device: Numbers; variant: Numbers;
  fn: Numbers; flow: Numbers; outcome: Numbers; wait: Numbers; provenance: Numbers;
  ready: Float64Array; placed: Float64Array; start: Float64Array; end: Float64Array;
  joules: Numbers; low: Numbers; high: Numbers; marginal: Numbers;
  tasks: { count: number; id: (row: number) => string; fn: Numbers; flow: Numbers; state: Numbers; number: Numbers; release: Numbers };
  edges: { parent: Numbers; child: Numbers };
  flows: { count: number; name: (row: number) => string; id: (row: number) => string; owner: Numbers };
  owners: string[];
  power: PowerSteps;
  sleep: Spans;
}

/** Read a view document; anything that cannot be drawn is told in one sentence. */
export function runOf(buffer: ArrayBuffer): Run {
  const columns = Columns.read(buffer), about = columns.about as unknown as About & { start_ms: number; end_ms: number; cluster?: { nodes: RunNode[] } };
  if (!about.cluster?.nodes?.length) throw new Trouble("The run names no node, so there is nothing to draw.");
  const notes = [...(about.notes ?? [])], from = about.start_ms, count = columns.rows("attempts");
  const numbers = (name: string, missing: number): Numbers => columns.numbers("attempts", name, missing);
  const seconds = (table: string, name: string): Float64Array => {
    const ms = columns.numbers(table, name, NaN), found = new Float64Array(ms.length);
    for (let i = 0; i < ms.length; i++) found[i] = (ms[i] - from) / 1000;
    return found;
  };
  const times = { ready: seconds("attempts", "ready"), placed: seconds("attempts", "placed"), start: seconds("attempts", "start"), end: seconds("attempts", "end") };
  const span = spanOf(about, times.end, notes);
  mend(times, span, notes);
  const energy = about.power === "none" || columns.rows("power") === 0;
  if (energy) notes.push("This run has no power log, so the power chart is left out; the schedule is whole.");
  const node = numbers("node", 0);
  if (node.some((n) => n < 0 || n >= about.cluster!.nodes.length)) throw new Trouble("The run is broken: an attempt names a node that the cluster lacks.");
  return {
    about, notes, span, count, ...times, node,
    nodes: about.cluster.nodes.map((each) => ({ ...each, provenance: each.provenance ?? "unknown" })),
    kinds: columns.strings("kinds"), functions: columns.strings("functions"), variants: columns.strings("variants"),
    outcomes: columns.strings("outcomes"), waits: columns.strings("waits"), owners: columns.strings("owners"), states: columns.strings("states"),
    task: numbers("task", -1), number: numbers("number", 0), device: numbers("device", -1), variant: numbers("variant", -1),
    fn: numbers("function", -1), flow: numbers("workflow", -1), outcome: numbers("outcome", -1), wait: numbers("wait", -1), provenance: numbers("provenance", -1),
    joules: numbers("energy_j", NaN), low: numbers("low_j", NaN), high: numbers("high_j", NaN), marginal: numbers("marginal_j", NaN),
    tasks: {
      count: columns.rows("tasks"), id: columns.has("tasks", "id") ? columns.text("tasks", "id") : String, fn: columns.numbers("tasks", "function", -1), flow: columns.numbers("tasks", "workflow", -1),
      state: columns.numbers("tasks", "state", -1), number: columns.numbers("tasks", "number", -1), release: columns.numbers("tasks", "release", NaN),
    },
    edges: { parent: columns.numbers("edges", "parent", 0), child: columns.numbers("edges", "child", 0) },
    flows: { count: columns.rows("workflows"), name: columns.text("workflows", "name"), id: columns.text("workflows", "id"), owner: columns.numbers("workflows", "owner", -1) },
    power: { node: columns.numbers("power", "node", 0), time: seconds("power", "time"), idle: columns.numbers("power", "idle_w", 0), dynamic: columns.numbers("power", "dynamic_w", 0) },
    sleep: { node: columns.numbers("sleep", "node", 0), from: seconds("sleep", "from"), to: seconds("sleep", "to") },
  };
}

function spanOf(about: { start_ms: number; end_ms: number }, end: Float64Array, notes: string[]): number {
  let span = (about.end_ms - about.start_ms) / 1000, last = 0;
  for (const each of end) if (each > last) last = each;
  if (!Number.isFinite(span)) span = last;
  if (span < last) {
    // A moment beyond is a snapshot taken while attempts end; more is a clock.
    if (last - span > Math.max(2, 0.01 * span)) notes.push("Some attempts end after the run's end: a clock was stepped back, and the axis reaches to the last of them.");
    span = last;
  }
  return span > 0 ? span : 1;
}

/** Times that run backwards or are missing would make half a chart: they are set to what is known, and the page says so. */
function mend(times: Record<"ready" | "placed" | "start" | "end", Float64Array>, span: number, notes: string[]): void {
  let stepped = 0, missing = 0;
  for (let i = 0; i < times.end.length; i++) {
    if (Number.isNaN(times.placed[i])) { missing++; times.placed[i] = Number.isNaN(times.start[i]) ? 0 : times.start[i]; }
    if (Number.isNaN(times.end[i])) { missing++; times.end[i] = span; }
    if (Number.isNaN(times.start[i])) times.start[i] = times.end[i];
    if (times.end[i] < times.placed[i] || times.start[i] < times.placed[i] || times.end[i] < times.start[i]) {
      stepped++;
      times.start[i] = Math.max(times.start[i], times.placed[i]);
      times.end[i] = Math.max(times.end[i], times.start[i]);
    }
  }
  if (stepped) notes.push(`${stepped} attempts have times that run backwards: a clock was stepped back, and their bars are as short as can be.`);
  if (missing) notes.push(`${missing} times are not known; their bars reach to the run's edge.`);
}

export type ColourBy = "function" | "workflow" | "outcome" | "wait" | "source";
export const COLOUR_BYS: ColourBy[] = ["function", "workflow", "outcome", "wait", "source"];

/** Category of each attempt, and the categories' names. */
export function categories(run: Run, by: ColourBy): { of: ArrayLike<number>; name: (index: number) => string } {
  const named = (names: readonly string[], none: string) => (index: number) => names[index] ?? none;
  switch (by) {
    case "function": return { of: run.fn, name: named(run.functions, "no function") };
    case "workflow": return { of: run.flow, name: (index) => run.flows.name(index) || "no workflow" };
    case "outcome": return { of: run.outcome, name: named(run.outcomes, "under way") };
    case "wait": return { of: run.wait, name: named(run.waits, "not known") };
    case "source": return { of: run.provenance, name: named(PROVENANCES, "unknown") };
  }
}
