// Two runs on one time axis with one cursor; tasks that run on another node are marked.

import { useMemo, useState } from "preact/hooks";
import { energy, power, time } from "../draw/axis";
import { counted } from "../data/search";
import { Keys } from "./keys";
import { Timeline } from "./timeline";
import { wattsOf } from "../draw/watts";
import { publish } from "../drawn";
import type { Stage } from "../draw/stage";
import { COLOUR_BYS, type ColourBy, type Run } from "../data/run";

/** For each attempt 1 where its task was done on a node of another name in the other run. */
export function moved(run: Run, other: Run): Uint8Array {
  const places = placesOf(other), found = new Uint8Array(run.count);
  for (let i = 0; i < run.count; i++) {
    const there = places.get(keyOf(run, run.task[i]));
    found[i] = there !== undefined && there !== run.nodes[run.node[i]].name ? 1 : 0;
  }
  return found;
}

const keyOf = (run: Run, task: number): string => `${run.flows.name(run.tasks.flow[task])}\n${run.tasks.id(task)}`;

function placesOf(run: Run): Map<string, string> {
  const found = new Map<string, string>();
  for (let i = 0; i < run.count; i++) if (run.outcome[i] <= 0) found.set(keyOf(run, run.task[i]), run.nodes[run.node[i]].name);
  return found;
}

export function Pair(props: { runs: Run[]; names: string[]; beside?: boolean; height?: number; marked?: boolean }) {
  const [by, setBy] = useState<ColourBy>("function"), [mark, setMark] = useState(props.marked ?? false), [range, setRange] = useState<[number, number] | null>(null);
  const [cursor, setCursor] = useState<number | null>(null), [stage, setStage] = useState<Stage | null>(null), [selected, select] = useState<[number, number]>([-1, -1]);
  const [first, second] = props.runs;
  const marks = useMemo(() => (second ? [moved(first, second), moved(second, first)] : [null, null]), [first, second]);
  const span = Math.max(...props.runs.map((run) => run.span)), count = marks[0] ? counted(marks[0]) : 0;
  const likes = useMemo(() => { const peak = Math.max(...props.runs.map((run) => wattsOf(run, 0, run.span)?.peak ?? 0)); return props.runs.map(() => ({ run: first, peak })); }, [first, second]);
  const shown = range ?? ([0, span] as [number, number]);
  publish("pair", () => ({ moved: count, range: shown, names: props.names }));
  return (
    <div class="pair-of">
      <p class="controls">
        <label>Colour by <select value={by} onChange={(event) => setBy(event.currentTarget.value as ColourBy)}>{COLOUR_BYS.map((each) => <option key={each} value={each}>{each === "wait" ? "wait reason" : each}</option>)}</select></label>
        {second && <label><input type="checkbox" checked={mark} onChange={() => setMark(!mark)} /> mark moved tasks ({count.toLocaleString("en")} run on another node)</label>}
        <button type="button" onClick={() => setRange(null)}>Whole run</button>
      </p>
      <div class={props.beside ? "both beside" : "both"}>
        {props.runs.map((run, r) => (
          <figure key={r}>
            <figcaption>{props.names[r]} <span class="quiet">{time(run.about.makespan_s ?? run.span)} · {energy(run.about.energy_total_j)} · peak {power(run.about.peak_w)} · {run.count.toLocaleString("en")} attempts</span></figcaption>
            <Timeline run={run} name={props.names[r]} by={by} matches={mark && count > 0 ? marks[r] : null} rows="auto" range={shown} axis={span} like={likes[r]} selected={selected[0] === r ? selected[1] : -1} height={props.height ?? 320}
              cursor={cursor} onCursor={setCursor} onRange={(from, to) => setRange(from <= 0 && to >= span ? null : [from, to])} onStage={r === 0 ? setStage : undefined} onSelect={(attempt) => select([r, attempt])} />
          </figure>
        ))}
      </div>
      {stage && <Keys stage={stage} by={by} find="" still />}
    </div>
  );
}
