// Colours that readers with any common colour-vision deficiency tell apart (after Okabe and Ito), for both schemes.

export type Scheme = "light" | "dark";

export const LIGHT = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7a00", "#5b4ea3"];
export const DARK = ["#4aa8e0", "#f0b429", "#2fc79a", "#e39bc4", "#8fd0f7", "#f2803a", "#d8c840", "#a497ec"];
export const OTHERS = { light: "#8a8f98", dark: "#9097a3" };
export const MOST_COLOURS = LIGHT.length;

export interface Theme {
  scheme: Scheme;
  paper: string;
  ink: string;
  faint: string;
  band: string;
  idle: string;
  accent: string;
  bad: string;
}

export const THEMES: Record<Scheme, Theme> = {
  light: { scheme: "light", paper: "#ffffff", ink: "#1b1f24", faint: "#d9dde3", band: "#f4f6f8", idle: "#b4bac4", accent: "#0b57a4", bad: "#b3261e" },
  dark: { scheme: "dark", paper: "#14171b", ink: "#e8eaed", faint: "#353b44", band: "#1b1f25", idle: "#59616d", accent: "#8ab8f0", bad: "#ff9a8f" },
};

/** Colour of category `index` of `count`; those beyond the palette share one grey, which the legend names "others". */
export function colourOf(index: number, scheme: Scheme): string {
  const palette = scheme === "dark" ? DARK : LIGHT;
  return index < 0 || index >= palette.length ? OTHERS[scheme] : palette[index];
}

/** A colour as the 32-bit number that a canvas image holds (little-endian RGBA). */
export function packed(hex: string, alpha = 255): number {
  const value = parseInt(hex.slice(1), 16);
  return ((alpha << 24) | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

/** `share` of one packed colour over another. */
export function blend(over: number, under: number, share: number): number {
  const part = Math.max(0, Math.min(256, Math.round(share * 256))), rest = 256 - part;
  const red = ((over & 255) * part + (under & 255) * rest) >> 8;
  const green = (((over >> 8) & 255) * part + ((under >> 8) & 255) * rest) >> 8;
  const blue = (((over >> 16) & 255) * part + ((under >> 16) & 255) * rest) >> 8;
  return (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
}
