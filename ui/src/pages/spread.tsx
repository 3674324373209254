// Jobs that fall due together are given times apart: in their order, evenly over a longer time, and none earlier than
// planned.
import { useRef, useState } from "preact/hooks";
import { ApiError, type Bulk, call, type Job, type JobPage, jobPath, topicPath } from "../api";
import { exact } from "../format";
import { t } from "../i18n";
import { Field } from "../parts";
import { useSession } from "../session";
import { BulkDialog } from "./bulk";

const MOST = 1000; // jobs of one run; the dialog says if there are more
const PAGE = 500;
const AT_ONCE = 4;
const STEP = 40;

type Props = { topic: string; fromMs: number; toMs: number; close: () => void; done: () => void };

export function SpreadDialog({ topic, fromMs, toMs, close, done }: Props) {
  const { ns } = useSession();
  const [minutes, setMinutes] = useState("60");
  const found = useRef<Job[]>([]);
  const total = useRef(0);
  const startMs = useRef(0);

  const count = async (): Promise<Bulk> => {
    let cursor: string | null = "";
    const jobs: Job[] = [];
    while (cursor !== null && jobs.length < MOST) {
      const page: JobPage = await call<JobPage>("GET", `${topicPath(topic)}/jobs`, { ns, query: { state: "scheduled", due_after_ms: Math.floor(fromMs), due_before_ms: Math.ceil(toMs), cursor, limit: PAGE } });
      jobs.push(...page.jobs);
      cursor = page.next_cursor;
    }
    const complete = cursor === null && jobs.length <= MOST;
    jobs.length = Math.min(jobs.length, MOST);
    jobs.sort((a, b) => a.due_at_ms - b.due_at_ms);
    found.current = jobs;
    total.current = jobs.length;
    startMs.current = jobs[0]?.due_at_ms ?? 0;
    return { matched: jobs.length, dry_run: true, complete };
  };

  /** Moves the next few jobs. One that somebody changed meanwhile keeps its time. */
  const move = async (): Promise<Bulk> => {
    const widthMs = Math.max(1, Number(minutes)) * 60_000;
    const first = total.current - found.current.length;
    const some = found.current.splice(0, STEP);
    let moved = 0;
    const one = async (job: Job, at: number): Promise<void> => {
      try {
        await call("PATCH", jobPath(topic, job.id), { ns, body: { at_ms: Math.max(job.due_at_ms, startMs.current + Math.floor(((first + at) * widthMs) / total.current)), version: job.version } });
        moved += 1;
      } catch (error) {
        if (!(error instanceof ApiError && (error.status === 404 || error.status === 409))) throw error;
      }
    };
    for (let at = 0; at < some.length; at += AT_ONCE) await Promise.all(some.slice(at, at + AT_ONCE).map((job, place) => one(job, at + place)));
    return { matched: some.length, cancelled: moved, dry_run: false, complete: found.current.length === 0 };
  };

  return (
    <BulkDialog title={t("Spread these jobs")} topic={topic} action={t("Spread the jobs")} close={close} done={done} run={(dry) => (dry ? count() : move())} changed={(answer) => answer.cancelled ?? 0}>
      <p class="small">{t("They keep their order and get times apart, from the first one on. None becomes due earlier than planned. At most {n} in one go.", { n: exact(MOST) })}</p>
      <Field label={t("Over how many minutes")}><input type="number" min="1" value={minutes} onInput={(event) => setMinutes(event.currentTarget.value)} /></Field>
    </BulkDialog>
  );
}
