// Ticks and words for time, energy and power.

const STEPS = [1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];

/** Times of ticks, at most `most` of them. */
export function timeTicks(from: number, to: number, most: number): number[] {
  const step = STEPS.find((each) => (to - from) / each <= most) ?? (to - from) / most;
  const ticks: number[] = [];
  for (let k = Math.ceil(from / step); k * step <= to && ticks.length < 50; k++) ticks.push(k * step);
  return ticks;
}

/** Values of ticks for an axis from 0 to `top`. */
export function valueTicks(top: number, most: number): number[] {
  if (!(top > 0)) return [0];
  const raw = top / most, size = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map((k) => k * size).find((each) => each >= raw)!;
  return Array.from({ length: Math.floor(top / step) + 1 }, (_, k) => k * step);
}

const trimmed = (value: number, digits: number): string => String(Number(value.toPrecision(digits)));

export function time(seconds: number): string {
  if (!Number.isFinite(seconds)) return "–";
  const size = Math.abs(seconds);
  if (size < 1e-9) return "0 s";
  if (size < 1) return `${trimmed(seconds * 1000, 3)} ms`;
  if (size < 120) return `${trimmed(seconds, 4)} s`;
  if (size < 7200) return `${trimmed(seconds / 60, 4)} min`;
  if (size < 172800) return `${trimmed(seconds / 3600, 4)} h`;
  return `${trimmed(seconds / 86400, 4)} d`;
}

function scaled(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${trimmed(value / 1e9, 4)} G${unit}`;
  if (size >= 1e6) return `${trimmed(value / 1e6, 4)} M${unit}`;
  if (size >= 1e3) return `${trimmed(value / 1e3, 4)} k${unit}`;
  return `${trimmed(value, 4)} ${unit}`;
}

export const energy = (joules: number | null | undefined): string => scaled(joules, "J");
export const power = (watts: number | null | undefined): string => scaled(watts, "W");

export function number(value: number | null | undefined, digits = 4): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits });
}
