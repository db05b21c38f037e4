// Power curves of nodes and devices: P(k), with band, source and age where they are known.

import { useMemo, useState } from "preact/hooks";
import type uPlot from "uplot";
import { colourOf } from "../draw/colour";
import { number, power, time } from "../draw/axis";
import { href, type Link } from "../link";
import { loadLive, loadRun, runs, type Page } from "../data/api";
import { Chart } from "../parts/chart";
import { Shown, useLoad } from "../parts/load";
import { Table } from "../parts/table";
import { useScheme } from "../parts/scheme";
import { publish } from "../drawn";
import type { Curve, Run, RunNode } from "../data/run";

interface Profile { name: string; what: string; nodes: string[]; curve: Curve; /** The earliest of its nodes' announcements; null where one is not known. */ announced_s: number | null }

/** Nodes of equal curves are one profile. */
export function profilesOf(run: Run): Profile[] {
  const found = new Map<string, Profile>();
  const add = (name: string, what: string, node: RunNode, curve: Curve | null | undefined): void => {
    if (!curve) return;
    const key = JSON.stringify([what, curve]), own = found.get(key), announced_s = node.announced_s ?? null;
    if (!own) { found.set(key, { name, what, nodes: [node.name], curve, announced_s }); return; }
    if (!own.nodes.includes(node.name)) own.nodes.push(node.name);
    own.announced_s = own.announced_s === null || announced_s === null ? null : Math.min(own.announced_s, announced_s);
  };
  for (const node of run.nodes) {
    add(run.kinds[node.kind] ?? node.name, "node", node, node.power);
    add(node.name, "node, learned", node, node.learned);
    for (const device of node.devices) add(device.model || device.kind, device.kind, node, device.power);
  }
  return [...found.values()];
}

/** How old a curve is, in words. */
export function ageOf(profile: Profile, now_s: number): string {
  const { measured_s } = profile.curve, { announced_s } = profile, ago = (at_s: number): string => `${time(Math.max(0, Math.round(now_s - at_s)))} ago`;
  if (measured_s != null) return `measured until ${ago(measured_s)}`;
  return announced_s === null ? "age not known" : `announced ${ago(announced_s)}; when it was measured is not known`;
}

/** How well a curve is known, in words. */
export const bandOf = (curve: Curve): string => (curve.low && curve.high ? "band: as far as readings near each point lay from it, root mean square" : "band not known");

export function Profiles(props: { link: Link; page: Page }) {
  const listed = useLoad("profile runs", runs), isServer = props.page.mode === "server", id = props.link.id || (isServer ? "" : listed.value?.[0]?.id) || "";
  const loaded = useLoad(`profiles ${id}`, async () => (id ? loadRun(id) : isServer ? loadLive(60) : null));
  return (
    <section aria-labelledby="profiles-title">
      <h2 id="profiles-title">Profiles</h2>
      <p class="quiet">How many watts a machine draws at each load; what schedules are decided and runs are charged by.</p>
      {listed.value && listed.value.length + Number(isServer) > 1 && <p class="controls"><label>Cluster of run <select value={id} onChange={(event) => { location.hash = href("profiles", event.currentTarget.value); }}>{isServer && <option value="">the server now</option>}{listed.value.map((row) => <option key={row.id} value={row.id}>{row.title || row.id}</option>)}</select></label></p>}
      {listed.value?.length === 0 && !isServer ? <p class="quiet">No run is known yet, so there is no cluster to show.</p> : <Shown loaded={loaded} what="the profiles">{(run) => run && <All run={run} />}</Shown>}
    </section>
  );
}

function All(props: { run: Run }) {
  const found = useMemo(() => profilesOf(props.run), [props.run]), dark = props.run.nodes.filter((node) => !node.power).map((node) => node.name);
  const [now_s] = useState(() => Date.now() / 1000);
  publish("profiles", () => found.map((each) => ({ ...each, age: ageOf(each, now_s), band: bandOf(each.curve) })));
  return (
    <>
      {dark.length > 0 && <p class="trouble">{dark.length} nodes have no power profile, so their joules are unknown: {dark.slice(0, 8).join(", ")}{dark.length > 8 ? " …" : ""}</p>}
      <div class="grid">{found.map((profile, p) => <One key={p} profile={profile} colour={p} age={ageOf(profile, now_s)} />)}</div>
      <Table name="Profiles" heads={[{ key: "profile", label: "profile" }, { key: "what", label: "of" }, { key: "nodes", label: "nodes" }, { key: "idle_w", label: "idle", show: (value) => power(Number(value)) }, { key: "full_w", label: "full", show: (value) => power(Number(value)) }, { key: "scope", label: "scope" }, { key: "provenance", label: "provenance" }, { key: "source", label: "source" }, { key: "age", label: "age" }, { key: "band", label: "band" }]}
        rows={found.map((profile) => [profile, profile.curve] as const).map(([profile, curve]) => [profile.name, profile.what, profile.nodes.length, curve.watts[0] ?? null, curve.watts[curve.watts.length - 1] ?? null, curve.scope ?? null, curve.provenance, curve.source || "no source named", ageOf(profile, now_s), bandOf(curve)])} />
    </>
  );
}

function One(props: { profile: Profile; colour: number; age: string }) {
  const { profile } = props, { curve } = profile, scheme = useScheme(), xs = curve.busy ?? curve.share ?? curve.watts.map((_, i) => i);
  const made = useMemo(() => {
    const colour = colourOf(props.colour, scheme), dashed = curve.provenance === "guessed" ? [2, 4] : curve.provenance === "modelled" ? [8, 4] : undefined;
    const data = [xs, curve.watts, ...(curve.low && curve.high ? [curve.low, curve.high] : [])] as uPlot.AlignedData;
    const series: uPlot.Series[] = [{}, { stroke: colour, width: 2, dash: dashed, points: { show: true, size: 5 } }];
    if (curve.low && curve.high) series.push({ stroke: colour, width: 1, dash: [3, 3] }, { stroke: colour, width: 1, dash: [3, 3] });
    return { data, series };
  }, [profile, scheme]);
  return (
    <figure class="profile">
      <figcaption>{profile.name} <span class="quiet">{profile.what}, {profile.nodes.length === 1 ? profile.nodes[0] : `${profile.nodes.length} nodes`}; {curve.provenance ?? "provenance unknown"}{curve.scope ? `, ${curve.scope}` : ""}</span></figcaption>
      <Chart name={`Power of ${profile.name}`} data={made.data} series={made.series} x={{ label: curve.busy ? "busy hardware threads" : "busy share" }} y={{ label: "power", show: (value) => power(value) }} height={200} range={{ y: [0, Math.max(1, ...curve.watts, ...(curve.high ?? []).map((value) => value ?? 0)) * 1.08] }} />
      <p class="quiet">{curve.source || "no source named"}; {props.age}; {bandOf(curve)}. Idle {power(curve.watts[0])}, full {power(curve.watts[curve.watts.length - 1])}, {number(curve.watts.length)} points.</p>
    </figure>
  );
}
