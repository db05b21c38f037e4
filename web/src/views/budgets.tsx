// Budgets of the live view: what is spent, and how that goes on at the present rate of joules.

import { energy, power, time } from "../draw/axis";
import { Table } from "../parts/table";

export interface Budget {
  scope: string; workflow: string | null; name: string; what?: string; spent_j: number | null; budget_j: number | null;
  until_s: number | null; rate_w?: number | null; expected_j?: number | null; runs_out_s?: number | null;
}

const named = (one: Budget): string => (one.scope === "workflow" ? one.name : `${one.scope} ${one.name}${one.what && one.what !== "energy budget" ? `, ${one.what}` : ""}`);

/** What is ahead of a budget, in one sentence. */
export function ahead(one: Budget, now_s: number): string {
  if (one.rate_w === null || one.rate_w === undefined) return "no forecast: no joules of late";
  if (one.budget_j !== null && one.spent_j !== null && one.spent_j >= one.budget_j) return "used up";
  const out = one.runs_out_s === null || one.runs_out_s === undefined ? null : `used up in ${time(one.runs_out_s - now_s)}`;
  if (one.expected_j === null || one.expected_j === undefined) return out ?? "nothing is drawn now";
  return `${energy(one.expected_j)} by the month's end${out ? `; ${out}` : ""}`;
}

export function Budgets(props: { budgets: Budget[]; now_s: number }) {
  const { now_s } = props, budgets = props.budgets.filter((one) => one.budget_j !== null);
  if (!budgets.length) return null;
  return (
    <section aria-labelledby="budgets-title" class="budgets">
      <h3 id="budgets-title">Budgets</h3>
      <ol class="bars">{budgets.map((one) => {
        // Each bar is as long as the budget, or as what is expected where that is more; the mark is the budget's end.
        const whole = Math.max(one.budget_j!, one.spent_j ?? 0, one.expected_j ?? 0, 1e-12), at = (joules: number): string => `${(100 * joules) / whole}%`, spent = one.spent_j ?? 0;
        return (
          <li key={`${one.scope} ${one.workflow ?? one.name} ${one.what ?? ""}`}><span class="name" title={named(one)}>{named(one)}</span>
            <span class="track"><span class="fill" style={{ width: at(spent) }} />{one.expected_j != null && <span class="band" style={{ left: at(spent), width: at(Math.max(0, one.expected_j - spent)) }} />}<span class="mark" style={{ left: at(one.budget_j!) }} /></span>
            <span class="value">{energy(one.spent_j)} of {energy(one.budget_j)}<br /><small>{ahead(one, now_s)}</small></span></li>
        );
      })}</ol>
      <p class="quiet">Filled is spent, the line is the budget, the whisker reaches to what is expected by the month's end. The forecast carries the present rate on: joules of the last ten minutes (those of an attempt lie evenly over its time), by the time since the first of them. It knows no task that is yet to come.</p>
      <Table name="Budgets" heads={[{ key: "scope", label: "of" }, { key: "name", label: "name" }, { key: "workflow", label: "workflow" }, { key: "spent_j", label: "spent", show: (value) => energy(Number(value)) }, { key: "budget_j", label: "budget", show: (value) => energy(Number(value)) }, { key: "share", label: "share", show: (value) => `${(100 * Number(value)).toFixed(0)} %` }, { key: "rate_w", label: "rate", show: (value) => power(Number(value)) }, { key: "expected_j", label: "at the month's end", show: (value) => energy(Number(value)) }, { key: "runs_out_s", label: "used up", show: (value) => new Date(1000 * Number(value)).toISOString().slice(0, 16).replace("T", " ") }]}
        rows={budgets.map((one) => [one.scope, one.name, one.workflow, one.spent_j, one.budget_j, one.spent_j !== null && one.budget_j ? one.spent_j / one.budget_j : null, one.rate_w ?? null, one.expected_j ?? null, one.runs_out_s ?? null])} />
    </section>
  );
}
