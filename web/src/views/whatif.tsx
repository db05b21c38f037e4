// What if: the present rolled forward, or a recorded workflow again, under other policies; with spread over seeds.

import { useEffect, useState } from "preact/hooks";
import { cancelForecast, forecast, forecasts, loadLive, runs, startForecast, type Figure, type Forecast, type Page } from "../data/api";
import { Trouble as Told } from "../data/columns";
import { energy, number, power, time } from "../draw/axis";
import { Shown, Trouble, useLoad } from "../parts/load";
import { Table, type Cell } from "../parts/table";
import { publish } from "../drawn";
import type { LiveAbout } from "./followed";

const USUAL = ["least-energy", "fifo"];
const MOST_POLICIES = 8;
const said = (error: unknown): string => (error instanceof Told ? error.message : "The forecast could not be started.");

export function WhatIf(props: { page: Page }) {
  const listed = useLoad("forecasts", forecasts), [current, setCurrent] = useState<string | null>(null), [trouble, setTrouble] = useState<string | null>(null);
  const start = (body: object): void => { setTrouble(null); startForecast(body).then(({ id }) => { setCurrent(id); listed.again(); }, (error: unknown) => setTrouble(said(error))); };
  const shown = current ?? listed.value?.[0]?.id ?? null;
  return (
    <section aria-labelledby="whatif-title">
      <h2 id="whatif-title">What-if</h2>
      <p class="quiet">A forecast runs beside the server and changes nothing there. <Present /></p>
      <Ask page={props.page} start={start} />
      {trouble && <Trouble text={trouble} />}
      {shown ? <One key={shown} id={shown} /> : <p class="quiet">No forecast has been asked for yet.</p>}
      <Shown loaded={listed} what="earlier forecasts">{(found) => found.length > 1 ? <p class="controls"><label>Earlier <select value={shown ?? ""} onChange={(event) => setCurrent(event.currentTarget.value)}>{found.map((one) => <option key={one.id} value={one.id}>{one.kind} {one.id} ({one.state})</option>)}</select></label></p> : null}</Shown>
    </section>
  );
}

/** What the forecast starts from. */
function Present() {
  const { value } = useLoad("present", () => loadLive(60)), about = value?.about.live as LiveAbout | undefined;
  if (!about) return null;
  return <>Now: {about.policy}, {number(about.running)} running, {number(about.waiting)} waiting{about.watts === null ? "" : `, ${power(about.watts)}`}.</>;
}

function Ask(props: { page: Page; start: (body: object) => void }) {
  const { policies, clusters } = props.page, listed = useLoad("what-if runs", runs);
  const [kind, setKind] = useState("roll"), [chosen, setChosen] = useState<string[]>(() => { const usual = USUAL.filter((name) => policies.includes(name)); return usual.length ? usual : policies.slice(0, 2); }), [seeds, setSeeds] = useState("5"), [hours, setHours] = useState("1"), [workflow, setWorkflow] = useState(""), [cluster, setCluster] = useState("");
  const recorded = (listed.value ?? []).filter((row) => row.source === "server" && row.state !== "open");
  const send = (event: Event): void => {
    event.preventDefault();
    const shared = { policies: chosen, seeds: Math.max(1, Math.min(20, Math.round(Number(seeds)) || 1)) };
    props.start(kind === "roll" ? { kind, ...shared, for_s: Number(hours) > 0 ? Number(hours) * 3600 : null, spread: 0.3 } : { kind, ...shared, workflow: workflow || recorded[0]?.id, cluster: cluster || null });
  };
  return (
    <form class="ask" onSubmit={send}>
      <p class="controls">
        <label>Question <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}><option value="roll">How will the present go on?</option><option value="rerun" disabled={!recorded.length}>How would a recorded workflow have gone?</option></select></label>
        {kind === "roll" ? <label>Hours <input type="number" min="0" step="any" value={hours} onInput={(event) => setHours(event.currentTarget.value)} /></label> : (
          <>
            <label>Workflow <select value={workflow} onChange={(event) => setWorkflow(event.currentTarget.value)}>{recorded.map((row) => <option key={row.id} value={row.id}>{row.title || row.id}</option>)}</select></label>
            <label>Cluster <select value={cluster} onChange={(event) => setCluster(event.currentTarget.value)}><option value="">as it was</option>{clusters.map((name) => <option key={name} value={name}>{name}</option>)}</select></label>
          </>
        )}
        <label>Seeds <input type="number" min="1" max="20" value={seeds} onInput={(event) => setSeeds(event.currentTarget.value)} /></label>
      </p>
      <fieldset><legend>Policies</legend>{policies.map((name) => <label key={name} class="check"><input type="checkbox" checked={chosen.includes(name)} onChange={() => setChosen(chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name])} /> {name}</label>)}</fieldset>
      <p><button type="submit" disabled={!chosen.length || chosen.length > MOST_POLICIES}>Start</button>{chosen.length > MOST_POLICIES && <span class="quiet"> at most {MOST_POLICIES} policies at once</span>}</p>
    </form>
  );
}

