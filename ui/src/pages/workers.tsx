// Who consumes: the workers that report themselves, what each does and since when, and the topics that nobody takes.
import { call, now, type Topic, type Worker } from "../api";
import { exact, span } from "../format";
import { t } from "../i18n";
import { Icon, StateMark } from "../icons";
import { Row } from "../keys";
import { missing, useLive } from "../live";
import { Empty, Id, Loaded, Num, Page, Panel, Time } from "../parts";
import { href } from "../route";
import { isBehind, isDeserted, useSession } from "../session";

type Workers = { workers: Worker[] };

const LATE_MS = 25_000; // a beat comes every 10 s
const LONG_MS = 60_000;

/** It missed its last beats. */
export const isSilent = (one: Worker): boolean => !one.stopped && now() - one.seen_at_ms > LATE_MS;

function WorkerState({ one }: { one: Worker }) {
  if (one.stopped) return <StateMark kind="idle" word={t("stopped")} />;
  if (isSilent(one)) return <StateMark kind="bad" word={t("silent")} />;
  return one.running.length ? <StateMark kind="leased" word={t("busy")} /> : <StateMark kind="ok" word={t("waiting")} />;
}

function sentence(workers: Worker[], topics: Topic[]): string {
  const deserted = topics.filter(isDeserted).length;
  const jobs = workers.reduce((sum, one) => sum + one.running.length, 0);
  const waiting = topics.reduce((sum, one) => sum + one.waiters, 0);
  const first = workers.length ? t("{n} workers run {jobs} now", { n: workers.length, jobs: t("{n} jobs", { n: exact(jobs) }) }) : waiting ? t("No worker reports itself, but {n} consumers wait for jobs", { n: waiting }) : t("No worker reports itself");
  return `${first}${deserted ? t("; {n} topics have ready jobs and nobody consumes them", { n: deserted }) : ""}${t(".")}`;
}

export function WorkersPage() {
  const { ns, topics } = useSession();
  const live = useLive(`workers ${ns}`, () => call<Workers>("GET", "/v1/workers", { ns }), 5000);
  const list = topics.data?.topics ?? [];
  const deserted = list.filter(isDeserted);
  return (
    <Page title={t("Workers")} lead={live.data && topics.data && sentence(live.data.workers, list)}>
      {deserted.length > 0 && (
        <Panel title={t("Nobody consumes")}><div class="list">{deserted.slice(0, 12).map((one) => <a class={isBehind(one) ? "item red" : "item amber"} href={href(["topics", one.topic])} key={one.topic}><Icon name="warn" title={isBehind(one) ? t("urgent") : t("warning")} /><span>{t("{topic}: {jobs} ready, the oldest for {span}", { topic: one.topic, jobs: exact(one.counts.ready), span: span(now() - (one.oldest_ready_at_ms ?? now())) })}</span></a>)}</div></Panel>
      )}
      {missing(live) ? <Panel><Empty title={t("This server does not list workers yet.")} /></Panel> : (
        <Loaded live={live} lines={6}>
          {({ workers }) => workers.length === 0 ? <Panel><Empty title={t("No worker reports itself.")} command="dueline work emails -- ./send-mail.sh">{t("Python workers and dueline work report every 10 seconds. Other consumers are counted with their topics.")}</Empty></Panel> : (
            <Panel label={t("Workers")}>
              <div class="wrap">
                <table class="cards">
                  <thead><tr><th>{t("Name")}</th><th>{t("State")}</th><th>{t("Jobs that run now")}</th><th>{t("Topics")}</th><th class="num">{t("Busy")}</th><th>{t("Started")}</th><th>{t("Last seen")}</th></tr></thead>
                  <tbody>{[...workers].sort((a, b) => (a.name < b.name ? -1 : 1)).map((one) => <WorkerRow one={one} key={one.name} />)}</tbody>
                </table>
              </div>
            </Panel>
          )}
        </Loaded>
      )}
      <Consumers topics={list} />
    </Page>
  );
}

/** Workers add their host and process to the name that they were given; both are shown below it. */
export const shownName = ({ name, host, pid }: Worker): string => name.replace(`:${host}:${pid}`, "") || name;

function WorkerRow({ one }: { one: Worker }) {
  return (
    <tr>
      <td class="whole"><strong class="break">{shownName(one)}</strong><div class="dim small mono break">{one.host}:{one.pid} · {one.version}</div></td>
      <td><WorkerState one={one} /></td>
      <td class="whole" data-label={t("Jobs that run now")}>{one.running.length === 0 ? <span class="zero">–</span> : <ul class="plain">{one.running.slice(0, 5).map((job) => <li key={`${job.topic} ${job.id}`}><span class="dim">{job.topic}</span> <Id text={job.id} link={href(["topics", job.topic, "jobs", job.id])} most={28} /> <span class={now() - job.since_ms > LONG_MS ? "amber-text" : "dim"}>{t("for {span}", { span: span(now() - job.since_ms) })}</span></li>)}{one.running.length > 5 && <li class="dim">{t("{n} more", { n: one.running.length - 5 })}</li>}</ul>}</td>
      <td class="whole break" data-label={t("Topics")}>{one.topics.map((topic, at) => <span key={topic}>{at > 0 && ", "}<a href={href(["topics", topic])}>{topic}</a></span>)}</td>
      <td class="num" data-label={t("Busy")}>{exact(one.running.length)}<span class="dim"> / {exact(one.concurrency)}</span></td>
      <td data-label={t("Started")}><Time ms={one.started_at_ms} /></td>
      <td data-label={t("Last seen")}><Time ms={one.seen_at_ms} /></td>
    </tr>
  );
}

/** Every consumer that waits, of whatever language: the server counts its open calls. */
function Consumers({ topics }: { topics: Topic[] }) {
  const shown = topics.filter((one) => one.waiters > 0 || one.counts.leased > 0).sort((a, b) => b.waiters - a.waiters).slice(0, 50);
  return (
    <Panel title={t("Consumers by topic")}>
      {shown.length === 0 ? <Empty title={t("Nobody waits for a job now.")} /> : (
        <div class="wrap">
          <table class="cards">
            <thead><tr><th>{t("Topic")}</th><th class="num">{t("Waiting calls")}</th><th class="num">{t("leased")}</th><th>{t("Next due")}</th></tr></thead>
            <tbody>{shown.map((one) => <Row key={one.topic} link={href(["topics", one.topic])}><td class="whole"><a class="ell" title={one.topic} href={href(["topics", one.topic])}>{one.topic}</a></td><td class="num" data-label={t("Waiting calls")}><Num n={one.waiters} /></td><td class="num" data-label={t("leased")}><Num n={one.counts.leased} /></td><td data-label={t("Next due")}><Time ms={one.next_due_at_ms} /></td></Row>)}</tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}
