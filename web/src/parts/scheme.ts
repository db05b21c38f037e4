// Light or dark, as the reader's system says.

import { useEffect, useState } from "preact/hooks";
import type { Scheme } from "../draw/colour";

const query = matchMedia("(prefers-color-scheme: dark)");

export function useScheme(): Scheme {
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const changed = (): void => setDark(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return dark ? "dark" : "light";
}
