// The page's data: read when a view opens, and again when an event says that it changed, at most once a second. Where
// there is no stream of events, a timer does it. A hidden tab reads nothing.
import { useEffect, useReducer, useRef } from "preact/hooks";
import { ApiError, isAway, onAway } from "./api";
import { type Change, isStreaming, onChange } from "./events";

/** `changes`: how many happened since the data was read, if the view wants to be asked first. */
export type Live<T> = { data: T | undefined; error: ApiError | undefined; atMs: number; changes: number; reload: () => void };

/** Which events matter: all of them, those of a topic or a job, or none. `hold`: rows must not jump. After more than a
 * few changes, or while it returns true, the view does not read by itself: it says how many changes there were.
 * `leaving`: what is shown is being removed, so it is not read any more. */
export type Concern = { topic?: string; id?: string; never?: boolean; hold?: () => boolean; leaving?: boolean };

const LEAST_MS = 1000; // between two reads
const COST = 10; // a read is repeated after ten times its own duration at the earliest
const SLOW_MS = 15_000; // with events, the timer is only a safety net: a job becomes ready without an event
const FEW = 5;
const GRACE_MS = 2000; // the events of one's own action need no question

let on = true;
const listeners = new Set<() => void>();

/** Whether the page refreshes itself. */
export const isLive = (): boolean => on && !document.hidden;

export function setLive(value: boolean): void {
  on = value;
  listeners.forEach((tell) => tell());
}

document.addEventListener("visibilitychange", () => listeners.forEach((tell) => tell()));

export function useLiveSwitch(): boolean {
  const [, again] = useReducer((n: number) => n + 1, 0);
  useEffect(() => onSwitch(() => again(0)), []);
  return on;
}

/** Calls `tell` when the page begins or stops refreshing itself. */
export function onSwitch(tell: () => void): () => void {
  listeners.add(tell);
  return () => void listeners.delete(tell);
}

export function useAway(): boolean {
  const [, again] = useReducer((n: number) => n + 1, 0);
  useEffect(() => onAway(() => again(0)), []);
  return isAway();
}

/** Draw again every second, for countdowns. */
export function useTick(everyMs = 1000): void {
  const [, draw] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    const timer = setInterval(() => isLive() && draw(0), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
}

/** What one view shows, and when it reads again. */
class Reader<T> {
  data: T | undefined;
  error: ApiError | undefined;
  atMs = 0;
  changes = 0;
  private over = false;
  private busy = false;
  private again = false;
  private costMs = 0;
  private graceMs = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private soon: ReturnType<typeof setTimeout> | undefined;
  private readonly ends: (() => void)[] = [];

  constructor(private readonly load: () => Promise<T>, private readonly draw: () => void, private readonly everyMs: () => number, private readonly concern: () => Concern) {}

  start(): void {
    this.ends.push(onSwitch(() => (isLive() ? void this.read() : this.stopTimers())), onChange((change) => this.changed(change)));
    void this.read();
  }

  stop(): void {
    this.over = true;
    this.stopTimers();
    this.ends.forEach((end) => end());
  }

  /** Read now, because a person wants it or did something. */
  reload(): void {
    this.graceMs = Date.now() + GRACE_MS;
    void this.read();
  }

  private stopTimers(): void {
    clearTimeout(this.timer);
    clearTimeout(this.soon);
    this.soon = undefined;
  }

  private plan(): void {
    clearTimeout(this.timer);
    const everyMs = this.everyMs();
    if (!this.over && isLive() && everyMs > 0) this.timer = setTimeout(() => this.tick(), everyMs);
  }

  /** Whether a person decides when to read. */
  private asks(): boolean {
    const { hold } = this.concern();
    return hold !== undefined && (this.changes > FEW || hold());
  }

  /** The timer. While events come, it mostly draws again, because times are shown relative to now. */
  private tick(): void {
    if (!this.concern().never && isStreaming() && (this.asks() || Date.now() - this.atMs < SLOW_MS)) {
      this.draw();
      this.plan();
    } else void this.read();
  }

  private changed(change: Change): void {
    const { topic, id, never } = this.concern();
    if (never || !isLive() || (change && ((topic !== undefined && change.topic !== topic) || (id !== undefined && change.id !== null && change.id !== id)))) return;
    this.changes += 1;
    const gapMs = Math.max(LEAST_MS, COST * this.costMs);
    this.soon ??= setTimeout(() => this.due(), Math.max(50, this.atMs + gapMs - Date.now()));
  }

  private due(): void {
    this.soon = undefined;
    if (Date.now() > this.graceMs && this.asks()) this.draw();
    else void this.read();
  }

  private async read(): Promise<void> {
    if (this.busy) this.again = true;
    if (this.busy || this.over) return;
    if (this.concern().leaving) return this.plan();
    this.busy = true;
    this.changes = 0;
    const began = Date.now();
    try {
      this.data = await this.load();
      this.error = undefined;
      this.atMs = Date.now();
      this.costMs = this.atMs - began;
    } catch (error) {
      this.error = error instanceof ApiError ? error : new ApiError(0, "page", String(error));
    }
    this.busy = false;
    if (!this.over) this.draw();
    this.plan();
    if (this.again) {
      this.again = false;
      void this.read();
    }
  }
}

/** Load when `key` changes, and then as above; `everyMs` is the timer. The last data stays while newer data cannot be
 * read. */
export function useLive<T>(key: string, load: () => Promise<T>, everyMs = 5000, concern: Concern = {}): Live<T> {
  const [, draw] = useReducer((n: number) => n + 1, 0);
  const latest = useRef({ load, concern, everyMs });
  latest.current = { load, concern, everyMs };
  const state = useRef<{ key: string; reader: Reader<T> } | undefined>(undefined);
  if (state.current?.key !== key) state.current = { key, reader: new Reader(() => latest.current.load(), () => draw(0), () => latest.current.everyMs, () => latest.current.concern) };
  const { reader } = state.current;
  useEffect(() => {
    reader.start();
    return () => reader.stop();
  }, [reader]);
  const { data, error, atMs, changes } = reader;
  return { data, error, atMs, changes, reload: () => reader.reload() };
}

/** The second one, as soon as the first is there: a view must not judge by a list that it does not have yet. */
export const after = <T>(first: Live<unknown>, second: Live<T>): Live<T> => (first.data === undefined ? { ...second, data: undefined, error: first.error, reload: first.reload } : second);

/** Whether this server does not have the call yet. */
export const missing = (live: Live<unknown>): boolean => live.error?.status === 404 && live.error.code === "no_route";
