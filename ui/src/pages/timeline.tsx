// What happened to a job and what will: its history, the calls that push made, and the times that are still to come.
import { useRef } from "preact/hooks";
import { type Attempt, call, type History, type HistoryEntry, type Job, jobPath, now, topicPath } from "../api";
import { exact, relative, span } from "../format";
import { t } from "../i18n";
import { StateMark } from "../icons";
import { type Live, useLive } from "../live";
import { Exact, Panel, Skeleton } from "../parts";
import { useHas, useSession } from "../session";

type Entry = { ms: number; word: string; kind: string; by?: string | null; text?: string | null; error?: string | null; call?: Attempt | undefined };
type Past = { history: History; calls: Attempt[] };

/** The words of a history, and the colours of their dots. */
const WORDS: Record<string, [string, string]> = {
  sent: ["Sent", "scheduled"], edited: ["Edited", "scheduled"], delivered: ["Delivered", "leased"], released: ["Given back", "ready"], lease_lost: ["Lease lost", "ready"],
  dead: ["Died", "dead"], revived: ["Revived", "scheduled"], acked: ["Done", "done"], cancelled: ["Cancelled", "cancelled"],
};
const ENDS = ["acked", "released", "dead"]; // how a delivery ends, if its consumer says so

/** What is kept about the past of a job: its history, and the calls of its topic's push target. */
function usePast(job: Job): Live<Past> {
  const { ns, topics } = useSession();
  const has = useHas();
  const pushed = Boolean(topics.data?.topics.find((one) => one.topic === job.topic)?.push) && has("push");
  const load = async (): Promise<Past> => {
    const history = await call<History>("GET", `${jobPath(job.topic, job.id)}/history`, { ns });
    const calls = pushed ? (await call<{ attempts: Attempt[] }>("GET", `${topicPath(job.topic)}/push/attempts`, { ns, query: { id: job.id, limit: 50 } })).attempts : [];
    return { history, calls };
  };
  return useLive(`past ${ns} ${job.topic} ${job.id} ${job.version} ${job.attempts} ${job.state} ${pushed}`, load, 5000, { topic: job.topic, id: job.id });
}

function fromHistory(one: HistoryEntry, made: Attempt | undefined): Entry {
  const [word, kind] = WORDS[one.what] ?? [one.what, "cancelled"];
  const texts = [one.what === "delivered" && one.attempt && t("attempt {n}", { n: exact(one.attempt) }), one.reason && t(one.reason), one.due_at_ms && t("due {time}", { time: relative(one.due_at_ms) })];
  return { ms: one.at_ms, word: t(word), kind, by: one.by, text: texts.filter(Boolean).join(" · "), error: one.error, call: made };
}

const fromCall = (one: Attempt): Entry => ({ ms: one.at_ms, word: t("Called"), kind: one.error ? "ready" : "done", text: t("attempt {n}", { n: one.attempt }), error: one.error, call: one });

/** The history. A call belongs to the entry that ended its delivery, and is an entry of its own if that one is not kept. */
function happened(past: Past): Entry[] {
  const left = new Set(past.calls);
  const entries = [...past.history.entries].reverse().map((one) => {
    const made = ENDS.includes(one.what) ? past.calls.find((call) => left.has(call) && call.attempt === one.attempt) : undefined;
    if (made) left.delete(made);
    return fromHistory(one, made);
  });
  return [...entries.reverse(), ...[...left].map(fromCall)];
}

function toCome(job: Job): Entry[] {
  const all: Entry[] = [];
  const time = now();
  if (!job.ended_at_ms && job.state !== "leased") all.push({ ms: job.due_at_ms, word: job.attempts ? t("Due again") : t("Due"), kind: "ready" });
  if (job.state === "leased" && job.lease_until_ms) all.push({ ms: job.lease_until_ms, word: t("Its lease ends"), kind: "leased" });
  if (job.expires_at_ms && !job.ended_at_ms) all.push({ ms: job.expires_at_ms, word: t("Expires"), kind: "dead" });
  if (job.ended_at_ms && job.retain_until_ms && job.retain_until_ms > time) all.push({ ms: job.retain_until_ms, word: t("Its record is removed"), kind: "cancelled" });
  return all;
}

export function Timeline({ job }: { job: Job }) {
  const { data, error } = usePast(job);
  const last = useRef<Past>(undefined); // shown until the history of the next version is there
  last.current = data ?? last.current;
  const past = last.current;
  // What begins now counts from the next millisecond, but a job that is due now was due from the last one on.
  const order = (one: Entry): number => one.ms + (coming.includes(one) ? 1.5 : 0);
  const coming = toCome(job);
  const all = [...(past ? happened(past) : []), ...coming].sort((a, b) => order(a) - order(b));
  const dropped = past?.history.dropped ?? 0;
  const told = all.some((one) => one.error && one.error === job.last_error);
  const time = now();
  if (!past && !error) return <Panel title={t("Timeline")}><div class="pad"><Skeleton /></div></Panel>; // half of it would tell another story
  return (
    <Panel title={t("Timeline")}>
      <div class="pad">
        <ol class="timeline">
          {all.map((one, at) => (
            <li key={`${one.ms} ${one.word} ${at}`} class={`s-${one.kind}${one.ms > time ? " future" : ""}`}>
              <span class="dot" />
              <div>
                <strong>{one.word}</strong>{one.text && <span class="dim"> · {one.text}</span>}{one.by && <span class="dim break"> · {one.by}</span>}
                <div class="small"><Exact ms={one.ms} /></div>
                {one.call ? <Exchange made={one.call} /> : one.error && <pre class="said" dir="auto">{one.error}</pre>}
                {at === 0 && dropped > 0 && past && <div class="small dim">{t("{n} more deliveries are not kept.", { n: exact(dropped) })}</div>}
              </div>
            </li>
          ))}
        </ol>
        {job.last_error && !told && <div class="alert amber"><div><strong class="small">{t("Last error")}</strong><pre class="break" dir="auto" style={{ whiteSpace: "pre-wrap" }}>{job.last_error}</pre></div></div>}
      </div>
    </Panel>
  );
}

/** The HTTP call of an attempt: what was answered, and how long it took. */
function Exchange({ made }: { made: Attempt }) {
  return (
    <div class="exchange small">
      <span class="row"><StateMark kind={made.error ? "bad" : "ok"} word={made.status ? `HTTP ${made.status}` : t("no answer")} /> <span class="dim">{span(made.duration_ms)}</span>{made.error && !made.status && <span class="break">{made.error}</span>}</span>
      {made.excerpt && <pre class="said" dir="auto">{made.excerpt}</pre>}
    </div>
  );
}
