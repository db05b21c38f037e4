// What the live view knows between snapshots: the last one, and every event since.

import type { Batch } from "../data/stream";
import type { Run } from "../data/run";
import type { Budget } from "./budgets";

export interface LiveAbout {
  now_s: number; policy: string; nodes: { name: string; state: string; running: number; watts: number | null; busy: number | null }[]; waiting: number; running: number;
  queue: { workflow: string; function: string; count: number; reason: string }[]; budgets: Budget[];
  watts: number | null; carbon_g_per_kwh: number | null; trouble: string | null;
}

export class Followed {
  waiting = 0;
  done = 0;
  failed = 0;
  readonly nodes = new Map<string, string>();
  readonly nodeWatts = new Map<string, number>();
  /** Numbers of all events that were applied, for tests: none twice, none left out. */
  readonly sequences: number[] = [];
  private known: number | null = null;
  private readonly open = new Map<string, string>();
  private through = -1;
  private waitingTasks = new Set<number>();

  snapshot(run: Run): void {
    const about = run.about.live as LiveAbout | undefined;
    if (!about) return;
    // Events that the snapshot holds already must not count twice.
    this.through = run.about.sequence ?? this.through;
    this.waiting = about.waiting;
    this.nodes.clear(); this.nodeWatts.clear(); this.open.clear(); this.waitingTasks.clear();
    this.known = about.watts;
    for (let i = 0; i < run.count; i++) if (run.outcome[i] < 0) this.open.set(`${run.tasks.number[run.task[i]]}.${run.number[i] + 1}`, run.nodes[run.node[i]].name);
  }

  batch(batch: Batch): void {
    this.sequences.push(batch.sequence);
    for (const task of batch.tasks ?? []) {
      if (task.state === "done") this.done++;
      if (task.state === "failed") this.failed++;
    }
    if (batch.sequence <= this.through) return;
    for (const task of batch.tasks ?? []) {
      if (task.key !== undefined && !this.waitingTasks.has(task.id)) { this.waitingTasks.add(task.id); this.waiting++; }
    }
    for (const attempt of batch.attempts ?? []) {
      const key = `${attempt.task}.${attempt.number}`;
      if (attempt.outcome !== undefined) this.open.delete(key);
      else if (attempt.node !== undefined && !this.open.has(key)) { this.open.set(key, attempt.node); this.waiting = Math.max(0, this.waiting - 1); }
    }
    for (const node of batch.nodes ?? []) this.nodes.set(node.name, node.state);
    for (const window of batch.windows ?? []) {
      const length = window.ended_s - window.began_s;
      if (window.counted_j !== null && length > 0) this.nodeWatts.set(window.node, window.counted_j / length);
    }
  }

  get running(): number { return this.open.size; }

  onNode(name: string): number | null {
    let count = 0;
    for (const node of this.open.values()) if (node === name) count++;
    return count;
  }

  /** Watts of all nodes that told some; the snapshot's sum until the first window came. */
  watts(): number | null {
    if (!this.nodeWatts.size) return this.known;
    let sum = 0;
    for (const each of this.nodeWatts.values()) sum += each;
    return sum;
  }

  figures(): Record<string, unknown> {
    return { waiting: this.waiting, running: this.running, done: this.done, failed: this.failed, watts: this.watts(), through: this.through, sequences: this.sequences };
  }
}
