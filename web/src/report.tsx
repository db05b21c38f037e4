// The runs that a report carries within itself, two at a time.

import { render } from "preact";
import { useState } from "preact/hooks";
import { embed, loadRun } from "./data/api";
import { Trouble } from "./data/columns";
import { keepInMemory } from "./link";
import { Pair } from "./parts/pair";
import { Shown, useLoad } from "./parts/load";

interface Kept { id: string; workload: string; policy: string }

/** The bytes of an element that holds base64 of a gzipped document. */
async function bytesOf(id: string): Promise<ArrayBuffer> {
  const text = atob(document.getElementById(id)?.textContent ?? ""), packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  try {
    return await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  } catch {
    throw new Trouble("The report's run cannot be unpacked: the file was cut short, or the browser is older than 2023.");
  }
}

export function mountReport(): void {
  const box = document.getElementById("timelines"), list = document.getElementById("runs")?.textContent;
  if (!box || !list) return;
  const kept = JSON.parse(list) as Kept[];
  if (!kept.length) return;
  keepInMemory("#/");
  for (const { id } of kept) embed(id, () => bytesOf(id));
  render(<Report kept={kept} left={box.dataset.left ?? ""} right={box.dataset.right ?? ""} />, box);
}

function Report(props: { kept: Kept[]; left: string; right: string }) {
  const { kept } = props, workloads = [...new Set(kept.map((run) => run.workload))], [workload, setWorkload] = useState(workloads[0]);
  const policies = kept.filter((run) => run.workload === workload).map((run) => run.policy);
  const [left, setLeft] = useState(props.left), [right, setRight] = useState(props.right);
  const first = policies.includes(left) ? left : policies[0], second = policies.includes(right) ? right : policies[1] ?? policies[0];
  const shown = [...new Set([first, second])], idOf = (policy: string): string => kept.find((run) => run.workload === workload && run.policy === policy)!.id;
  const loaded = useLoad(shown.map(idOf).join(" "), () => Promise.all(shown.map((policy) => loadRun(idOf(policy)))));
  const choose = (label: string, value: string, names: string[], set: (name: string) => void) => (
    <label>{label} <select value={value} onChange={(event) => set(event.currentTarget.value)}>{names.map((name) => <option key={name} value={name}>{name}</option>)}</select></label>
  );
  return (
    <div class="wf">
      <p class="controls">{choose("workload", workload, workloads, setWorkload)}{choose("left", first, policies, setLeft)}{choose("right", second, policies, setRight)}</p>
      <Shown loaded={loaded} what="the timelines">{(runs) => <Pair key={loaded.value ? shown.join() + workload : ""} runs={runs} names={shown} beside />}</Shown>
    </div>
  );
}
