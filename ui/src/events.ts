// The stream of events, one per page. An event carries no numbers: it only says that something changed, and whoever
// shows it reads again. Without the stream (an older server, a token for some topics, a proxy that cuts it) the timers
// of live.ts do the same more slowly.

/** What changed. null: anything may have, because events were lost. */
export type Change = { what: string; topic: string; id: string | null } | null;

const FIRST_WAIT_MS = 2000;
const LONGEST_WAIT_MS = 30_000;

const listeners = new Set<(change: Change) => void>();
let running: AbortController | undefined;
let source = "";
let open = false;
let last = "";

/** Whether the stream reports changes at this moment. */
export const isStreaming = (): boolean => open;

export function onChange(tell: (change: Change) => void): () => void {
  listeners.add(tell);
  return () => void listeners.delete(tell);
}

/** Follow the changes of a namespace; of some topics only, if the token allows no more. */
export function follow(ns: string, topics: string[]): void {
  const wanted = JSON.stringify([ns, topics]);
  if (running && source === wanted) return;
  if (source !== wanted) last = "";
  unfollow();
  source = wanted;
  running = new AbortController();
  void keep(ns, topics, running.signal);
}

export function unfollow(): void {
  running?.abort();
  running = undefined;
  open = false;
}

async function keep(ns: string, topics: string[], signal: AbortSignal): Promise<void> {
  for (let wait = FIRST_WAIT_MS; !signal.aborted; wait = Math.min(wait * 2, LONGEST_WAIT_MS)) {
    const began = Date.now();
    const again = await once(ns, topics, signal);
    if (signal.aborted || !again) return;
    open = false;
    if (Date.now() - began > LONGEST_WAIT_MS) wait = FIRST_WAIT_MS;
    await new Promise((done) => setTimeout(done, wait));
  }
}

/** Read one stream to its end. Returns whether another try may help. */
async function once(ns: string, topics: string[], signal: AbortSignal): Promise<boolean> {
  const query = new URLSearchParams(topics.map((topic) => ["topic", topic]));
  const headers: Record<string, string> = { accept: "text/event-stream", "dueline-namespace": ns, ...(last ? { "last-event-id": last } : {}) };
  try {
    const answer = await fetch(`../v1/events${query.size ? `?${query}` : ""}`, { headers, signal, credentials: "same-origin", cache: "no-store" });
    if (!answer.ok || !answer.body) return answer.status >= 500 || answer.status === 429;
    await read(answer.body);
  } catch {
    // The connection broke, or this page ended it.
  }
  return true;
}

async function read(body: ReadableStream<Uint8Array>): Promise<void> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop() ?? "";
    blocks.forEach(taken);
  }
}

function taken(block: string): void {
  const fields: Record<string, string> = {};
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 1).trimStart();
  }
  if (fields["id"]) last = fields["id"];
  if (fields["event"] === "hello") open = true;
  if (fields["event"] === "hello" || fields["event"] === "gap") tell(null);
  if (fields["event"] !== "job" && fields["event"] !== "topic") return;
  try {
    const { what, topic, id } = JSON.parse(fields["data"] ?? "") as { what: string; topic: string; id?: string };
    tell({ what, topic, id: id ?? null });
  } catch {
    tell(null);
  }
}

const tell = (change: Change): void => listeners.forEach((one) => one(change));
