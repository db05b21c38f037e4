// The graph of a workflow: layers, critical path, slack; what has not run yet is there too, in grey.

import { useMemo, useState } from "preact/hooks";
import { adjust, go, href, type Link } from "../link";
import { loadRun } from "../data/api";
import { graphOf, type Graph } from "../data/path";
import { drawing, stateOf, type Drawing } from "../draw/dag";
import { energy, time } from "../draw/axis";
import { Notes, Shown, useLoad } from "../parts/load";
import { Table, type Cell } from "../parts/table";
import { save } from "../export/save";
import { publish } from "../drawn";
import { selectionOf } from "./run";
import { Why } from "../parts/task";
import type { Run } from "../data/run";

const MOST_FLOWS = 500;

export function WorkflowView(props: { link: Link }) {
  const loaded = useLoad(props.link.id, () => loadRun(props.link.id));
  return <Shown loaded={loaded} what="the workflow">{(run) => <Flow run={run} link={props.link} />}</Shown>;
}

function Flow(props: { run: Run; link: Link }) {
  const { run, link } = props, wish = Number(link.query.flow ?? 0), flow = wish >= 0 && wish < run.flows.count ? wish : 0;
  const graph = useMemo(() => graphOf(run, flow), [run, flow]), made = useMemo(() => drawing(run, graph), [run, graph]);
  const chosen = Number(link.query.task ?? -1), place = Number.isInteger(chosen) && chosen >= 0 && chosen < graph.tasks.length ? chosen : -1;
  const path = graph.duration.reduce((sum, each, t) => (graph.critical[t] ? sum + each : sum), 0);
  publish("workflow", () => ({ tasks: graph.tasks.length, edges: graph.edges.length, boxes: made.boxes.length, grouped: made.grouped, critical: graph.critical, slack: graph.slack, level: graph.level }));
  const seconds = (value: Cell): string => time(Number(value));
  return (
    <section aria-labelledby="flow-title">
      <h2 id="flow-title">{run.flows.name(flow) || run.about.title}</h2>
      <p><a href={href("run", run.about.id)}>Schedule and power</a></p>
      {run.flows.count > 1 && <p class="controls"><label>Workflow <select value={String(flow)} onChange={(event) => adjust({ flow: event.currentTarget.value, task: null })}>
        {Array.from({ length: Math.min(MOST_FLOWS, run.flows.count) }, (_, f) => <option key={f} value={String(f)}>{run.flows.name(f) || `workflow ${f}`}</option>)}
      </select></label></p>}
      <Notes notes={run.notes} />
      <p class="quiet">{graph.tasks.length.toLocaleString("en")} tasks, {graph.edges.length.toLocaleString("en")} edges, {1 + graph.level.reduce((most, each) => Math.max(most, each), 0)} levels{path > 0 ? `; thick: the critical path, ${time(path)} of running` : ""}{made.grouped ? "; more than 500 tasks are drawn as their functions" : ""}.</p>
      {graph.tasks.length ? <Picture made={made} name={run.flows.name(flow) || "workflow"} chosen={place} /> : <p class="quiet">This workflow has no tasks yet.</p>}
      {place >= 0 && <Chosen run={run} graph={graph} place={place} />}
      <Table name="Tasks" onRow={(row) => adjust({ task: row })} total={graph.tasks.length}
        heads={[{ key: "task", label: "task" }, { key: "function", label: "function" }, { key: "state", label: "state" }, { key: "level", label: "level" }, { key: "runtime_s", label: "ran", show: seconds },
          { key: "slack_s", label: "slack", show: seconds }, { key: "critical", label: "critical" }, { key: "energy_j", label: "energy", show: (value) => energy(Number(value)) }]}
        rows={() => graph.tasks.map((task, t) => [run.tasks.id(task) || String(task), run.functions[run.tasks.fn[task]] ?? null, stateOf(run, graph, t), graph.level[t], graph.attempt[t] < 0 ? null : graph.duration[t],
          Number.isNaN(graph.slack[t]) ? null : graph.slack[t], graph.critical[t] ? "yes" : "", graph.attempt[t] < 0 || Number.isNaN(graph.joules[t]) ? null : graph.joules[t]])} />
    </section>
  );
}

