// What pointing at a bar or at the power chart tells.

import { energy, power, time } from "../draw/axis";
import { meanWatts } from "../draw/watts";
import type { Stage } from "../draw/stage";
import { PROVENANCES, type Run } from "../data/run";

/** An attempt's joules with band and source. */
export function joulesOf(run: Run, attempt: number): string {
  const joules = run.joules[attempt], low = run.low[attempt], high = run.high[attempt];
  if (Number.isNaN(joules)) return "energy not known";
  const band = Number.isFinite(low) && Number.isFinite(high) && high > low ? ` (${energy(low)} to ${energy(high)})` : "";
  return `${energy(joules)}${band}, ${PROVENANCES[run.provenance[attempt]] ?? "source unknown"}`;
}

export function barTip(run: Run, attempt: number): string[] {
  const again = run.number[attempt] > 0 ? `, attempt ${run.number[attempt] + 1}` : "";
  const outcome = run.outcomes[run.outcome[attempt]] ?? "under way";
  return [
    `${run.tasks.id(run.task[attempt]) || "task"}${again}`,
    `${run.functions[run.fn[attempt]] ?? "no function"} on ${run.nodes[run.node[attempt]].name}`,
    `${time(run.start[attempt])} + ${time(run.end[attempt] - run.start[attempt])}, waited ${time(Math.max(0, run.start[attempt] - run.ready[attempt]))}`,
    `${joulesOf(run, attempt)}`,
    outcome.replace("_", " "),
  ];
}

export function wattsTip(stage: Stage, at: number): string[] {
  const watts = stage.near(), pixel = (stage.to - stage.from) / (stage.frame.width - stage.frame.left);
  const each = watts.bands.map((band) => ({ band, mean: meanWatts(watts, band, at, at + pixel) }));
  const sum = each.reduce((total, one) => total + one.mean, 0);
  return [`${stage.label(at)}: ${power(sum)}`, ...each.map((one) => `${one.band.name}: ${power(one.mean)} (${one.band.provenance})`)];
}
