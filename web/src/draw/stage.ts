// Schedule and power of one run on one time axis: what is prepared once, and the painting of a frame.

import { axisLabels, rowLabels, scrollMark, wattLabels } from "./labels";
import { time } from "./axis";
import { blend, colourOf, MOST_COLOURS, packed, THEMES, type Scheme } from "./colour";
import { barAt, firstAbove, layout, type Layout } from "./lanes";
import { CATEGORIES, cellsFor, DIM, hatch, paintBars, rowHeights, type Bars, type Ink, type Rows, type Window } from "./pixels";
import { paintWatts, wattsOf, type Watts } from "./watts";
import { categories, type ColourBy, type Run } from "../data/run";
import { shares } from "../data/shares";

export interface Key { index: number; name: string; colour: number }
export interface Look {
  by: ColourBy; matches: Uint8Array | null; rows: "auto" | "lanes" | "folded"; scheme: Scheme;
  /** A run beside this one, whose colours it takes, and the watts that both scales reach. */
  like?: { run: Run; peak: number } | null;
}
/** Places in canvas pixels. */
export interface Frame { width: number; height: number; left: number; bars: number; watts: number; wattsTop: number; scale: number }

const OUTCOME_COLOURS = [2, 5, 3, 1, 6, 4, 7];
const ZOOMED = 24;

export class Stage {
  readonly laid: Layout;
  /** Seconds that can be shown: the run's own, or those of a longer one beside it. */
  axis: number;
  from = 0;
  to: number;
  top = 0;
  keys: Key[] = [];
  rows!: Rows;
  frame!: Frame;
  private bars!: Bars;
  private ink!: Ink;
  private look!: Look;
  private whole: Watts | null;
  private close: Watts | null = null;
  private images: ImageData[] = [];

  constructor(readonly run: Run) {
    this.laid = layout(run);
    this.axis = this.to = run.span;
    this.whole = wattsOf(run, 0, run.span);
  }

  get by(): ColourBy { return this.look.by; }
  get hasPower(): boolean { return this.whole !== null; }
  get watts(): Watts | null { return this.whole; }

  /** Choose colours and rows; bars that a search leaves out are dimmed. */
  dress(look: Look): void {
    this.look = look;
    const { of } = categories(this.run, look.by), { laid } = this, count = laid.attempt.length;
    this.keys = look.like ? alike(keysOf(this.run, look.by), keysOf(look.like.run, look.by)) : keysOf(this.run, look.by);
    const colourAt = new Map(this.keys.map((key) => [key.index, Math.min(key.colour, MOST_COLOURS)]));
    const category = new Uint8Array(count), failed = new Uint8Array(count);
    for (let i = 0; i < count; i++) {
      const attempt = laid.attempt[i];
      category[i] = look.matches && !look.matches[attempt] ? DIM : colourAt.get(of[attempt]) ?? MOST_COLOURS;
      failed[i] = this.run.outcome[attempt] > 0 ? 1 : 0;
    }
    this.bars = { laid, category, failed, cells: null };
    this.ink = inkOf(look.scheme);
    if (this.frame) this.fit(this.frame);
  }

  /** Take a size; rows and buckets follow. */
  fit(frame: Frame): void {
    this.frame = frame;
    const before = this.rows?.folded;
    this.rows = rowHeights(this.laid, frame.bars, frame.scale, this.look.rows);
    if (!this.bars.cells || before !== this.rows.folded) this.bars.cells = cellsFor(this.laid, this.bars.category, this.run.span, this.rows.folded);
    this.images = [];
    this.move(this.from, this.to, this.top);
  }

  /** Show a range; it stays within the run and never gets narrower than a microsecond of it. */
  move(from: number, to: number, top = this.top): void {
    const least = Math.max(1e-6, this.axis * 1e-9), width = Math.min(this.axis, Math.max(least, to - from));
    this.from = Math.max(0, Math.min(this.axis - width, from));
    this.to = this.from + width;
    this.top = Math.max(0, Math.min(top, this.rows ? this.rows.height - this.frame.bars : 0));
  }

  paint(context: CanvasRenderingContext2D): void {
    const { frame } = this, theme = THEMES[this.look.scheme];
    const view: Window = { from: this.from, to: this.to, top: this.top, width: frame.width - frame.left, height: frame.bars };
    context.fillStyle = theme.paper;
    context.fillRect(0, 0, frame.width, frame.height);
    const image = this.image(0, view.width, view.height), pixels = new Uint32Array(image.data.buffer);
    paintBars(pixels, this.bars, this.rows, view, this.ink);
    this.paintSleep(pixels, view);
    context.putImageData(image, frame.left, 0);
    rowLabels(context, this, theme);
    scrollMark(context, this, theme);
    if (this.whole) this.paintPower(context, view);
    axisLabels(context, this, theme);
  }

  private paintPower(context: CanvasRenderingContext2D, view: Window): void {
    const { frame, whole } = this, watts = this.near(), pane = { ...view, height: frame.watts, top: 0 };
    const image = this.image(1, pane.width, pane.height), theme = THEMES[this.look.scheme];
    const colours = Uint32Array.from(watts.bands, (_, b) => packed(b === 0 ? theme.idle : colourOf(b - 1, theme.scheme)));
    paintWatts(new Uint32Array(image.data.buffer), watts, pane, this.topWatts, colours, this.ink.paper);
    context.putImageData(image, frame.left, frame.wattsTop);
    if (whole) wattLabels(context, this, theme);
  }

