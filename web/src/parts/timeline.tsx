// Schedule above, watts below, one time axis and one cursor through both.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { barTip, wattsTip } from "./tip";
import { listen } from "./gestures";
import { rowHeights } from "../draw/pixels";
import { THEMES } from "../draw/colour";
import { Stage, type Look } from "../draw/stage";
import { time } from "../draw/axis";
import { useScheme } from "./scheme";
import type { ColourBy, Run } from "../data/run";

export interface TimelineProps {
  run: Run;
  name: string;
  by: ColourBy;
  matches: Uint8Array | null;
  rows: Look["rows"];
  range: [number, number] | null;
  selected: number;
  /** Seconds that the axis can show: of the longer of two runs that share it. */
  axis?: number;
  cursor?: number | null;
  height?: number;
  like?: Look["like"];
  onRange?: (from: number, to: number) => void;
  onSelect?: (attempt: number) => void;
  onCursor?: (time: number | null) => void;
  onStage?: (stage: Stage) => void;
}

const HELP = "Arrow keys pan and change rows, plus and minus zoom, 0 shows all, n and p step through attempts, Enter opens one. Ctrl and wheel zoom, dragging pans.";

export function Timeline(props: TimelineProps) {
  const { run } = props, scheme = useScheme();
  const box = useRef<HTMLDivElement>(null), main = useRef<HTMLCanvasElement>(null), over = useRef<HTMLCanvasElement>(null);
  const stage = useMemo(() => new Stage(run), [run]);
  stage.axis = Math.max(run.span, props.axis ?? 0);
  const latest = useRef(props);
  latest.current = props;
  const due = useRef(0);
  const [tip, setTip] = useState<{ x: number; y: number; lines: string[] } | null>(null);
  const [said, say] = useState("");

  const paintNow = (): void => {
    cancelAnimationFrame(due.current);
    const context = main.current?.getContext("2d", { alpha: false });
    if (!context || !stage.frame) return;
    stage.paint(context);
    mark();
    performance.mark("wattflow-painted");
  };
  const paint = (): void => {
    cancelAnimationFrame(due.current);
    due.current = requestAnimationFrame(paintNow);
  };
  const mark = (at?: number | null): void => drawOver(over.current, stage, at === undefined ? latest.current.cursor ?? null : at, latest.current.selected, scheme);
  const size = (): void => {
    const holder = box.current;
    if (!holder || !main.current || !over.current) return;
    const scale = Math.min(2, devicePixelRatio || 1), wide = Math.max(200, holder.clientWidth);
    const watts = stage.hasPower ? 120 : 0, bars = barsHeight(stage, props.height ?? 460, props.rows), tall = bars + watts + (watts ? 10 : 0) + 24;
    for (const canvas of [main.current, over.current]) {
      canvas.width = Math.round(wide * scale); canvas.height = Math.round(tall * scale);
      canvas.style.width = `${wide}px`; canvas.style.height = `${tall}px`;
    }
    holder.style.height = `${tall}px`;
    const px = (value: number): number => Math.round(value * scale);
    stage.fit({ width: px(wide), height: px(tall), left: px(wide < 600 ? 64 : 120), bars: px(bars), watts: px(watts), wattsTop: px(bars + 10), scale });
    // A canvas that takes a size is blank: it is painted before the browser shows it.
    paintNow();
  };

  // Before the browser shows anything: a first frame without bars would only cost time.
  useLayoutEffect(() => {
    stage.dress({ by: props.by, matches: props.matches, rows: props.rows, scheme, like: props.like });
    props.onStage?.(stage);
    size();
  }, [stage, props.by, props.matches, props.rows, scheme, props.height, props.like]);
  useEffect(() => {
    if (props.range) stage.move(props.range[0], props.range[1]);
    else stage.move(0, stage.axis);
    paint();
  }, [stage, props.range?.[0], props.range?.[1]]);
  useEffect(() => { reveal(stage, props.selected) && paint(); mark(); }, [stage, props.selected]);
  useEffect(() => mark(), [props.cursor]);
  useEffect(() => {
    const watcher = new ResizeObserver(size);
    watcher.observe(box.current!);
    let told: ReturnType<typeof setTimeout>;
    const stop = listen(box.current!, () => stage, {
      moved: () => { paint(); clearTimeout(told); told = setTimeout(() => latest.current.onRange?.(stage.from, stage.to), 150); },
      pointed: (x, y) => {
        const bar = stage.hit(x, y), at = stage.timeAt(x), { scale } = stage.frame;
        const lines = bar >= 0 ? barTip(run, stage.laid.attempt[bar]) : y >= stage.frame.wattsTop && stage.hasPower ? wattsTip(stage, at) : null;
        setTip(lines && x >= stage.frame.left ? { x: x / scale, y: y / scale, lines } : null);
        mark(x >= stage.frame.left ? at : null);
        latest.current.onCursor?.(x >= stage.frame.left ? at : null);
      },
      left: () => { setTip(null); mark(null); latest.current.onCursor?.(null); },
      pressed: (x, y) => { const bar = stage.hit(x, y); latest.current.onSelect?.(bar < 0 ? -1 : stage.laid.attempt[bar]); box.current?.focus(); },
      step: (by) => { const next = stepped(stage, latest.current.selected, by); if (next >= 0) { latest.current.onSelect?.(next); say(barTip(run, next).join(", ")); } },
      open: () => document.getElementById("task-panel")?.focus(),
      close: () => latest.current.onSelect?.(-1),
    });
    return () => { watcher.disconnect(); stop(); clearTimeout(told); cancelAnimationFrame(due.current); };
  }, [stage]);

  const label = `${props.name}: ${run.count.toLocaleString("en")} attempts on ${run.nodes.length} nodes over ${time(run.span)}${stage.hasPower ? ", with power below" : ""}. ${HELP}`;
  return (
    <div class="timeline" ref={box} tabIndex={0} role="application" aria-roledescription="timeline" aria-label={label}>
      <canvas ref={main} aria-hidden="true" class="chart" />
      <canvas ref={over} aria-hidden="true" class="over" />
      {tip && <div class="tip" style={{ left: `${Math.min(tip.x + 14, Math.max(0, (box.current?.clientWidth ?? 300) - 270))}px`, top: `${tip.y + 16}px` }}>{tip.lines.map((line, i) => <div key={i}>{line}</div>)}</div>}
      <div class="unseen" aria-live="polite">{said}</div>
    </div>
  );
}

