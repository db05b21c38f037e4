// The visible range as a vector picture that stands alone: bars, sleep, watts, axes.

import { power, time, timeTicks, valueTicks } from "../draw/axis";
import { colourOf, THEMES, type Scheme } from "../draw/colour";
import { firstAbove } from "../draw/lanes";
import { meanWatts } from "../draw/watts";
import { categories } from "../data/run";
import type { Stage } from "../draw/stage";

const MOST_BARS = 40_000;
const POINTS = 600;
const LEFT = 130, WIDTH = 1000, LANE = 7, GAP = 4, WATTS = 160;

export const escaped = (text: string): string => text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "");
const short = (value: number): string => String(Math.round(value * 100) / 100);

/** Draw lanes at a fixed height; above 40,000 visible bars those that share a pixel are drawn once. */
export function timelineSvg(stage: Stage, scheme: Scheme): string {
  const theme = THEMES[scheme], scale = WIDTH / (stage.to - stage.from), x = (at: number): number => LEFT + (at - stage.from) * scale;
  const parts: string[] = [], colours = new Map(stage.keys.map((key) => [key.index, colourOf(key.colour, scheme)])), { laid, run } = stage;
  const { of } = categories(run, stage.by);
  let y = 0, drawn = 0;
  for (const row of laid.rows) {
    parts.push(`<text x="${LEFT - 6}" y="${short(y + (row.lanes * LANE) / 2 + 3)}" text-anchor="end">${escaped(row.name)}</text>`);
    for (let lane = row.firstLane; lane < row.firstLane + row.lanes; lane++, y += LANE) {
      const end = laid.laneStart[lane + 1];
      let covered = -1;
      for (let i = firstAbove(laid.to, stage.from, laid.laneStart[lane], end); i < end && laid.from[i] < stage.to; i++) {
        const left = x(Math.max(stage.from, laid.from[i])), right = Math.max(left + 0.3, x(Math.min(stage.to, laid.to[i])));
        if (drawn > MOST_BARS && right <= covered + 1) continue;
        const start = Math.min(right, Math.max(left, x(laid.run[i]))), attempt = laid.attempt[i], fill = colours.get(of[attempt]) ?? colourOf(-1, scheme);
        if (start > left) parts.push(`<rect x="${short(left)}" y="${y}" width="${short(start - left)}" height="${LANE - 1}" fill="${fill}" opacity=".4"/>`);
        parts.push(`<rect x="${short(start)}" y="${y}" width="${short(right - start)}" height="${LANE - 1}" fill="${fill}"${run.outcome[attempt] > 0 ? ` stroke="${theme.bad}"` : ""}/>`);
        covered = right; drawn++;
      }
    }
    y += GAP;
  }
  if (stage.hasPower) { parts.push(...wattParts(stage, scheme, y + 6)); y += WATTS + 6; }
  for (const tick of timeTicks(stage.from, stage.to, 10)) parts.push(`<text x="${short(x(tick))}" y="${y + 16}" text-anchor="middle">${time(tick)}</text>`);
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${LEFT + WIDTH + 10} ${y + 24}" width="${LEFT + WIDTH + 10}" height="${y + 24}" font-family="sans-serif" font-size="11" fill="${theme.ink}"><title>${escaped(run.about.title)}</title><rect width="100%" height="100%" fill="${theme.paper}"/>${parts.join("")}</svg>\n`;
}

function wattParts(stage: Stage, scheme: Scheme, top: number): string[] {
  const watts = stage.near(), theme = THEMES[scheme], step = (stage.to - stage.from) / POINTS, base = new Float64Array(POINTS);
  const y = (value: number): number => top + WATTS * (1 - value / stage.topWatts), parts: string[] = [];
  watts.bands.forEach((band, b) => {
    const under: string[] = [], over: string[] = [];
    for (let p = 0; p < POINTS; p++) {
      const left = LEFT + (p * WIDTH) / POINTS, right = left + WIDTH / POINTS;
      under.push(`${short(right)},${short(y(base[p]))}`, `${short(left)},${short(y(base[p]))}`);
      base[p] += meanWatts(watts, band, stage.from + p * step, stage.from + (p + 1) * step);
      over.push(`${short(left)},${short(y(base[p]))}`, `${short(right)},${short(y(base[p]))}`);
    }
    const back: string[] = [];
    for (let p = POINTS - 1; p >= 0; p--) back.push(under[2 * p], under[2 * p + 1]);
    parts.push(`<polygon points="${[...over, ...back].join(" ")}" fill="${b === 0 ? theme.idle : colourOf(b - 1, scheme)}"><title>${escaped(band.name)} (${band.provenance})</title></polygon>`);
  });
  for (const tick of valueTicks(stage.topWatts, 4)) parts.push(`<text x="${LEFT - 6}" y="${short(y(tick) + 4)}" text-anchor="end">${power(tick)}</text>`);
  return parts;
}
