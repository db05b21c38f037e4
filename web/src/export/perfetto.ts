// A trace for ui.perfetto.dev or trace_processor: a track per lane, slices of attempts, counters of watts. Written field
// by field: the few messages needed are small enough without a protobuf library.

import { layout } from "../draw/lanes";
import type { Run } from "../data/run";

/** Field numbers of perfetto's Trace, TracePacket, TrackDescriptor, CounterDescriptor, TrackEvent, DebugAnnotation. */
const PACKET = 1;
const TIMESTAMP = 8, SEQUENCE = 10, EVENT = 11, DESCRIPTOR = 60;
const UUID = 1, NAME = 2, PARENT = 5, COUNTER = 8, UNIT_NAME = 6;
const ANNOTATION = 4, TYPE = 9, TRACK = 11, CATEGORY = 22, EVENT_NAME = 23, DOUBLE_VALUE = 44;
const BEGIN = 1, END = 2, COUNT = 4;

class Writer {
  private bytes = new Uint8Array(1 << 12);
  private size = 0;
  private static readonly encoder = new TextEncoder();

  private room(more: number): void {
    if (this.size + more <= this.bytes.length) return;
    const larger = new Uint8Array(Math.max(2 * this.bytes.length, this.size + more));
    larger.set(this.bytes.subarray(0, this.size));
    this.bytes = larger;
  }
  private varint(value: number): void {
    this.room(10);
    while (value > 127) { this.bytes[this.size++] = (value % 128) | 128; value = Math.floor(value / 128); }
    this.bytes[this.size++] = value;
  }
  number(field: number, value: number): this { this.varint(field * 8); this.varint(Math.max(0, Math.round(value))); return this; }
  double(field: number, value: number): this {
    this.varint(field * 8 + 1);
    this.room(8);
    new DataView(this.bytes.buffer).setFloat64(this.size, value, true);
    this.size += 8;
    return this;
  }
  raw(field: number, bytes: Uint8Array): this {
    this.varint(field * 8 + 2);
    this.varint(bytes.length);
    this.room(bytes.length);
    this.bytes.set(bytes, this.size);
    this.size += bytes.length;
    return this;
  }
  text(field: number, text: string): this { return this.raw(field, Writer.encoder.encode(text)); }
  message(field: number, inner: Writer): this { return this.raw(field, inner.done()); }
  done(): Uint8Array { return this.bytes.subarray(0, this.size); }
}

export function perfetto(run: Run): Uint8Array {
  const trace = new Writer(), laid = layout(run), base = 1 + laid.rows.length;
  const describe = (uuid: number, name: string, more: (own: Writer) => Writer): void => {
    trace.message(PACKET, new Writer().number(SEQUENCE, 1).message(DESCRIPTOR, more(new Writer().number(UUID, uuid).text(NAME, name))));
  };
  laid.rows.forEach((row, r) => describe(1 + r, row.name, (own) => own));
  for (let lane = 0; lane < laid.laneCount; lane++) describe(base + lane, `lane ${lane - laid.rows[laid.rowOfLane[lane]].firstLane}`, (own) => own.number(PARENT, 1 + laid.rowOfLane[lane]));
  const event = (at: number, inner: Writer): void => { trace.message(PACKET, new Writer().number(TIMESTAMP, at * 1e9).number(SEQUENCE, 1).message(EVENT, inner)); };
  for (let lane = 0; lane < laid.laneCount; lane++) {
    for (let i = laid.laneStart[lane]; i < laid.laneStart[lane + 1]; i++) {
      const attempt = laid.attempt[i], track = base + lane;
      const begin = new Writer().number(TYPE, BEGIN).number(TRACK, track).text(CATEGORY, run.functions[run.fn[attempt]] ?? "task").text(EVENT_NAME, run.tasks.id(run.task[attempt]) || "task");
      if (Number.isFinite(run.joules[attempt])) begin.message(ANNOTATION, new Writer().text(10, "energy_j").double(5, run.joules[attempt]));
      begin.message(ANNOTATION, new Writer().text(10, "outcome").text(6, run.outcomes[run.outcome[attempt]] ?? "under way"));
      event(laid.run[i], begin);
      event(laid.to[i], new Writer().number(TYPE, END).number(TRACK, track));
    }
  }
  const counters = base + laid.laneCount;
  run.nodes.forEach((node, n) => describe(counters + n, `${node.name} power`, (own) => own.message(COUNTER, new Writer().text(UNIT_NAME, "W"))));
  for (let i = 0; i < run.power.node.length; i++) {
    const watts = run.power.idle[i] + run.power.dynamic[i];
    if (Number.isFinite(watts)) event(run.power.time[i], new Writer().number(TYPE, COUNT).number(TRACK, counters + run.power.node[i]).double(DOUBLE_VALUE, watts));
  }
  return trace.done();
}