  get topWatts(): number { return (Math.max(this.whole?.peak ?? 0, this.look.like?.peak ?? 0) || 1) * 1.08; }

  /** Watts of the shown range: of the whole run, or, further in, of the range and its neighbourhood. */
  near(): Watts {
    const width = this.to - this.from;
    if (width * ZOOMED > this.run.span) return this.whole!;
    if (!this.close || this.from < this.close.from || this.to > this.close.to || width * ZOOMED < this.close.to - this.close.from) {
      this.close = wattsOf(this.run, Math.max(0, this.from - 4 * width), Math.min(this.run.span, this.to + 4 * width))!;
    }
    return this.close;
  }

  private paintSleep(pixels: Uint32Array, view: Window): void {
    const { node, from, to } = this.run.sleep, scale = view.width / (view.to - view.from);
    this.laid.rows.forEach((row, r) => {
      const y: [number, number] = [Math.round(this.rows.y[r] - view.top), Math.round(this.rows.y[r + 1] - view.top) - 2];
      if (row.device >= 0 || y[1] <= 0 || y[0] >= view.height) return;
      const end = firstAbove(node, row.node + 0.5, 0, node.length);
      for (let i = firstAbove(node, row.node - 0.5, 0, node.length); i < end; i++) {
        if (to[i] > view.from && from[i] < view.to) hatch(pixels, view, [(from[i] - view.from) * scale, (to[i] - view.from) * scale], y, this.ink.hatch);
      }
    });
  }

  private image(which: number, width: number, height: number): ImageData {
    return (this.images[which] ??= new ImageData(Math.max(1, width), Math.max(1, height)));
  }

  /** A time in words: seconds from the run's start, or the clock where a server is followed. */
  label(at: number): string {
    const { kind, origin_s, start_ms } = this.run.about;
    if (kind !== "live" || origin_s === null) return time(at);
    const whole = new Date((origin_s + at) * 1000 + (start_ms ?? 0)), two = (value: number): string => String(value).padStart(2, "0");
    return `${two(whole.getHours())}:${two(whole.getMinutes())}:${two(whole.getSeconds())}`;
  }

  timeAt(x: number): number { return this.from + ((x - this.frame.left) / (this.frame.width - this.frame.left)) * (this.to - this.from); }
  xAt(time: number): number { return this.frame.left + ((time - this.from) / (this.to - this.from)) * (this.frame.width - this.frame.left); }

  /** The bar (index into the layout) under a canvas pixel, or -1. */
  hit(x: number, y: number): number {
    if (x < this.frame.left || y >= this.frame.bars) return -1;
    const row = this.rowAt(y);
    if (row < 0) return -1;
    const time = this.timeAt(x), slack = (2 * (this.to - this.from)) / this.frame.width, own = this.laid.rows[row];
    if (!this.rows.folded) {
      const lane = Math.floor((y + this.top - this.rows.y[row]) / this.rows.laneHeight);
      return lane < own.lanes ? barAt(this.laid, own.firstLane + lane, time, slack) : -1;
    }
    for (let lane = 0; lane < own.lanes; lane++) {
      const found = barAt(this.laid, own.firstLane + lane, time, slack);
      if (found >= 0) return found;
    }
    return -1;
  }

  rowAt(y: number): number {
    const row = firstAbove(this.rows.y, y + this.top, 0, this.rows.y.length) - 1;
    return row < this.laid.rows.length ? row : -1;
  }

  /** Canvas rectangle of a bar, whether it is in view or not. */
  place(bar: number): { x: number; y: number; width: number; height: number } {
    const lane = firstAbove(this.laid.laneStart, bar, 0, this.laid.laneStart.length) - 1, row = this.laid.rowOfLane[lane];
    const offset = this.rows.folded ? 0 : (lane - this.laid.rows[row].firstLane) * this.rows.laneHeight;
    const x = this.xAt(this.laid.from[bar]);
    return { x, y: this.rows.y[row] + offset - this.top, width: Math.max(2, this.xAt(this.laid.to[bar]) - x), height: this.rows.laneHeight };
  }
}

/** Colours of the categories: the most joules first; outcomes, waits and sources always have the same. */
export function keysOf(run: Run, by: ColourBy): Key[] {
  const found = shares(run, by);
  if (by === "outcome") return found.map(({ index, name }) => ({ index, name, colour: OUTCOME_COLOURS[index] ?? 0 }));
  if (by === "wait" || by === "source") return found.map(({ index, name }) => ({ index, name, colour: index < 0 ? MOST_COLOURS : index }));
  return found.map(({ index, name }, place) => ({ index, name, colour: place }));
}

/** The same name has the same colour in both; names that the other lacks come after its own. */
function alike(keys: Key[], others: Key[]): Key[] {
  const known = new Map(others.map((key) => [key.name, key.colour]));
  let next = others.length;
  return keys.map((key) => ({ ...key, colour: known.get(key.name) ?? next++ }));
}

function inkOf(scheme: Scheme): Ink {
  const theme = THEMES[scheme], paper = packed(theme.paper), full = new Uint32Array(CATEGORIES), pale = new Uint32Array(CATEGORIES);
  for (let c = 0; c < CATEGORIES; c++) full[c] = packed(colourOf(c, scheme));
  full[DIM] = packed(theme.faint);
  for (let c = 0; c < CATEGORIES; c++) pale[c] = blend(full[c], paper, 0.38);
  return { paper, band: packed(theme.band), grid: packed(theme.faint), hatch: packed(theme.idle), bad: packed(theme.bad), full, pale };
}
