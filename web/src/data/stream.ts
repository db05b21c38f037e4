// The server's events: numbered, resumed by the browser after a break, started anew from a snapshot where they cannot be.

export interface Attempt { task: number; number: number; workflow?: string; node?: string; device?: number; outcome?: string; started_s?: number; ended_s?: number; placed_s?: number; energy_j?: number }
export interface Task { id: number; workflow?: string; key?: string; function?: string; state?: string; reason?: string }
export interface Window { node: string; began_s: number; ended_s: number; counted_j: number | null; idle_j: number | null; tasks_j: number | null; unattributed_j: number | null; provenance: string }
export interface Batch { sequence: number; now_s: number; workflows?: { id: string; name?: string; state?: string }[]; tasks?: Task[]; attempts?: Attempt[]; nodes?: { name: string; state: string; at_s: number }[]; windows?: Window[] }

export interface Listener {
  /** Begin from a snapshot: the first time, and where events were lost to this viewer. */
  snapshot: (sequence: number, reason: string | null) => void;
  batch: (batch: Batch) => void;
  state: (state: "open" | "broken" | "over", sentence: string | null) => void;
}

/** Follow the events until the answer is called. Batches come in order, each once. */
export function follow(listener: Listener): () => void {
  let source: EventSource | null = null, last = -1, reason: string | null = null, retry: ReturnType<typeof setTimeout> | undefined;
  const open = (): void => {
    source = new EventSource("v1/events");
    source.addEventListener("open", () => listener.state("open", null));
    source.addEventListener("hello", (event) => {
      const { sequence } = JSON.parse((event as MessageEvent<string>).data) as { sequence: number };
      last = sequence;
      listener.snapshot(sequence, reason);
      reason = null;
    });
    source.addEventListener("batch", (event) => {
      const batch = JSON.parse((event as MessageEvent<string>).data) as Batch;
      if (batch.sequence <= last) return;
      last = batch.sequence;
      listener.batch(batch);
    });
    source.addEventListener("reset", (event) => { reason = reasonOf(event); });
    source.addEventListener("dropped", (event) => { reason = reasonOf(event); source?.close(); retry = setTimeout(open, 1000); });
    source.addEventListener("error", () => {
      if (source?.readyState === EventSource.CLOSED) {
        listener.state("over", "The server ended the stream: the session may be over. Reload the page to log in again.");
        retry = setTimeout(open, 5000);
      } else listener.state("broken", "The server does not answer. What is shown stays, and the page goes on where it stopped once the server is back.");
    });
  };
  open();
  return () => { clearTimeout(retry); source?.close(); };
}

function reasonOf(event: Event): string {
  try { return String((JSON.parse((event as MessageEvent<string>).data) as { reason?: unknown }).reason ?? ""); } catch { return ""; }
}
