// Requests to the server that sent the page, and to no other. Every failure becomes one sentence.

import { Trouble } from "./columns";
import { runOf, type Run } from "./run";

export interface Session { name: string; role: string; expires_s: number | null }
export interface Page { mode: "server" | "files"; wattflow: string; session: Session | null; policies: string[]; clusters: string[] }
export interface RunRow {
  id: string; title: string; workload: string; policy: string; owner: string | null; state: string; simulated: boolean; submitted_s: number | null;
  makespan_s: number | null; energy_j: number | null; response_mean_s: number | null; attempts: number | null; source: string;
}
export interface Candidate { node: string; variant: string; cost: number | null; alike: number; terms: Record<string, number | null>; moved: Record<string, unknown>; chosen: boolean }
export interface Explanation {
  task: number; key: string; state: string; when: "waiting" | "past"; at_s: number | null; attempt: number | null; policy: string; why: string | null;
  chosen: { node: string; variant: string } | null; candidates: Candidate[]; cost_s: number | null;
  energy_j: number | null; low_j: number | null; high_j: number | null; marginal_j: number | null; provenance: string | null;
}
export interface Figure { mean: number; low: number; high: number }
export interface ForecastResult { policy: string; error: string | null; power_w: Figure | null; energy_j: Figure | null; response_s: Figure | null; late: Figure | null; ended: Figure | null; open: Figure | null; makespan_s: Figure | null; unknown: number }
/** The present's own figures on the scale of a forecast's; of a recorded workflow, what it was. */
export interface ForecastPresent { power_w: number | null; energy_j: number | null; response_s: number | null; makespan_s: number | null; covered?: number | null; span_s?: number }
export interface Forecast { present: ForecastPresent | null; id: string; kind: string; state: string; asked_s: number; ended_s: number | null; error: string | null; results: ForecastResult[] | null }

/** The session is over or was never begun: the page asks for a token. */
export class LoggedOut extends Trouble {}

export const LOGGED_OUT = "wattflow-logged-out";

async function ask(path: string, options: RequestInit = {}): Promise<Response> {
  const headers = { "wattflow-page": "1", ...(options.body ? { "content-type": "application/json" } : {}) };
  let answer: Response;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options, headers });
  } catch {
    throw new Trouble("The server does not answer. What is shown stays; the page tries again when you do.");
  }
  if (answer.ok) return answer;
  const said = await answer.json().then((body: { error?: unknown; detail?: unknown }) => body.error ?? body.detail, () => null);
  const sentence = typeof said === "string" ? said : `The server answered ${answer.status} to ${path.split("?")[0]}.`;
  if (answer.status === 401) {
    // The frame asks for a token again; the view stays in the address and comes back after it.
    if (!path.startsWith("v1/session")) dispatchEvent(new Event(LOGGED_OUT));
    throw new LoggedOut("The session is over or was not begun: log in with a token.");
  }
  throw new Trouble(sentence);
}

async function json<T>(path: string, options?: RequestInit): Promise<T> {
  return (await (await ask(path, options)).json()) as T;
}

const embedded = new Map<string, () => Promise<ArrayBuffer>>();

/** Runs that the page carries within itself (a report) are served from there. */
export function embed(id: string, bytes: () => Promise<ArrayBuffer>): void { embedded.set(id, bytes); }

export async function loadRun(id: string): Promise<Run> {
  const own = embedded.get(id);
  return runOf(own ? await own() : await (await ask(`v1/runs/${encodeURIComponent(id)}`)).arrayBuffer());
}

export const loadLive = async (last_s: number): Promise<Run> => runOf(await (await ask(`v1/live?last_s=${last_s}`)).arrayBuffer());
export const page = (): Promise<Page> => json("v1/page");
export const runs = (): Promise<RunRow[]> => json("v1/runs?most=200");
export const explain = (task: number, number: number): Promise<Explanation> => json(`v1/tasks/${task}/explain?number=${number}`);
export const forecasts = (): Promise<Forecast[]> => json("v1/forecasts");
export const forecast = (id: string): Promise<Forecast> => json(`v1/forecasts/${encodeURIComponent(id)}`);
export const startForecast = (body: object): Promise<{ id: string }> => json("v1/forecasts", { method: "POST", body: JSON.stringify(body) });
export const cancelForecast = (id: string): Promise<unknown> => ask(`v1/forecasts/${encodeURIComponent(id)}`, { method: "DELETE" });
export const login = (body: { token: string } | { code: string }): Promise<Session> => json("v1/session", { method: "POST", body: JSON.stringify(body) });
export const logout = (): Promise<unknown> => ask("v1/session", { method: "DELETE" });
export const workflowFile = (workflow: string): Promise<unknown> => json(`v1/workflows/${encodeURIComponent(workflow)}/wfformat`);