function One(props: { id: string }) {
  const loaded = useLoad(`forecast ${props.id}`, () => forecast(props.id)), { value } = loaded, [trouble, setTrouble] = useState<string | null>(null);
  useEffect(() => {
    if (value?.state !== "running") return undefined;
    const timer = setInterval(loaded.again, 700);
    return () => clearInterval(timer);
  }, [value?.state]);
  publish("forecast", () => value);
  return <Shown loaded={loaded} what="the forecast">{(found) => (
    <section aria-labelledby="forecast-title">
      <h3 id="forecast-title">Forecast <span class="quiet" role="status">{found.state}</span></h3>
      {found.error && <Trouble text={found.error} />}
      {trouble && <Trouble text={trouble} />}
      {found.state === "running" && <p><button type="button" onClick={() => { cancelForecast(found.id).then(loaded.again, (error: unknown) => setTrouble(said(error))); }}>Cancel</button></p>}
      {found.results && found.results.length > 0 && <Results found={found} />}
    </section>
  )}</Shown>;
}

type Kind = "power_w" | "energy_j" | "response_s" | "makespan_s";
const SHOWN: [Kind, string, (value: number | null) => string][] = [["power_w", "Mean power", power], ["energy_j", "Energy", energy], ["response_s", "Mean response", (value) => time(value ?? NaN)], ["makespan_s", "Makespan", (value) => time(value ?? NaN)]];
const KEYS = ["energy_j", "power_w", "response_s", "makespan_s", "late", "ended", "open"] as const;

function Results(props: { found: Forecast }) {
  const { found } = props, results = found.results!, failed = results.filter((one) => one.error), good = results.filter((one) => !one.error), roll = found.kind === "roll";
  const present = found.present, name = roll ? "the present" : "as recorded";
  // Joules of an hour to come have no like in the present: mean power says the same and has.
  const kinds = SHOWN.filter(([kind]) => good.some((one) => one[kind]) && !(kind === "energy_j" && good.some((one) => one.power_w)));
  return (
    <>
      {failed.map((one) => <Trouble key={one.policy} text={`${one.policy}: ${one.error}`} />)}
      <div class="grid">{kinds.map(([kind, title, show]) => <Spread key={kind} name={title} present={[name, present?.[kind] ?? null]} figures={good.map((one) => [one.policy, one[kind]])} show={show} />)}</div>
      {present && <p class="quiet">{roll ? `The present: what the nodes drew in the last ${time(present.span_s ?? NaN)}${present.covered == null ? ", which is not known" : `, of which ${(100 * present.covered).toFixed(0)} % was measured`}, and the mean response of the tasks that ended in it.` : "As recorded: the workflow's own figures, on the nodes that it ran on."}</p>}
      <Table name="Forecast" open
        heads={[{ key: "policy", label: "policy" }, ...KEYS.flatMap((key) => ["", "_low", "_high"].map((end) => ({ key: key + end, label: (key.replace(/_[jsw]$/, "") + end.replace("_", " ")).replace("_", " "), show: (value: Cell) => (key.endsWith("_j") ? energy(Number(value)) : key.endsWith("_w") ? power(Number(value)) : key.endsWith("_s") ? time(Number(value)) : number(Number(value))) }))), { key: "unknown", label: "without an estimate" }]}
        rows={[...(present ? [[name, ...KEYS.flatMap((key): Cell[] => [key in present ? present[key as Kind] : null, null, null]), null]] : []), ...good.map((one) => [one.policy, ...KEYS.flatMap((key): Cell[] => [one[key]?.mean ?? null, one[key]?.low ?? null, one[key]?.high ?? null]), one.unknown])]} />
    </>
  );
}

/** Means as bars, spreads over seeds as whiskers, and the present as a bar of its own and a line through all. */
function Spread(props: { name: string; present: [string, number | null]; figures: [string, Figure | null][]; show: (value: number | null) => string }) {
  const [now, value] = props.present, top = Math.max(1e-12, value ?? 0, ...props.figures.map(([, figure]) => figure?.high ?? 0)), at = (each: number): string => `${(100 * each) / top}%`;
  const line = value === null ? null : <span class="mark" style={{ left: at(value) }} />;
  return (
    <figure class="spread">
      <figcaption>{props.name} <span class="quiet">mean and spread over seeds; the dashed line is {now}</span></figcaption>
      <ol class="bars">
        <li class="now"><span class="name">{now}</span><span class="track">{value !== null && <span class="fill" style={{ width: at(value) }} />}{line}</span><span class="value">{value === null ? "not known" : props.show(value)}</span></li>
        {props.figures.map(([policy, figure]) => (
          <li key={policy}><span class="name">{policy}</span>
            <span class="track">{figure && <><span class="fill" style={{ width: at(figure.mean) }} />{figure.high > figure.low && <span class="band" style={{ left: at(figure.low), width: at(figure.high - figure.low) }} />}</>}{line}</span>
            <span class="value">{figure ? props.show(figure.mean) : "not known"}</span></li>
        ))}
      </ol>
    </figure>
  );
}