/** Few rows need no tall pane; many get all that is allowed. */
function barsHeight(stage: Stage, most: number, rows: Look["rows"]): number {
  return Math.max(40, Math.min(most, Math.ceil(rowHeights(stage.laid, most, 1, rows).height)));
}

function drawOver(canvas: HTMLCanvasElement | null, stage: Stage, at: number | null, selected: number, scheme: "light" | "dark"): void {
  const context = canvas?.getContext("2d");
  if (!context || !stage.frame) return;
  const { frame } = stage, theme = THEMES[scheme];
  context.clearRect(0, 0, frame.width, frame.height);
  context.strokeStyle = theme.ink;
  context.lineWidth = Math.max(1, frame.scale);
  if (at !== null && at >= stage.from && at <= stage.to) {
    const x = Math.round(stage.xAt(at)) + 0.5, bottom = stage.hasPower ? frame.wattsTop + frame.watts : frame.bars;
    context.beginPath(); context.moveTo(x, 0); context.lineTo(x, bottom); context.stroke();
    context.font = `${11 * frame.scale}px system-ui, sans-serif`;
    context.fillStyle = theme.ink;
    context.textAlign = x > frame.width - 90 * frame.scale ? "right" : "left";
    context.fillText(` ${stage.label(at)} `, x, 10 * frame.scale);
  }
  if (selected < 0) return;
  const bar = stage.laid.attempt.indexOf(selected);
  if (bar < 0) return;
  const { x, y, width, height } = stage.place(bar);
  const left = Math.max(frame.left, x), right = Math.min(frame.width, x + width);
  if (y + height <= 0 || y >= frame.bars || right <= left - 3) return;
  context.lineWidth = 2 * frame.scale;
  context.strokeRect(left, Math.max(frame.scale, y - 1), Math.max(3, right - left), height);
}

/** Bring a bar into view; true where that moved the picture. */
function reveal(stage: Stage, attempt: number): boolean {
  if (attempt < 0 || !stage.frame) return false;
  const bar = stage.laid.attempt.indexOf(attempt), width = stage.to - stage.from;
  if (bar < 0) return false;
  const { y, height } = stage.place(bar), before = [stage.from, stage.top];
  const top = y < 0 || y + height > stage.frame.bars ? stage.top + y - stage.frame.bars / 2 : stage.top;
  const outside = stage.laid.to[bar] < stage.from || stage.laid.from[bar] > stage.to;
  const from = outside ? (stage.laid.from[bar] + stage.laid.to[bar] - width) / 2 : stage.from;
  stage.move(from, from + width, top);
  return before[0] !== stage.from || before[1] !== stage.top;
}

/** The attempt before or after, or the one at the same time in the next row that has any. */
function stepped(stage: Stage, attempt: number, by: 1 | -1 | 2 | -2): number {
  const { laid } = stage, bar = attempt < 0 ? -1 : laid.attempt.indexOf(attempt);
  if (bar < 0) return laid.attempt.length ? laid.attempt[0] : -1;
  if (Math.abs(by) === 1) return laid.attempt[Math.max(0, Math.min(laid.attempt.length - 1, bar + by))];
  let lane = laid.laneStart.findIndex((start, l) => start <= bar && bar < laid.laneStart[l + 1]);
  for (lane += Math.sign(by); lane >= 0 && lane < laid.laneCount; lane += Math.sign(by)) {
    const first = laid.laneStart[lane], last = laid.laneStart[lane + 1];
    if (first === last) continue;
    let at = first;
    while (at + 1 < last && laid.to[at] < laid.from[bar]) at++;
    return laid.attempt[at];
  }
  return attempt;
}
