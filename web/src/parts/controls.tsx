// What stands above a timeline: colours, rows, search.

import { adjust, type Link } from "../link";
import { counted } from "../data/search";
import { COLOUR_BYS, type Run } from "../data/run";

const NAMES: Record<string, string> = { function: "function", workflow: "workflow", outcome: "outcome", wait: "wait reason", source: "source of joules" };

export function Controls(props: { run: Run; link: Link; matches: Uint8Array | null }) {
  const { query } = props.link;
  return (
    <form class="controls" onSubmit={(event) => event.preventDefault()}>
      <label>Colour by <select value={query.by ?? "function"} onChange={(event) => adjust({ by: event.currentTarget.value })}>
        {COLOUR_BYS.map((by) => <option key={by} value={by}>{NAMES[by]}</option>)}
      </select></label>
      <label>Rows <select value={query.rows ?? "auto"} onChange={(event) => adjust({ rows: event.currentTarget.value === "auto" ? null : event.currentTarget.value })}>
        <option value="auto">as they fit</option><option value="lanes">every lane</option><option value="folded">busy share per node</option>
      </select></label>
      <Search find={query.find ?? ""} />
      <button type="button" onClick={() => adjust({ from: null, to: null })}>Whole run</button>
      <span role="status">{props.matches ? `${counted(props.matches).toLocaleString("en")} attempts match` : ""}</span>
    </form>
  );
}

let typed: ReturnType<typeof setTimeout>;

function Search(props: { find: string }) {
  const later = (text: string): void => { clearTimeout(typed); typed = setTimeout(() => adjust({ find: text }), 200); };
  return <label>Search <input type="search" value={props.find} placeholder="task, function, node …" onInput={(event) => later(event.currentTarget.value)} /></label>;
}
