// Joules by function, workflow, user, node or task: bars with bands, filled by how well they are known.

import { useMemo, useState } from "preact/hooks";
import { energy, number, time } from "../draw/axis";
import { shares, type ShareBy } from "../data/shares";
import { publish } from "../drawn";
import { Table, type Cell } from "./table";
import type { Run } from "../data/run";

const BYS: ShareBy[] = ["function", "workflow", "user", "node", "task"];
const MOST = 12;
const joules = (value: Cell): string => energy(Number(value));

export function Joules(props: { run: Run }) {
  const [by, setBy] = useState<ShareBy>("function"), { run } = props;
  const all = useMemo(() => shares(run, by), [run, by]), known = all.filter((share) => share.known > 0), top = Math.max(1e-12, ...known.slice(0, MOST).map((share) => share.high));
  const accounts = Object.entries(run.about.energy_j ?? {}).filter(([, value]) => value !== null && value !== 0);
  publish("joules", () => ({ by, shares: all.slice(0, 1000) }));
  return (
    <section class="joules" aria-labelledby="joules-title">
      <h3 id="joules-title">Joules</h3>
      {run.about.energy_covers && <p class="quiet">These joules cover: {run.about.energy_covers}.</p>}
      <p class="quiet">{accounts.length ? accounts.map(([name, value]) => `${name.replace("_", " ")} ${energy(value)}`).join(" · ") : "No account of this run's joules is known."}</p>
      <label>By <select value={by} onChange={(event) => setBy(event.currentTarget.value as ShareBy)}>{BYS.map((each) => <option key={each} value={each}>{each}</option>)}</select></label>
      {known.length === 0 ? <p class="quiet">Nobody knows the joules of these attempts: the nodes have no meter and no power profile.</p> : (
        <ol class="bars">
          {known.slice(0, MOST).map((share) => (
            <li key={share.index}>
              <span class="name">{share.name || "–"}</span>
              <span class="track"><span class={`fill source-${share.source}`} style={{ width: `${(100 * share.joules) / top}%` }} />
                {share.high > share.low && <span class="band" style={{ left: `${(100 * share.low) / top}%`, width: `${(100 * (share.high - share.low)) / top}%` }} />}</span>
              <span class="value">{energy(share.joules)} <small>{share.source}</small></span>
            </li>
          ))}
        </ol>
      )}
      <Table name={`Joules by ${by}`}
        heads={[{ key: by, label: by }, { key: "energy_j", label: "energy", show: joules }, { key: "low_j", label: "from", show: joules }, { key: "high_j", label: "to", show: joules },
          { key: "source", label: "source" }, { key: "attempts", label: "attempts", show: (value) => number(Number(value)) }, { key: "busy_s", label: "busy", show: (value) => time(Number(value)) }]}
        rows={all.map((share) => [share.name || "–", share.known ? share.joules : null, share.known ? share.low : null, share.known ? share.high : null, share.source, share.attempts, share.busy_s])} />
    </section>
  );
}