function Picture(props: { made: Drawing; name: string; chosen: number }) {
  const [zoom, setZoom] = useState("fit"), room = Math.min(1360, document.getElementById("main")?.clientWidth ?? 1000);
  const scale = zoom === "fit" ? Math.max(0.35, Math.min(1, room / props.made.width, 600 / props.made.height)) : Number(zoom);
  const { made } = props, label = `Graph of ${props.name}: ${made.boxes.length} boxes by levels; the table below has the same tasks`;
  const export_ = (): void => {
    const svg = document.querySelector(".dag svg")!.cloneNode(true) as SVGElement;
    svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    save(`${props.name}.svg`, new XMLSerializer().serializeToString(svg), "image/svg+xml");
  };
  return (
    <>
      <div class="dag wide" tabIndex={0} role="region" aria-label={label}>
        <svg width={made.width * scale} height={made.height * scale} viewBox={`0 0 ${made.width} ${made.height}`} role="img" aria-label={label}>
          {made.lines.map((line, i) => <path key={i} class={line.critical ? "line critical" : "line"} fill="none" stroke={line.critical ? "#d55e00" : "#8a8f98"} stroke-width={line.critical ? 2.4 : 1} d={`M${line.points.map((point) => `${point.x.toFixed(1)} ${point.y.toFixed(1)}`).join("L")}`} />)}
          {made.boxes.map((box) => (
            <g key={box.key} class={`box ${box.state}${box.critical ? " critical" : ""}${box.task === props.chosen ? " chosen" : ""}`} transform={`translate(${(box.x - box.width / 2).toFixed(1)} ${(box.y - box.height / 2).toFixed(1)})`} onClick={() => adjust({ task: box.task })}>
              <title>{`${box.title} ${box.note} ${box.state}${box.critical ? ", critical" : ""}`}</title>
              <rect width={box.width} height={box.height} rx="5" />
              <text x="8" y={box.note ? 16 : 14} font-size="12" font-family="system-ui, sans-serif">{box.title}</text>
              {box.note && <text x="8" y="31" font-size="11" font-family="system-ui, sans-serif" class="note">{box.note}</text>}
            </g>
          ))}
        </svg>
      </div>
      <p class="legend">{["done", "running", "waiting", "failed", "cancelled", "unborn"].map((state) => <span class="key" key={state}><i class={`state ${state}`} />{state}</span>)} <label>Size <select value={zoom} onChange={(event) => setZoom(event.currentTarget.value)}><option value="fit">fit</option><option value="0.5">50 %</option><option value="1">100 %</option><option value="1.5">150 %</option></select></label> <button type="button" onClick={export_}>SVG</button></p>
    </>
  );
}

function Chosen(props: { run: Run; graph: Graph; place: number }) {
  const { run, graph, place } = props, task = graph.tasks[place], attempt = graph.attempt[place], key = run.tasks.number[task];
  return (
    <aside class="panel" aria-label="Task">
      <h3>{run.tasks.id(task) || task}</h3>
      <button type="button" class="close" onClick={() => adjust({ task: null })}>Close</button>
      <p>{stateOf(run, graph, place)}{attempt >= 0 ? `, ran ${time(graph.duration[place])} on ${run.nodes[run.node[attempt]].name}, slack ${time(graph.slack[place])}` : ", has not run"}.
        {attempt >= 0 && <> <button type="button" onClick={() => go(href("run", run.about.id, { at: selectionOf(run, attempt) }))}>Show in the schedule</button></>}</p>
      {key >= 0 && <Why key={key} task={key} number={0} label={attempt < 0 ? "Why does it wait?" : "Why here?"} />}
    </aside>
  );
}
