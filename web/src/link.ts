// The view in the address: `#/run/ID?from=1&to=2&by=outcome`. The server never sees what follows the #.

import { useEffect, useState } from "preact/hooks";

export interface Link { view: string; id: string; query: Record<string, string> }

/** A report keeps its own anchors after the #: there the view lives in memory alone. */
let memory: string | null = null;
const watchers = new Set<() => void>();

export function keepInMemory(first: string): void { memory = first; }

export function parse(hash: string): Link {
  const [path, search] = hash.replace(/^#/, "").split("?");
  const [, view = "", ...rest] = path.split("/");
  return { view, id: decoded(rest.join("/")), query: Object.fromEntries(new URLSearchParams(search ?? "")) };
}

function decoded(text: string): string {
  try { return decodeURIComponent(text); } catch { return text; }
}

export function href(view: string, id = "", query: Record<string, string | number | null | undefined> = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "").map(([key, value]) => [key, String(value)]);
  const search = new URLSearchParams(given).toString();
  return `#/${view}${id ? `/${encodeURIComponent(id)}` : ""}${search ? `?${search}` : ""}`;
}

export const here = (): Link => parse(memory ?? location.hash);

/** Change parts of the query without a step in the history. */
export function adjust(change: Record<string, string | number | null>): void {
  const now = here(), next = href(now.view, now.id, { ...now.query, ...change });
  if (memory !== null) memory = next;
  else history.replaceState(null, "", next);
  for (const watcher of watchers) watcher();
}

export function go(to: string): void {
  if (memory !== null) { memory = to; for (const watcher of watchers) watcher(); } else location.hash = to;
}

export function useLink(): Link {
  const [link, setLink] = useState(here);
  useEffect(() => {
    const changed = (): void => setLink(here());
    addEventListener("hashchange", changed);
    watchers.add(changed);
    return () => { removeEventListener("hashchange", changed); watchers.delete(changed); };
  }, []);
  return link;
}
