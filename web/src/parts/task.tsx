// The task behind a bar, and why it runs there: candidates and their terms, and what the choice cost in the end.

import { useState } from "preact/hooks";
import { explain, type Explanation } from "../data/api";
import { Trouble as Told } from "../data/columns";
import { energy, number, time } from "../draw/axis";
import { barTip, joulesOf } from "./tip";
import { Table } from "./table";
import { Trouble } from "./load";
import type { Run } from "../data/run";

export function TaskPanel(props: { run: Run; attempt: number; close: () => void }) {
  const { run, attempt } = props, task = run.task[attempt], key = run.tasks.number[task];
  const facts: [string, string][] = [
    ["function", run.functions[run.fn[attempt]] ?? "–"], ["workflow", run.flows.name(run.flow[attempt]) || "–"],
    ["node", run.nodes[run.node[attempt]].name], ["variant", run.variants[run.variant[attempt]] ?? "–"],
    ["attempt", String(run.number[attempt] + 1)], ["outcome", (run.outcomes[run.outcome[attempt]] ?? "under way").replace("_", " ")],
    ["ready", time(run.ready[attempt])], ["placed", time(run.placed[attempt])], ["start", time(run.start[attempt])], ["end", time(run.end[attempt])],
    ["waited for", (run.waits[run.wait[attempt]] ?? "–").replace("_", " ")], ["energy", joulesOf(run, attempt)], ["estimated when placed", energy(run.marginal[attempt])],
  ];
  return (
    <aside class="panel" id="task-panel" tabIndex={-1} aria-label="Task">
      <h3>{barTip(run, attempt)[0]}</h3>
      <button type="button" class="close" onClick={props.close}>Close</button>
      <dl class="facts">{facts.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
      {key >= 0 ? <Why key={`${key}.${run.number[attempt]}`} task={key} number={run.number[attempt] + 1} />
        : <p class="quiet">A saved run keeps no decisions; a server explains its own tasks here.</p>}
    </aside>
  );
}

/** Ask only when the reader does: a past decision is replayed beside the server. */
export function Why(props: { task: number; number: number; label?: string }) {
  const [answer, setAnswer] = useState<Explanation | null>(null), [trouble, setTrouble] = useState<string | null>(null), [asking, setAsking] = useState(false);
  const ask = (): void => {
    setAsking(true); setTrouble(null);
    explain(props.task, props.number).then(setAnswer, (error: unknown) => setTrouble(error instanceof Told ? error.message : "The explanation could not be read.")).finally(() => setAsking(false));
  };
  return (
    <div class="why">
      {!answer && <p><button type="button" onClick={ask} disabled={asking}>{asking ? "Asking …" : props.label ?? "Why here?"}</button></p>}
      {trouble && <Trouble text={trouble} />}
      {answer && <Answer answer={answer} />}
    </div>
  );
}

function Answer(props: { answer: Explanation }) {
  const { answer } = props, terms = [...new Set(answer.candidates.flatMap((one) => Object.keys(one.terms ?? {})))];
  const best = answer.candidates[0], chosen = answer.candidates.find((one) => one.chosen);
  return (
    <div>
      <p>{sentence(answer)}</p>
      {answer.when === "past" && <p class="quiet">In the end it cost {energy(answer.energy_j)}{answer.low_j !== null && answer.high_j !== null ? ` (${energy(answer.low_j)} to ${energy(answer.high_j)})` : ""}{answer.provenance ? `, ${answer.provenance}` : ""}; {energy(answer.marginal_j)} were expected.</p>}
      {best && chosen && chosen !== best && <p class="quiet">A cheaper candidate stands above the chosen one: a tie-break, or the policy moved it.</p>}
      {answer.candidates.length > 0 && (
        <Table name="Candidates" open
          heads={[{ key: "node", label: "node" }, { key: "variant", label: "variant" }, { key: "cost", label: "cost", show: (value) => number(Number(value)) },
            ...terms.map((term) => ({ key: term, label: term, show: (value: string | number | null) => number(Number(value)) })), { key: "alike", label: "alike" }, { key: "chosen", label: "choice" }]}
          rows={answer.candidates.map((one) => [one.node, one.variant, one.cost, ...terms.map((term) => one.terms?.[term] ?? null), one.alike, one.chosen ? "chosen" : ""])} />
      )}
    </div>
  );
}

function sentence(answer: Explanation): string {
  if (answer.when === "waiting") return answer.why ? `It waits. Nodes that fit it, of all, and what the others lack: ${answer.why}.` : (answer.candidates.length ? `It waits; under ${answer.policy} these would be its candidates now.` : "It waits, and no node fits it now.");
  const where = answer.chosen ? `${answer.chosen.node}${answer.chosen.variant ? ` (${answer.chosen.variant})` : ""}` : "a node";
  return answer.why ?? `${answer.policy} chose ${where} among ${answer.candidates.length} kinds of candidates.`;
}
