// Runs against each other: energy and response with the front, and two schedules under each other.

import { useMemo } from "preact/hooks";
import type uPlot from "uplot";
import { colourOf, THEMES } from "../draw/colour";
import { energy, time } from "../draw/axis";
import { adjust, type Link } from "../link";
import { loadRun, runs, type RunRow } from "../data/api";
import { Chart } from "../parts/chart";
import { Pair } from "../parts/pair";
import { Shown, useLoad } from "../parts/load";
import { Table } from "../parts/table";
import { useScheme } from "../parts/scheme";
import { publish } from "../drawn";

export interface Point { id: string; name: string; x: number; y: number; front: boolean }

/** Runs that no other beats in both; rows without both figures are left out. */
export function pointsOf(rows: RunRow[]): Point[] {
  const known = rows.filter((row) => row.energy_j !== null && (row.response_mean_s ?? row.makespan_s) !== null);
  const points = known.map((row) => ({ id: row.id, name: row.title || row.id, x: row.response_mean_s ?? row.makespan_s!, y: row.energy_j!, front: true }));
  for (const point of points) point.front = !points.some((other) => other.x <= point.x && other.y <= point.y && (other.x < point.x || other.y < point.y));
  return points.sort((a, b) => a.x - b.x || a.y - b.y);
}

const chosenIn = (link: Link): string[] => (link.query.ids ?? "").split(",").filter(Boolean).map((each) => { try { return decodeURIComponent(each); } catch { return each; } });

export function Compare(props: { link: Link }) {
  const loaded = useLoad("runs", runs);
  return (
    <section aria-labelledby="compare-title">
      <h2 id="compare-title">Compare</h2>
      <Shown loaded={loaded} what="the runs">{(rows) => <Both rows={rows} link={props.link} />}</Shown>
    </section>
  );
}

function Both(props: { rows: RunRow[]; link: Link }) {
  const { rows, link } = props, asked = chosenIn(link), known = asked.filter((id) => rows.some((row) => row.id === id));
  const shown = known.length ? rows.filter((row) => known.includes(row.id)) : rows, points = useMemo(() => pointsOf(shown), [rows, link.query.ids]);
  const first = rows.some((row) => row.id === link.query.a) ? link.query.a : known[0] ?? rows[0]?.id, second = rows.some((row) => row.id === link.query.b) ? link.query.b : known[1] ?? rows.find((row) => row.id !== first)?.id;
  publish("compare", () => points);
  if (rows.length < 2) return <p class="quiet">Comparing needs two runs, and there {rows.length ? "is one" : "is none"}.</p>;
  return (
    <>
      {points.length ? <Scatter points={points} pick={(id) => adjust(id === second ? { a: id, b: first ?? null } : { a: id })} /> : <p class="quiet">None of these runs has both an energy and a response time, so there is no chart of them.</p>}
      <Table name="Runs" heads={[{ key: "run", label: "run" }, { key: "response_s", label: "mean response", show: (value) => time(Number(value)) }, { key: "energy_j", label: "energy", show: (value) => energy(Number(value)) }, { key: "front", label: "front" }]}
        rows={points.map((point) => [point.name, point.x, point.y, point.front ? "yes" : ""])} onRow={(row) => adjust({ a: points[row].id })} />
      <h3>Two schedules</h3>
      <p class="controls">{[["above", first, "a"], ["below", second, "b"]].map(([label, value, key]) => (
        <label key={key}>{label} <select value={value} onChange={(event) => adjust({ [key!]: event.currentTarget.value })}>{rows.map((row) => <option key={row.id} value={row.id}>{row.title || row.id}</option>)}</select></label>
      ))}</p>
      {first && second && <Schedules ids={[first, second]} rows={rows} />}
    </>
  );
}

function Schedules(props: { ids: string[]; rows: RunRow[] }) {
  const loaded = useLoad(props.ids.join("\n"), () => Promise.all(props.ids.map(loadRun)));
  const name = (id: string): string => props.rows.find((row) => row.id === id)?.title || id;
  return <Shown loaded={loaded} what="the two runs">{(found) => <Pair runs={found} names={props.ids.map(name)} marked />}</Shown>;
}

function Scatter(props: { points: Point[]; pick: (id: string) => void }) {
  const scheme = useScheme(), { points } = props, xs = points.map((point) => point.x), ys = points.map((point) => point.y);
  const room = (values: number[]): [number, number] => { const low = Math.min(...values), high = Math.max(...values), pad = (high - low || high || 1) * 0.12; return [low - pad, high + pad]; };
  const made = useMemo(() => ({
    data: [xs, ys] as uPlot.AlignedData,
    series: [{}, { stroke: colourOf(0, scheme), paths: () => null, points: { show: true, size: 10, fill: colourOf(0, scheme) } }] as uPlot.Series[],
  }), [points, scheme]);
  const draw = (plot: uPlot): void => {
    const { ctx } = plot, theme = THEMES[scheme], at = (point: Point): [number, number] => [plot.valToPos(point.x, "x", true), plot.valToPos(point.y, "y", true)];
    ctx.save();
    ctx.strokeStyle = theme.accent; ctx.fillStyle = theme.ink; ctx.lineWidth = 2 * devicePixelRatio; ctx.setLineDash([6, 5]); ctx.font = `${11 * devicePixelRatio}px system-ui`;
    ctx.beginPath();
    points.filter((point) => point.front).forEach((point, i, front) => { const [x, y] = at(point); if (i === 0) ctx.moveTo(x, y); else { ctx.lineTo(x, at(front[i - 1])[1]); ctx.lineTo(x, y); } });
    ctx.stroke();
    if (points.length <= 30) for (const point of points) { const [x, y] = at(point); ctx.textAlign = x > plot.bbox.left + plot.bbox.width * 0.7 ? "right" : "left"; ctx.fillText(`  ${point.name}  `, x, y - 8 * devicePixelRatio); }
    ctx.restore();
  };
  return (
    <figure>
      <figcaption>Energy and mean response <span class="quiet">each point a run; less is better on both; dashed: the Pareto front. A click on a point, or on its name, opens its schedule below.</span></figcaption>
      <Chart name="Energy and response" data={made.data} series={made.series} x={{ label: "mean response", show: (value) => time(value) }} y={{ label: "energy", show: (value) => energy(value) }} height={320} range={{ x: room(xs), y: room(ys) }} draw={draw} pick={(index) => props.pick(points[index].id)} />
      <p class="legend">{points.slice(0, 24).map((point) => <button type="button" class="key" key={point.id} onClick={() => props.pick(point.id)}>{point.front ? "● " : "○ "}{point.name}</button>)}</p>
    </figure>
  );
}
