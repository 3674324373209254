// The calls of the native API, as the page uses them. One place knows paths, headers and errors.

export type Counts = { scheduled: number; ready: number; leased: number; done: number; dead: number; cancelled: number };
export type State = keyof Counts;
export type Retry = "none" | { ladder?: string[]; base_ms?: number; factor?: number; max_ms?: number; jitter?: number };
export type Policy = Record<string, unknown> & { by_worker?: string[] };
export type Topic = {
  topic: string; counts: Counts; next_due_at_ms: number | null; oldest_ready_at_ms: number | null; waiters: number;
  paused: boolean; paused_until_ms: number | null; partitions: number; policy: Policy; version: number; push: boolean;
  bands: number[] | null; done_per_s: number | null; late_p99_ms: number | null; history_dropped: number;
};
export type Job = {
  id: string; topic: string; state: State; reason: string | null; body?: unknown; body_base64?: string; items?: unknown[];
  due_at_ms: number; created_at_ms: number; updated_at_ms: number; ended_at_ms: number | null; attempts: number;
  max_attempts: number | null; lease_ms: number | null; lease_until_ms: number | null; expires_at_ms: number | null;
  retain_until_ms: number | null; retry: Retry | null; tags: string[]; headers: Record<string, string>;
  merge_key: string | null; version: number; last_error: string | null;
};
export type JobPage = { jobs: Job[]; next_cursor: string | null };
export type DeadPage = JobPage & { by_reason: Record<string, number> };
export type TopicPage = { topics: Topic[]; next_cursor: string | null };
export type Bulk = { matched: number; cancelled?: number; revived?: number; purged?: number; dry_run: boolean; complete?: boolean };
export type Push = {
  url: string | null; service: string | null; method: string; headers: Record<string, string>; timeout_ms: number | null;
  concurrency: number; rate_per_s: number | null; success: number[] | null; retry: Retry | null;
  breaker: { failures: number; open_ms: number } | null; secrets: string[]; paused: boolean; state: string;
  in_flight: number; last_error: string | null;
};
export type Attempt = { id: string; attempt: number; at_ms: number; status: number | null; duration_ms: number; error: string | null; excerpt: string | null };
export type Token = {
  id: string; name: string; state: string; rights: string[]; namespace: string | null; topics: string[];
  created_at_ms: number; expires_at_ms: number | null; revoked_at_ms: number | null; old_secret_until_ms: number | null; token?: string;
};
export type AuditEntry = {
  id: string; at_ms: number; who: string; who_name: string | null; address: string | null; namespace: string; action: string;
  topic: string | null; details: Record<string, unknown>; status: number; code: string | null; server: string;
};
export type LimitUse = { limit: string; max: number; used: number | null; refused: number; namespace: string | null; token_id: string | null };
export type Shard = { name: string; role: string; memory_bytes: number; max_memory_bytes: number | null; replicas: number; aof_ok: boolean };
export type Info = {
  version: string; namespace: string; durability: string; store: string; limits: Record<string, number>; clock_offset_ms: number;
  auth: string; dialects: Record<string, string>; limits_in_use: LimitUse[]; shards: Shard[]; disk_free_bytes: number | null;
  access: { rights: string[]; namespace: string | null; topics: string[]; token_id: string | null; name: string | null; expires_at_ms: number | null };
};
export type Template = { body?: unknown; body_base64?: string; lease_ms?: number | null; ttl_ms?: number | null; max_attempts?: number | null; retry?: Retry; tags: string[]; headers: Record<string, string> };
export type Schedule = {
  name: string; topic: string; cron: string | null; tz: string | null; every: string | null; starts_at_ms: number | null; ends_at_ms: number | null;
  jitter_ms: number; misfire: string; overlap: string; paused: boolean; owner: string | null; job: Template; version: number;
  next_at_ms: number | null; last_at_ms: number | null; last_job: string | null; last_error: string | null; missed_count: number;
};
export type SchedulePage = { schedules: Schedule[]; next_cursor: string | null };
export type Worker = {
  name: string; host: string; pid: number; version: string; topics: string[]; concurrency: number; started_at_ms: number; seen_at_ms: number;
  running: { topic: string; id: string; since_ms: number }[]; stopped: boolean;
};
export type Group = {
  merge_key: string; id: string; items_count: number; max_items: number | null; bytes: number; due_at_ms: number; quiet_ms: number | null;
  created_at_ms: number; updated_at_ms: number;
};
export type GroupPage = { groups: Group[]; next_cursor: string | null };
export type HistoryEntry = { at_ms: number; what: string; attempt: number | null; by: string | null; error: string | null; due_at_ms: number | null; reason: string | null };
export type History = { entries: HistoryEntry[]; dropped: number };
export type Charts = { step_ms: number; from_ms: number; series: Record<string, (number | null)[]> };
export type Problem = { code: string; message: string };
export type Readiness = { ready: boolean; reasons?: Problem[]; warnings?: Problem[] };
export type Settings = { version: string; auth: string; read_only: boolean; environment: string; colour: string };

