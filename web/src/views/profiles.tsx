// Power curves of nodes and devices: P(k), with band, source and age where they are known.

import { useMemo } from "preact/hooks";
import type uPlot from "uplot";
import { colourOf } from "../draw/colour";
import { number, power } from "../draw/axis";
import { href, type Link } from "../link";
import { loadRun, runs } from "../data/api";
import { Chart } from "../parts/chart";
import { Shown, useLoad } from "../parts/load";
import { Table } from "../parts/table";
import { useScheme } from "../parts/scheme";
import { publish } from "../drawn";
import type { Curve, Run } from "../data/run";

interface Profile { name: string; what: string; nodes: string[]; curve: Curve }

/** Nodes of equal curves are one profile. */
export function profilesOf(run: Run): Profile[] {
  const found = new Map<string, Profile>();
  const add = (name: string, what: string, node: string, curve: Curve | null): void => {
    if (!curve) return;
    const key = JSON.stringify([what, curve]), own = found.get(key);
    if (own) { if (!own.nodes.includes(node)) own.nodes.push(node); } else found.set(key, { name, what, nodes: [node], curve });
  };
  for (const node of run.nodes) {
    add(run.kinds[node.kind] ?? node.name, "node", node.name, node.power);
    for (const device of node.devices) add(device.model || device.kind, device.kind, node.name, device.power);
  }
  return [...found.values()];
}

export function Profiles(props: { link: Link }) {
  const listed = useLoad("profile runs", runs), id = props.link.id || listed.value?.[0]?.id || "";
  const loaded = useLoad(id, async () => (id ? loadRun(id) : null));
  return (
    <section aria-labelledby="profiles-title">
      <h2 id="profiles-title">Profiles</h2>
      <p class="quiet">How many watts a machine draws at each load; what schedules are decided and runs are charged by.</p>
      {listed.value && listed.value.length > 1 && <p class="controls"><label>Cluster of run <select value={id} onChange={(event) => { location.hash = href("profiles", event.currentTarget.value); }}>{listed.value.map((row) => <option key={row.id} value={row.id}>{row.title || row.id}</option>)}</select></label></p>}
      {listed.value?.length === 0 ? <p class="quiet">No run is known yet, so there is no cluster to show.</p> : <Shown loaded={loaded} what="the profiles">{(run) => <All run={run!} />}</Shown>}
    </section>
  );
}

function All(props: { run: Run }) {
  const found = useMemo(() => profilesOf(props.run), [props.run]), dark = props.run.nodes.filter((node) => !node.power).map((node) => node.name);
  publish("profiles", () => found);
  return (
    <>
      {dark.length > 0 && <p class="trouble">{dark.length} nodes have no power profile, so their joules are unknown: {dark.slice(0, 8).join(", ")}{dark.length > 8 ? " …" : ""}</p>}
      <div class="grid">{found.map((profile, p) => <One key={p} profile={profile} colour={p} />)}</div>
      <Table name="Profiles" heads={[{ key: "profile", label: "profile" }, { key: "what", label: "of" }, { key: "nodes", label: "nodes" }, { key: "idle_w", label: "idle", show: (value) => power(Number(value)) }, { key: "full_w", label: "full", show: (value) => power(Number(value)) }, { key: "scope", label: "scope" }, { key: "provenance", label: "provenance" }, { key: "source", label: "source" }]}
        rows={found.map(({ name, what, nodes, curve }) => [name, what, nodes.length, curve.watts[0] ?? null, curve.watts[curve.watts.length - 1] ?? null, curve.scope ?? null, curve.provenance, curve.source])} />
    </>
  );
}

function One(props: { profile: Profile; colour: number }) {
  const { profile } = props, { curve } = profile, scheme = useScheme(), xs = curve.busy ?? curve.share ?? curve.watts.map((_, i) => i);
  const made = useMemo(() => {
    const colour = colourOf(props.colour, scheme), dashed = curve.provenance === "guessed" ? [2, 4] : curve.provenance === "modelled" ? [8, 4] : undefined;
    const data = [xs, curve.watts, ...(curve.low && curve.high ? [curve.low, curve.high] : [])] as uPlot.AlignedData;
    const series: uPlot.Series[] = [{}, { stroke: colour, width: 2, dash: dashed, points: { show: true, size: 5 } }];
    if (curve.low && curve.high) series.push({ stroke: colour, width: 1 }, { stroke: colour, width: 1 });
    return { data, series };
  }, [profile, scheme]);
  return (
    <figure class="profile">
      <figcaption>{profile.name} <span class="quiet">{profile.what}, {profile.nodes.length === 1 ? profile.nodes[0] : `${profile.nodes.length} nodes`}; {curve.provenance ?? "provenance unknown"}{curve.scope ? `, ${curve.scope}` : ""}</span></figcaption>
      <Chart name={`Power of ${profile.name}`} data={made.data} series={made.series} x={{ label: curve.busy ? "busy hardware threads" : "busy share" }} y={{ label: "power", show: (value) => power(value) }} height={200} range={{ y: [0, Math.max(1, ...curve.watts) * 1.08] }} />
      <p class="quiet">{curve.source ?? "no source named"}{curve.measured_s ? `; measured ${new Date(curve.measured_s * 1000).toISOString().slice(0, 10)}` : ""}. Idle {power(curve.watts[0])}, full {power(curve.watts[curve.watts.length - 1])}, {number(curve.watts.length)} points.</p>
    </figure>
  );
}
