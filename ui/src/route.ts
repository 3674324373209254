// Every view is a URL: #/topics/emails/jobs?state=ready&ns=default. The namespace is part of it.
import { useEffect, useReducer } from "preact/hooks";

export type Route = { parts: string[]; query: URLSearchParams; ns: string };

export const DEFAULT_NS = "default";

export function route(): Route {
  const [path = "", text = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const query = new URLSearchParams(text);
  const ns = query.get("ns") || DEFAULT_NS;
  query.delete("ns");
  return { parts: path.split("/").filter(Boolean).map(decoded), query, ns };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

type Values = Record<string, string | number | null | undefined>;

/** The address of a view in the namespace that is shown, or in another one. */
export function href(parts: string[], values: Values = {}, ns = route().ns): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  if (ns !== DEFAULT_NS) query.set("ns", ns);
  return `#/${parts.map(encodeURIComponent).join("/")}${query.size ? `?${query}` : ""}`;
}

export function go(address: string, replace = false): void {
  if (replace) {
    history.replaceState(null, "", address);
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  } else location.hash = address;
}

export function useRoute(): Route {
  const [, draw] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    const changed = (): void => draw(0);
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  return route();
}
