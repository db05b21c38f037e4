// The numbers of the view that is shown, for tests: `window.wattflow.drawn()` answers plain JSON.

type Source = () => unknown;
const sources = new Map<string, Source>();

declare global { interface Window { wattflow?: { drawn: () => Record<string, unknown> } } }

export function publish(name: string, source: Source): void { sources.set(name, source); }

export function expose(): void {
  window.wattflow = { drawn: () => Object.fromEntries([...sources].map(([name, source]) => [name, plain(source())])) };
}

/** Typed arrays as lists, so that the answer survives JSON. */
function plain(value: unknown): unknown {
  if (ArrayBuffer.isView(value)) return Array.from(value as unknown as ArrayLike<number>);
  if (Array.isArray(value)) return value.map(plain);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plain(one)]));
  return value;
}
