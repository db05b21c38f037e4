// The table behind a chart: the same numbers, sortable, and as CSV.

import { useState } from "preact/hooks";
import { save } from "../export/save";

export type Cell = string | number | null;
export interface Head { key: string; label: string; show?: (value: Cell) => string }
export interface TableProps {
  name: string; heads: Head[]; /** A function is called only once the table is open: a closed one costs nothing. */
  rows: Cell[][] | (() => Cell[][]); open?: boolean; total?: number; onRow?: (row: number) => void;
}

const PAGE = 100;

export function Table(props: TableProps) {
  const [sort, setSort] = useState<{ column: number; up: boolean } | null>(null), [shown, setShown] = useState(PAGE);
  const [open, setOpen] = useState(props.open ?? false);
  const made = (): Cell[][] => (typeof props.rows === "function" ? props.rows() : props.rows), rows = open ? made() : [];
  const order = rows.map((_, i) => i);
  if (sort) order.sort((a, b) => (sort.up ? 1 : -1) * compared(rows[a][sort.column], rows[b][sort.column]) || a - b);
  const click = (column: number): void => setSort((now) => ({ column, up: now?.column === column ? !now.up : true }));
  const sorted = (column: number): "ascending" | "descending" | "none" => (sort?.column !== column ? "none" : sort.up ? "ascending" : "descending");
  return (
    <details class="behind" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{props.name} as a table ({(props.total ?? (typeof props.rows === "function" ? rows.length : props.rows.length)).toLocaleString("en")} rows)</summary>
      <p class="tools"><button type="button" onClick={() => save(`${props.name}.csv`, csv(props.heads, made()), "text/csv")}>CSV</button></p>
      <div class="wide" tabIndex={0} role="region" aria-label={`${props.name}, table`}>
        <table>
          <thead><tr>{props.heads.map((head, c) => <th key={head.key} scope="col" aria-sort={sorted(c)}><button type="button" onClick={() => click(c)}>{head.label}{sort?.column === c ? (sort.up ? " ▲" : " ▼") : ""}</button></th>)}</tr></thead>
          <tbody>
            {order.slice(0, shown).map((i) => (
              <tr key={i}>
                {rows[i].map((cell, c) => {
                  const text = cell === null ? "–" : props.heads[c].show ? props.heads[c].show!(cell) : String(cell);
                  return c === 0 && props.onRow
                    ? <th scope="row" key={c}><button type="button" class="plain" onClick={() => props.onRow!(i)}>{text || "–"}</button></th>
                    : <td key={c} class={typeof cell === "number" ? "number" : ""}>{text}</td>;
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > shown && <p><button type="button" onClick={() => setShown(shown + 10 * PAGE)}>Show more ({(rows.length - shown).toLocaleString("en")} left)</button></p>}
    </details>
  );
}

function compared(a: Cell, b: Cell): number {
  if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

/** Quoted where needed; a text that a spreadsheet would run as a formula gets a leading apostrophe. */
export function csv(heads: Head[], rows: Cell[][]): string {
  const quoted = (cell: Cell): string => {
    let text = cell === null || (typeof cell === "number" && !Number.isFinite(cell)) ? "" : String(cell);
    if (typeof cell === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  return [heads.map((head) => quoted(head.key)), ...rows.map((row) => row.map(quoted))].map((line) => line.join(",")).join("\n") + "\n";
}
