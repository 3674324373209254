// The page's data: read when a view opens, again every few seconds, never while its tab is hidden. Views know only
// `useLive`, so a stream of events can replace the timer here without a change to them.
import { useEffect, useReducer, useRef } from "preact/hooks";
import { ApiError } from "./api";

export type Live<T> = { data: T | undefined; error: ApiError | undefined; atMs: number; reload: () => void };

let on = true;
const listeners = new Set<() => void>();

/** Whether the page refreshes itself. */
export const isLive = (): boolean => on && !document.hidden;
export const isOn = (): boolean => on;

export function setLive(value: boolean): void {
  on = value;
  listeners.forEach((tell) => tell());
}

document.addEventListener("visibilitychange", () => listeners.forEach((tell) => tell()));

export function useLiveSwitch(): boolean {
  const [, again] = useReducer((n: number) => n + 1, 0);
  useEffect(() => watch(() => again(0)), []);
  return on;
}

function watch(tell: () => void): () => void {
  listeners.add(tell);
  return () => void listeners.delete(tell);
}

/** Load when `key` changes and then every `everyMs`. The last data stays while newer data cannot be read. */
export function useLive<T>(key: string, load: () => Promise<T>, everyMs = 5000): Live<T> {
  const [, draw] = useReducer((n: number) => n + 1, 0);
  const state = useRef<{ key: string; data?: T; error?: ApiError; atMs: number }>({ key, atMs: 0 });
  const latest = useRef(load);
  latest.current = load;
  if (state.current.key !== key) state.current = { key, atMs: 0 };
  const reload = useRef<() => void>(() => undefined);

  useEffect(() => {
    let over = false;
    let busy = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const plan = (): void => {
      clearTimeout(timer);
      if (!over && isLive() && everyMs > 0) timer = setTimeout(read, everyMs);
    };
    const read = async (): Promise<void> => {
      if (busy || over) return;
      busy = true;
      try {
        const data = await latest.current();
        if (!over) state.current = { key, data, atMs: Date.now() };
      } catch (error) {
        if (!over) state.current = { ...state.current, error: error instanceof ApiError ? error : new ApiError(0, "page", String(error)) };
      }
      busy = false;
      if (!over) draw(0);
      plan();
    };
    reload.current = () => void read();
    const stop = watch(() => (isLive() ? void read() : clearTimeout(timer)));
    void read();
    return () => {
      over = true;
      clearTimeout(timer);
      stop();
    };
  }, [key, everyMs]);

  const { data, error, atMs } = state.current;
  return { data, error, atMs, reload: () => reload.current() };
}
