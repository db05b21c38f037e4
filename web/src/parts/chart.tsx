// A line or point chart with axes (uPlot), sized to its place and redrawn when the scheme changes.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { THEMES } from "../draw/colour";
import { savePicture } from "../export/save";
import { useScheme } from "./scheme";

export interface ChartProps {
  name: string;
  data: uPlot.AlignedData;
  series: uPlot.Series[];
  x: { label: string; show?: (value: number) => string };
  y: { label: string; show?: (value: number) => string };
  /** The x axis counts seconds since 1970. */
  clock?: boolean;
  bands?: uPlot.Band[];
  height?: number;
  range?: { x?: [number, number]; y?: [number, number] };
  draw?: (plot: uPlot) => void;
  /** A click takes the point nearest to the cursor. */
  pick?: (index: number) => void;
}

export function Chart(props: ChartProps) {
  const box = useRef<HTMLDivElement>(null), scheme = useScheme();
  useEffect(() => {
    const holder = box.current!, theme = THEMES[scheme];
    const axis = (about: ChartProps["x"], size: number): uPlot.Axis => ({
      label: about.label, stroke: theme.ink, grid: { stroke: theme.faint, width: 1 }, ticks: { stroke: theme.faint, width: 1 }, size, labelSize: 18, font: "11px system-ui", labelFont: "12px system-ui",
      ...(about.show ? { values: (_: uPlot, values: number[]) => values.map(about.show!) } : {}),
    });
    const options: uPlot.Options = {
      width: Math.max(200, holder.clientWidth), height: props.height ?? 260, series: props.series, bands: props.bands,
      scales: { x: { time: props.clock ?? false, ...(props.range?.x ? { range: props.range.x } : {}) }, y: props.range?.y ? { range: props.range.y } : {} },
      axes: [axis(props.x, 28), axis(props.y, 66)], legend: { show: false }, cursor: { drag: { x: false, y: false } },
      hooks: props.draw ? { draw: [props.draw] } : {},
    };
    const plot = new uPlot(options, props.data, holder), watcher = new ResizeObserver(() => plot.setSize({ width: Math.max(200, holder.clientWidth), height: props.height ?? 260 }));
    watcher.observe(holder);
    if (props.pick) plot.over.addEventListener("click", () => { const at = plot.cursor.idx; if (at !== null && at !== undefined) props.pick!(at); });
    return () => { watcher.disconnect(); plot.destroy(); };
  }, [props.data, props.series, scheme]);
  return (
    <>
      <div class="chart-box" ref={box} role="img" aria-label={`${props.name}: ${props.y.label} over ${props.x.label}; the table has the numbers`} />
      <p class="tools"><button type="button" aria-label={`${props.name} as PNG`} onClick={() => { const canvas = box.current?.querySelector("canvas"); if (canvas) savePicture(`${props.name}.png`, canvas); }}>PNG</button></p>
    </>
  );
}
