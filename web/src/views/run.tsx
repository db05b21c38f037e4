// One run: schedule and watts, joules by whom, and the task behind a bar.

import { useMemo, useRef, useState } from "preact/hooks";
import { adjust, href, type Link } from "../link";
import { energy, power, time } from "../draw/axis";
import { loadRun } from "../data/api";
import { Controls } from "../parts/controls";
import { Joules } from "../parts/joules";
import { Keys } from "../parts/keys";
import { Notes, Shown, useLoad } from "../parts/load";
import { TaskPanel } from "../parts/task";
import { Timeline } from "../parts/timeline";
import { attemptHeads, attemptRows, visibleAttempts } from "../parts/attempts";
import { Table } from "../parts/table";
import { Exports } from "../parts/exports";
import { matching } from "../data/search";
import { publish } from "../drawn";
import { COLOUR_BYS, type ColourBy, type Run } from "../data/run";
import type { Look, Stage } from "../draw/stage";

export function RunView(props: { link: Link; live?: boolean }) {
  const loaded = useLoad(props.link.id, () => loadRun(props.link.id));
  return <Shown loaded={loaded} what="the run">{(run) => <RunPage key={run.about.id} run={run} link={props.link} />}</Shown>;
}

export const number = (text: string | undefined): number | null => (text !== undefined && text !== "" && Number.isFinite(+text) ? +text : null);

/** A selection in the address is "task.attempt"; tasks of a server by its numbers, which stay when more tasks come. */
export function selectionOf(run: Run, attempt: number): string | null {
  if (attempt < 0) return null;
  const task = run.task[attempt], known = run.tasks.number[task];
  return `${known >= 0 ? `n${known}` : task}.${run.number[attempt]}`;
}

export function selectedIn(run: Run, text: string | undefined): number {
  const found = /^(n?)(\d+)\.(\d+)$/.exec(text ?? "");
  if (!found) return -1;
  const task = +found[2], again = +found[3];
  for (let i = 0; i < run.count; i++) {
    if (run.number[i] === again && (found[1] ? run.tasks.number[run.task[i]] : run.task[i]) === task) return i;
  }
  return -1;
}

/** `home` is the range to begin with, where it is not the whole run. */
export function RunPage(props: { run: Run; link: Link; height?: number; home?: [number, number] }) {
  const { run, link } = props, { query } = link, stage = useRef<Stage | null>(null);
  const by = (COLOUR_BYS as string[]).includes(query.by) ? (query.by as ColourBy) : "function";
  const rows = (["lanes", "folded"].includes(query.rows) ? query.rows : "auto") as Look["rows"];
  const find = query.find ?? "", matches = useMemo(() => matching(run, find), [run, find]);
  const from = number(query.from), to = number(query.to), selected = useMemo(() => selectedIn(run, query.at), [run, query.at]);
  const range = from !== null && to !== null && to > from ? ([from, to] as [number, number]) : props.home ?? null;
  const [made, setMade] = useState(0);
  const select = (attempt: number): void => adjust({ at: selectionOf(run, attempt) });
  const shown = useMemo(() => visibleAttempts(run, range, matches), [run, range?.[0], range?.[1], matches]);
  publish("run", () => ({ about: run.about, attempts: run.count, shown: shown.length, watts: stage.current?.watts ?? null, range: stage.current ? [stage.current.from, stage.current.to] : null, folded: stage.current?.rows?.folded ?? null, selected, place: selected >= 0 && stage.current ? stage.current.place(stage.current.laid.attempt.indexOf(selected)) : null }));
  return (
    <section aria-labelledby="run-title" class="run">
      {run.about.kind === "live" ? <h3 id="run-title">The last minutes</h3> : <h2 id="run-title">{run.about.title || run.about.workload || run.about.id}</h2>}
      <Facts run={run} />
      <Notes notes={run.notes} />
      <Controls run={run} link={link} matches={matches} />
      <Timeline run={run} name="Schedule and power" by={by} matches={matches} rows={rows} range={range} selected={selected} height={props.height}
        onRange={(a, b) => adjust(a <= 0 && b >= run.span ? { from: null, to: null } : { from: +a.toPrecision(9), to: +b.toPrecision(9) })}
        onSelect={select} onStage={(own) => { stage.current = own; setMade(made + 1); }} />
      {stage.current && <Keys stage={stage.current} by={by} find={find} />}
      {selected >= 0 && <TaskPanel run={run} attempt={selected} close={() => select(-1)} />}
      <Exports run={run} stage={() => stage.current} range={range} />
      <Joules run={run} />
      <Table name="Attempts in view" heads={attemptHeads} rows={() => attemptRows(run, shown)} total={shown.length} onRow={(row) => select(shown[row])} />
    </section>
  );
}

export function Facts(props: { run: Run }) {
  const { run } = props, { about } = run;
  const facts: [string, string][] = [
    ["policy", about.policy], ["nodes", String(run.nodes.length)], ["attempts", run.count.toLocaleString("en")],
    ["makespan", time(about.makespan_s ?? NaN)], ["energy", energy(about.energy_total_j)], ["peak", power(about.peak_w)],
    ["idle share", share(about.energy_j?.idle, about.energy_total_j)], ["state", about.simulated ? "simulated" : about.state],
  ];
  return (
    <dl class="facts">
      {facts.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
      {run.edges.parent.length > 0 && about.kind !== "live" && <div><dt>graph</dt><dd><a href={href("workflow", about.id)}>workflow</a></dd></div>}
    </dl>
  );
}

function share(part: number | null | undefined, whole: number | null | undefined): string {
  return part == null || !whole ? "–" : `${((100 * part) / whole).toFixed(1)} %`;
}
