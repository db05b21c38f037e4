// Legends: categories of the bars (a click searches for one) and bands of the power chart with their textures.

import { adjust } from "../link";
import { colourOf, MOST_COLOURS, THEMES } from "../draw/colour";
import { useScheme } from "./scheme";
import type { Stage } from "../draw/stage";
import type { ColourBy } from "../data/run";

const MOST = 24;

export function Keys(props: { stage: Stage; by: ColourBy; find: string; still?: boolean }) {
  const scheme = useScheme(), { keys, watts } = props.stage, own = keys.filter((key) => key.colour < MOST_COLOURS).slice(0, MOST);
  const rest = keys.length - own.length, searchable = !props.still && props.by !== "wait" && props.by !== "source";
  return (
    <div class="keys">
      <p class="legend">
        {own.map((key) => !searchable ? <span class="key" key={key.index}><i style={{ background: colourOf(key.colour, scheme) }} />{key.name.replace("_", " ")}</span> : (
          <button type="button" key={key.index} class="key" aria-pressed={props.find === key.name} onClick={() => adjust({ find: props.find === key.name ? null : key.name })}>
            <i style={{ background: colourOf(key.colour, scheme) }} />{key.name.replace("_", " ")}
          </button>
        ))}
        {rest > 0 && <span class="key"><i style={{ background: colourOf(MOST_COLOURS, scheme) }} />{rest} others</span>}
        <span class="key"><i class="pale" />pale: before the run (wake, cold start, data)</span>
        <span class="key"><i class="hatched" />hatched: asleep</span>
        <span class="key"><i style={{ background: THEMES[scheme].bad }} />red end: not done</span>
      </p>
      {watts && (
        <p class="legend">
          Power: {watts.bands.map((band, b) => (
            <span class="key" key={b}><i class={`source-${band.provenance}`} style={{ backgroundColor: b === 0 ? THEMES[scheme].idle : colourOf(b - 1, scheme) }} />{band.name} ({band.provenance})</span>
          ))}
        </p>
      )}
    </div>
  );
}