export class ApiError extends Error {
  constructor(readonly status: number, readonly code: string, message: string, readonly field: string | null = null) {
    super(message);
  }
  /** The server could not be reached at all. */
  get away(): boolean {
    return this.status === 0;
  }
}

const MOST_AT_ONCE = 4;
let running = 0;
const waiting: (() => void)[] = [];
let skewMs = 0;

/** Now, on the server's clock as far as its Date header tells. */
export const now = (): number => Date.now() + skewMs;

type Options = { query?: Record<string, string | number | null | undefined>; body?: unknown; raw?: string; ns?: string }; // raw: a body that is JSON already

export async function call<T>(method: string, path: string, options: Options = {}): Promise<T> {
  if (running >= MOST_AT_ONCE) await new Promise<void>((go) => waiting.push(go));
  running += 1;
  try {
    return await send<T>(method, path, options);
  } finally {
    running -= 1;
    waiting.shift()?.();
  }
}

async function send<T>(method: string, path: string, { query, body, raw, ns }: Options): Promise<T> {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) if (value !== null && value !== undefined && value !== "") asked.set(name, String(value));
  const search = asked.size ? `?${asked}` : "";
  const headers: Record<string, string> = {};
  const written = raw ?? (body === undefined ? null : JSON.stringify(body));
  if (written !== null) headers["content-type"] = "application/json";
  if (ns) headers["dueline-namespace"] = ns;
  let answer: Response;
  try {
    answer = await fetch(`..${path}${search}`, { method, headers, body: written, credentials: "same-origin", cache: "no-store" });
  } catch {
    setAway(true);
    throw new ApiError(0, "unreachable", "The server cannot be reached.");
  }
  setAway(false);
  const date = Date.parse(answer.headers.get("date") ?? "");
  if (!Number.isNaN(date)) {
    const ahead = date + 500 - Date.now();
    skewMs = Math.abs(ahead) > 3000 ? ahead : 0;
  }
  if (answer.status === 204) return undefined as T;
  const text = await answer.text();
  const found = parsed(text);
  if (answer.ok && found && typeof found === "object") sources.set(found, text);
  if (answer.ok || path === "/readyz") return found as T;
  if (answer.status === 401) expired.forEach((tell) => tell());
  const error = found?.error;
  throw new ApiError(answer.status, error?.code ?? "error", error?.message ?? `HTTP ${answer.status}`, error?.field ?? null);
}

function parsed(text: string): any {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

const sources = new WeakMap<object, string>();

/** The text that an answer was read from. Numbers in a body may have more digits than JavaScript keeps. */
export const sourceOf = (answer: object): string => sources.get(answer) ?? "";

let away = false;
const watchers = new Set<() => void>();

function setAway(value: boolean): void {
  if (value === away) return;
  away = value;
  watchers.forEach((tell) => tell());
}

/** Whether the last call did not reach the server. */
export const isAway = (): boolean => away;

/** Calls `tell` when the server is lost or found again. Returns the function that ends this. */
export function onAway(tell: () => void): () => void {
  watchers.add(tell);
  return () => void watchers.delete(tell);
}

const expired = new Set<() => void>();

/** Calls `tell` when the server no longer accepts the login. Returns the function that ends this. */
export function onUnauthorized(tell: () => void): () => void {
  expired.add(tell);
  return () => void expired.delete(tell);
}

export const part = encodeURIComponent;
export const topicPath = (topic: string): string => `/v1/topics/${part(topic)}`;
export const schedulePath = (name: string): string => `/v1/schedules/${part(name)}`;
export const jobPath = (topic: string, id: string): string => `${topicPath(topic)}/jobs/${part(id)}`;
