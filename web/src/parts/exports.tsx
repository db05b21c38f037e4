// The run as a file: picture, numbers, workflow, trace.

import { save, savePicture } from "../export/save";
import { timelineSvg } from "../export/svg";
import { wfformat } from "../export/wfformat";
import { perfetto } from "../export/perfetto";
import { csv } from "./table";
import { attemptHeads, attemptRows } from "./attempts";
import { useScheme } from "./scheme";
import type { Stage } from "../draw/stage";
import type { Run } from "../data/run";

export function Exports(props: { run: Run; stage: () => Stage | null; range: [number, number] | null }) {
  const { run } = props, name = run.about.title || run.about.workload || "run", scheme = useScheme();
  const picture = (): void => {
    const canvas = document.querySelector<HTMLCanvasElement>(".timeline canvas.chart");
    if (canvas) savePicture(`${name}.png`, canvas);
  };
  const vector = (): void => { const stage = props.stage(); if (stage) save(`${name}.svg`, timelineSvg(stage, scheme), "image/svg+xml"); };
  return (
    <p class="tools" role="group" aria-label="Save">
      Save: <button type="button" onClick={picture}>PNG</button> <button type="button" onClick={vector}>SVG</button>{" "}
      <button type="button" onClick={() => save(`${name}.csv`, csv(attemptHeads, attemptRows(run, Array.from({ length: run.count }, (_, i) => i))), "text/csv")}>CSV</button>{" "}
      <button type="button" onClick={() => save(`${name}.wfformat.json`, JSON.stringify(wfformat(run), null, 1), "application/json")}>WfFormat</button>{" "}
      <button type="button" onClick={() => save(`${name}.perfetto-trace`, perfetto(run) as BlobPart, "application/octet-stream")}>Perfetto</button>
    </p>
  );
}
