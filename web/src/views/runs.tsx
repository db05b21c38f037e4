// All runs that the reader may see: workflows of the server, or the files that were opened.

import { useState } from "preact/hooks";
import { runs, type RunRow } from "../data/api";
import { energy, time } from "../draw/axis";
import { go, href } from "../link";
import { Shown, useLoad } from "../parts/load";
import { publish } from "../drawn";

export function Runs() {
  const loaded = useLoad("runs", runs);
  return (
    <section aria-labelledby="runs-title">
      <h2 id="runs-title">Runs</h2>
      <Shown loaded={loaded} what="the runs">{(found) => (found.length ? <List rows={found} /> : <p class="quiet">There is no run yet: <code>wattflow run FILE</code> runs a workflow, <code>wattflow simulate --attempts FILE</code> saves a run.</p>)}</Shown>
    </section>
  );
}

function List(props: { rows: RunRow[] }) {
  const [chosen, setChosen] = useState<string[]>([]), failedFirst = [...props.rows].sort((a, b) => Number(b.state === "failed") - Number(a.state === "failed"));
  const toggle = (id: string): void => setChosen((now) => (now.includes(id) ? now.filter((each) => each !== id) : [...now, id]));
  publish("runs", () => props.rows);
  return (
    <>
      <p><button type="button" disabled={chosen.length < 2} onClick={() => go(href("compare", "", { ids: chosen.map(encodeURIComponent).join(",") }))}>Compare {chosen.length || ""} chosen</button></p>
      <div class="wide" tabIndex={0} role="region" aria-label="List of runs">
        <table>
          <thead><tr><th scope="col"><span class="unseen">choose</span></th>{["run", "policy", "owner", "state", "makespan", "energy", "mean response", "attempts"].map((name) => <th key={name} scope="col">{name}</th>)}</tr></thead>
          <tbody>
            {failedFirst.map((row) => (
              <tr key={row.id}>
                <td><input type="checkbox" aria-label={`choose ${row.title}`} checked={chosen.includes(row.id)} onChange={() => toggle(row.id)} /></td>
                <th scope="row"><a href={href("run", row.id)}>{row.title || row.id}</a></th>
                <td>{row.policy}</td><td>{row.owner ?? "–"}</td><td>{row.simulated ? "simulated" : row.state}</td>
                <td class="number">{time(row.makespan_s ?? NaN)}</td><td class="number">{energy(row.energy_j)}</td><td class="number">{time(row.response_mean_s ?? NaN)}</td>
                <td class="number">{row.attempts?.toLocaleString("en") ?? "–"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}
