// Words and lines around the pixels: names of rows, the axis of time, the scale of watts.

import { power, timeTicks, valueTicks } from "./axis";
import type { Theme } from "./colour";
import type { Stage } from "./stage";

const FONT = "system-ui, sans-serif";

function pen(context: CanvasRenderingContext2D, stage: Stage, theme: Theme, size = 11): void {
  context.font = `${size * stage.frame.scale}px ${FONT}`;
  context.fillStyle = theme.ink;
  context.strokeStyle = theme.faint;
  context.lineWidth = Math.max(1, Math.round(stage.frame.scale));
  context.textBaseline = "middle";
}

export function rowLabels(context: CanvasRenderingContext2D, stage: Stage, theme: Theme): void {
  const { frame, rows, laid } = stage;
  pen(context, stage, theme);
  context.textAlign = "right";
  let free = -Infinity;
  for (let r = Math.max(0, stage.rowAt(0)); r < laid.rows.length && rows.y[r] < stage.top + frame.bars; r++) {
    const middle = (Math.max(rows.y[r], stage.top) + Math.min(rows.y[r + 1], stage.top + frame.bars)) / 2 - stage.top;
    if (middle < free || middle + 5 * frame.scale > frame.bars) continue;
    context.fillText(fitted(context, laid.rows[r].name, frame.left - 8 * frame.scale), frame.left - 5 * frame.scale, middle);
    free = middle + 12 * frame.scale;
  }
}

/** The end of a name tells more than its beginning ("node-17"), so the middle is cut. */
function fitted(context: CanvasRenderingContext2D, text: string, room: number): string {
  if (context.measureText(text).width <= room) return text;
  let keep = Math.max(3, Math.floor((text.length * room) / context.measureText(text).width) - 1);
  for (; keep > 2; keep--) {
    const cut = `${text.slice(0, Math.ceil(keep / 2))}…${text.slice(text.length - Math.floor(keep / 2))}`;
    if (context.measureText(cut).width <= room) return cut;
  }
  return text.slice(0, 2);
}

export function axisLabels(context: CanvasRenderingContext2D, stage: Stage, theme: Theme): void {
  const { frame } = stage, room = frame.width - frame.left, bottom = stage.hasPower ? frame.wattsTop + frame.watts : frame.bars;
  pen(context, stage, theme);
  context.textAlign = "center";
  const ticks = timeTicks(stage.from, stage.to, Math.max(2, room / (95 * frame.scale)));
  context.beginPath();
  for (const tick of ticks) {
    const x = Math.round(stage.xAt(tick)) + 0.5;
    context.moveTo(x, bottom); context.lineTo(x, bottom + 5 * frame.scale);
    if (x > frame.left + 8 && x < frame.width - 24 * frame.scale) context.fillText(stage.label(tick), x, bottom + 14 * frame.scale);
  }
  context.moveTo(frame.left, bottom + 0.5); context.lineTo(frame.width, bottom + 0.5);
  context.stroke();
}

export function wattLabels(context: CanvasRenderingContext2D, stage: Stage, theme: Theme): void {
  const { frame } = stage;
  pen(context, stage, theme);
  context.textAlign = "right";
  context.globalAlpha = 1;
  for (const tick of valueTicks(stage.topWatts, 4)) {
    const y = Math.round(frame.wattsTop + frame.watts * (1 - tick / stage.topWatts)) + 0.5;
    context.globalAlpha = 0.5;
    context.beginPath(); context.moveTo(frame.left, y); context.lineTo(frame.width, y); context.stroke();
    context.globalAlpha = 1;
    context.fillText(power(tick), frame.left - 5 * frame.scale, Math.max(frame.wattsTop + 6 * frame.scale, y));
  }
}

/** How far down the rows are scrolled, where not all of them fit. */
export function scrollMark(context: CanvasRenderingContext2D, stage: Stage, theme: Theme): void {
  const { frame, rows } = stage, share = frame.bars / rows.height;
  if (share >= 1) return;
  const wide = 6 * frame.scale, tall = Math.max(12 * frame.scale, frame.bars * share), y = (stage.top / (rows.height - frame.bars)) * (frame.bars - tall);
  context.fillStyle = theme.faint;
  context.fillRect(frame.width - wide, 0, wide, frame.bars);
  context.fillStyle = theme.ink;
  context.fillRect(frame.width - wide, y, wide, tall);
}
