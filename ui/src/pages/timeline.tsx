// What happened to a job and what will: its own times, the calls that push made, and the times that are still to come.
import { type Attempt, call, type Job, now, topicPath } from "../api";
import { span } from "../format";
import { t } from "../i18n";
import { StateMark } from "../icons";
import { useLive } from "../live";
import { Exact, Panel } from "../parts";
import { useCan, useSession } from "../session";

type Entry = { ms: number; word: string; kind: string; text?: string; error?: string | null; call?: Attempt };

/** The calls of the topic's push target for this job. */
function useCalls(job: Job): Attempt[] {
  const { ns, topics } = useSession();
  const can = useCan();
  const pushed = Boolean(topics.data?.topics.find((one) => one.topic === job.topic)?.push) && can("push");
  const load = async (): Promise<Attempt[]> =>
    pushed ? (await call<{ attempts: Attempt[] }>("GET", `${topicPath(job.topic)}/push/attempts`, { ns, query: { id: job.id, limit: 50 } })).attempts : [];
  return useLive(`calls ${ns} ${job.topic} ${job.id} ${job.version} ${job.attempts} ${job.state} ${pushed}`, load, 5000, { topic: job.topic, id: job.id }).data ?? [];
}

/** What the job itself tells, and its calls. */
function happened(job: Job, calls: Attempt[]): Entry[] {
  const all: Entry[] = [{ ms: job.created_at_ms, word: t("Sent"), kind: "scheduled" }];
  for (const one of calls) all.push({ ms: one.at_ms, word: t("Called"), kind: one.error ? "ready" : "done", text: t("attempt {n}", { n: one.attempt }), error: one.error, call: one });
  if (!calls.length && job.updated_at_ms > job.created_at_ms && job.updated_at_ms !== job.ended_at_ms) all.push({ ms: job.updated_at_ms, word: t("Last changed"), kind: "cancelled", ...(job.attempts ? { text: t("{n} times", { n: job.attempts }) + t(" delivered so far") } : {}) });
  if (job.ended_at_ms) all.push({ ms: job.ended_at_ms, word: t(job.state === "done" ? "Done" : job.state === "dead" ? "Died" : "Cancelled"), kind: job.state });
  return all;
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
  const all = [...happened(job, useCalls(job)), ...toCome(job)].sort((a, b) => a.ms - b.ms);
  const told = all.some((one) => one.error && one.error === job.last_error);
  const time = now();
  return (
    <Panel title={t("Timeline")}>
      <div class="pad">
        <ol class="timeline">
          {all.map((one, at) => (
            <li key={`${one.ms} ${one.word} ${at}`} class={`s-${one.kind}${one.ms > time ? " future" : ""}`}>
              <span class="dot" />
              <div>
                <strong>{one.word}</strong>{one.text && <span class="dim"> · {one.text}</span>}
                <div class="small"><Exact ms={one.ms} /></div>
                {one.call ? <Exchange made={one.call} /> : one.error && <pre class="said" dir="auto">{one.error}</pre>}
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
