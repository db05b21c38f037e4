// Pointer, wheel and keys of a timeline. Keys follow what timeline tools have in common: w and s zoom, a and d pan.

import type { Stage } from "../draw/stage";

export interface Actions {
  /** The range or the scroll position changed. */
  moved: () => void;
  pointed: (x: number, y: number) => void;
  left: () => void;
  pressed: (x: number, y: number) => void;
  /** Select the next (1) or previous (-1) bar, or one in the next or previous row (2, -2). */
  step: (by: 1 | -1 | 2 | -2) => void;
  open: () => void;
  close: () => void;
}

export function zoom(stage: Stage, factor: number, x?: number): void {
  const at = x === undefined ? (stage.from + stage.to) / 2 : stage.timeAt(x);
  stage.move(at - (at - stage.from) * factor, at + (stage.to - at) * factor);
}

export function pan(stage: Stage, share: number): void {
  const by = (stage.to - stage.from) * share;
  stage.move(stage.from + by, stage.to + by);
}

const KEYS: Record<string, (stage: Stage, actions: Actions) => void> = {
  ArrowLeft: (stage) => pan(stage, -0.1), a: (stage) => pan(stage, -0.1),
  ArrowRight: (stage) => pan(stage, 0.1), d: (stage) => pan(stage, 0.1),
  "+": (stage) => zoom(stage, 0.8), "=": (stage) => zoom(stage, 0.8), w: (stage) => zoom(stage, 0.8),
  "-": (stage) => zoom(stage, 1.25), s: (stage) => zoom(stage, 1.25),
  "0": (stage) => stage.move(0, stage.axis), Home: (stage) => stage.move(0, stage.to - stage.from),
  End: (stage) => stage.move(stage.axis - (stage.to - stage.from), stage.axis),
  PageDown: (stage) => stage.move(stage.from, stage.to, stage.top + stage.frame.bars * 0.8),
  PageUp: (stage) => stage.move(stage.from, stage.to, stage.top - stage.frame.bars * 0.8),
  n: (_, actions) => actions.step(1), p: (_, actions) => actions.step(-1),
  j: (_, actions) => actions.step(2), k: (_, actions) => actions.step(-2),
  ArrowDown: (_, actions) => actions.step(2), ArrowUp: (_, actions) => actions.step(-2),
  Enter: (_, actions) => actions.open(), Escape: (_, actions) => actions.close(),
};

/** Listen on an element; the answer stops listening. */
export function listen(element: HTMLElement, stage: () => Stage, actions: Actions): () => void {
  const held = new Map<number, { x: number; y: number }>();
  let travelled = 0;
  const place = (event: MouseEvent): { x: number; y: number } => {
    const box = element.getBoundingClientRect(), { scale } = stage().frame;
    return { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
  };
  const down = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    held.set(event.pointerId, place(event));
    travelled = held.size > 1 ? 1e9 : 0;
    element.setPointerCapture(event.pointerId);
  };
  const move = (event: PointerEvent): void => {
    const now = place(event), before = held.get(event.pointerId);
    if (!before) return actions.pointed(now.x, now.y);
    held.set(event.pointerId, now);
    travelled += Math.hypot(now.x - before.x, now.y - before.y);
    const own = stage();
    if (held.size === 2) pinch(own, [...held.values()], before, now);
    else {
      const by = ((now.x - before.x) / (own.frame.width - own.frame.left)) * (own.to - own.from);
      own.move(own.from - by, own.to - by, own.top - (now.y - before.y));
    }
    actions.moved();
  };
  const up = (event: PointerEvent): void => {
    if (!held.delete(event.pointerId) || held.size) return;
    const { x, y } = place(event);
    if (travelled < 5 * stage().frame.scale) actions.pressed(x, y);
  };
  const wheel = (event: WheelEvent): void => {
    const own = stage(), { x } = place(event), rolls = own.rows.height > own.frame.bars;
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey) zoom(own, Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.01), x);
    else if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) pan(own, sideways / (own.frame.width / own.frame.scale));
    else if (rolls) {
      const before = own.top;
      own.move(own.from, own.to, own.top + event.deltaY * own.frame.scale);
      if (own.top === before) return;
    } else return;
    event.preventDefault();
    actions.moved();
  };
  const double = (event: MouseEvent): void => { zoom(stage(), 0.4, place(event).x); actions.moved(); };
  const key = (event: KeyboardEvent): void => {
    const act = KEYS[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act(stage(), actions);
    actions.moved();
  };
  const pairs: [string, EventListener, AddEventListenerOptions?][] = [
    ["pointerdown", down as EventListener], ["pointermove", move as EventListener], ["pointerup", up as EventListener],
    ["pointercancel", up as EventListener], ["pointerleave", actions.left], ["wheel", wheel as EventListener, { passive: false }],
    ["dblclick", double as EventListener], ["keydown", key as EventListener],
  ];
  for (const [name, act, options] of pairs) element.addEventListener(name, act, options);
  return () => { for (const [name, act] of pairs) element.removeEventListener(name, act); };
}

function pinch(stage: Stage, points: { x: number; y: number }[], before: { x: number }, now: { x: number }): void {
  const other = points.find((point) => point.x !== now.x) ?? points[0];
  const was = Math.abs(before.x - other.x), is = Math.abs(now.x - other.x);
  if (was > 4 && is > 4) zoom(stage, was / is, (now.x + other.x) / 2);
}
