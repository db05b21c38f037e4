// The server now: nodes, queue by reason, watts, budgets, carbon, and the schedule of the last minutes, followed by events.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { loadLive } from "../data/api";
import { Trouble as Told } from "../data/columns";
import { follow, type Batch } from "../data/stream";
import { number, power } from "../draw/axis";
import { Trouble } from "../parts/load";
import { Table } from "../parts/table";
import { publish } from "../drawn";
import { RunPage } from "./run";
import { Budgets } from "./budgets";
import { Followed, type LiveAbout } from "./followed";
import type { Link } from "../link";
import type { Run } from "../data/run";

const LAST_S = 600;
const REFRESH_MS = 4000;

export function Live(props: { link: Link }) {
  const [run, setRun] = useState<Run | null>(null), [trouble, setTrouble] = useState<string | null>(null), [broken, setBroken] = useState<string | null>(null), [told, setTold] = useState<string | null>(null);
  const followed = useRef(new Followed()), [, turn] = useState(0), due = useRef<ReturnType<typeof setTimeout> | undefined>(undefined), asking = useRef(false);
  const snapshot = (): void => {
    if (asking.current) return;
    asking.current = true;
    loadLive(LAST_S).then(
      (found) => { followed.current.snapshot(found); setRun(found); setTrouble(null); turn((n) => n + 1); },
      (error: unknown) => setTrouble(error instanceof Told ? error.message : "The live view could not be drawn; reload the page."),
    ).finally(() => { asking.current = false; });
  };
  useEffect(() => {
    const stop = follow({
      snapshot: (_, reason) => { setTold(reason ? `Events were lost to this view, so it begins anew: ${reason}` : null); snapshot(); },
      batch: (batch: Batch) => {
        followed.current.batch(batch);
        turn((n) => n + 1);
        // Numbers follow each batch at once; the schedule is asked for anew at most every few seconds.
        if (due.current === undefined) due.current = setTimeout(() => { due.current = undefined; snapshot(); }, REFRESH_MS);
      },
      // A stream that the server ended is asked about by an ordinary request, which tells whether the session is over.
      state: (state, sentence) => { setBroken(sentence); if (state === "over") snapshot(); },
    });
    return () => { clearTimeout(due.current); due.current = undefined; stop(); };
  }, []);
  const state = followed.current;
  publish("live", () => state.figures());
  return (
    <section aria-labelledby="live-title">
      <h2 id="live-title">Live</h2>
      {broken && <Trouble text={broken} />}
      {trouble && <Trouble text={trouble} again={snapshot} />}
      {told && <p class="quiet" role="status">{told}</p>}
      {run ? <><Now state={state} about={run.about.live as LiveAbout} /><Nodes state={state} about={run.about.live as LiveAbout} /><Schedule run={run} link={props.link} /></> : !trouble && !broken && <p class="quiet" role="status">Loading what runs now …</p>}
    </section>
  );
}

function Schedule(props: { run: Run; link: Link }) {
  if (props.run.count === 0) return <p class="quiet">Nothing ran in the last {LAST_S / 60} minutes.</p>;
  return <RunPage run={props.run} link={props.link} height={320} home={[earliest(props.run), props.run.span]} />;
}

/** A server that began a minute ago shows that minute, not nine empty ones before it. */
function earliest(run: Run): number {
  let first = run.span;
  for (let i = 0; i < run.count; i++) if (run.placed[i] < first) first = run.placed[i];
  return Math.max(0, first - 0.02 * (run.span - first));
}

function Now(props: { state: Followed; about: LiveAbout }) {
  const { state, about } = props, facts: [string, string][] = [
    ["policy", about.policy], ["running", number(state.running)], ["waiting", number(state.waiting)], ["done since opened", number(state.done)], ["failed since opened", number(state.failed)],
    ["watts", power(state.watts())], ["carbon", about.carbon_g_per_kwh === null ? "–" : `${number(about.carbon_g_per_kwh)} g/kWh`],
    ["carbon now", about.carbon_g_per_kwh === null || state.watts() === null ? "–" : `${number((state.watts()! / 1000) * about.carbon_g_per_kwh)} g/h`],
  ];
  return (
    <>
      {about.trouble && <Trouble text={`The store takes no changes: ${about.trouble}`} />}
      <dl class="facts">{facts.map(([name, value]) => <div key={name}><dt>{name}</dt><dd id={`live-${name.replace(/ /g, "-")}`}>{value}</dd></div>)}</dl>
    </>
  );
}

function Nodes(props: { state: Followed; about: LiveAbout }) {
  const { state, about } = props, queue = about.queue ?? [];
  const reasons = useMemo(() => { const sums = new Map<string, number>(); for (const one of queue) sums.set(one.reason || "no reason told", (sums.get(one.reason || "no reason told") ?? 0) + one.count); return [...sums].sort((a, b) => b[1] - a[1]); }, [queue]);
  const most = Math.max(1, ...reasons.map(([, count]) => count));
  return (
    <div class="grid">
      <section aria-labelledby="queue-title">
        <h3 id="queue-title">Queue by reason</h3>
        {reasons.length ? <ol class="bars">{reasons.slice(0, 10).map(([reason, count]) => <li key={reason}><span class="name" title={reason}>{reason}</span><span class="track"><span class="fill" style={{ width: `${(100 * count) / most}%` }} /></span><span class="value">{number(count)}</span></li>)}</ol> : <p class="quiet">Nothing waits.</p>}
        <Table name="Queue" heads={[{ key: "workflow", label: "workflow" }, { key: "function", label: "function" }, { key: "count", label: "tasks" }, { key: "reason", label: "reason" }]} rows={queue.map((one) => [one.workflow, one.function, one.count, one.reason])} />
      </section>
      <section aria-labelledby="nodes-title">
        <h3 id="nodes-title">Nodes</h3>
        <Table name="Nodes" open heads={[{ key: "node", label: "node" }, { key: "state", label: "state" }, { key: "running", label: "running" }, { key: "watts", label: "power", show: (value) => power(Number(value)) }, { key: "busy", label: "busy", show: (value) => number(Number(value)) }]}
          rows={(about.nodes ?? []).map((node) => [node.name, state.nodes.get(node.name) ?? node.state, state.onNode(node.name) ?? node.running, state.nodeWatts.get(node.name) ?? node.watts, node.busy])} />
      </section>
      <Budgets budgets={about.budgets ?? []} now_s={about.now_s} />
    </div>
  );
}
