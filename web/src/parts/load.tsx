// Loading and failing, the same on every view: never blank, never half a chart.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { LoggedOut } from "../data/api";
import { Trouble as Told } from "../data/columns";

export interface Loaded<T> { value: T | null; trouble: string | null; loggedOut: boolean; again: () => void }

/** Run a request whenever `key` changes; the last good value stays while a newer one fails. */
export function useLoad<T>(key: string, load: () => Promise<T>): Loaded<T> {
  const [state, setState] = useState<{ key: string; value: T | null; trouble: string | null; loggedOut: boolean }>({ key, value: null, trouble: null, loggedOut: false });
  const [turn, setTurn] = useState(0), current = useRef(key);
  current.current = key;
  useEffect(() => {
    let over = false;
    load().then(
      (value) => { if (!over) setState({ key, value, trouble: null, loggedOut: false }); },
      (error: unknown) => {
        if (over) return;
        const known = error instanceof Told ? error.message : "The page could not draw this; reload it, and report it if it happens again.";
        if (!(error instanceof Told)) console.error(error);
        setState((before) => ({ key, value: before.key === key ? before.value : null, trouble: known, loggedOut: error instanceof LoggedOut }));
      },
    );
    return () => { over = true; };
  }, [key, turn]);
  const mine = state.key === key;
  return { value: mine ? state.value : null, trouble: mine ? state.trouble : null, loggedOut: mine && state.loggedOut, again: () => setTurn((n) => n + 1) };
}

export function Trouble(props: { text: string; again?: () => void }) {
  return (
    <p class="trouble" role="alert">
      {props.text} {props.again && <button type="button" onClick={props.again}>Try again</button>}
    </p>
  );
}

export function Shown<T>(props: { loaded: Loaded<T>; what: string; children: (value: T) => ComponentChildren }) {
  const { value, trouble, again } = props.loaded;
  return (
    <>
      {trouble && <Trouble text={trouble} again={again} />}
      {value !== null ? props.children(value) : !trouble && <p class="quiet" role="status">Loading {props.what} …</p>}
    </>
  );
}

export function Notes(props: { notes: string[] }) {
  if (!props.notes.length) return null;
  return <ul class="notes">{props.notes.map((note) => <li key={note}>{note}</li>)}</ul>;
}
