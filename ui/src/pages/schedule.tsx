import { useState } from "preact/hooks";
import { call, type Schedule, schedulePath } from "../api";
import { words } from "../cron";
import { exact, relative, span, zone } from "../format";
import { t } from "../i18n";
import { Icon } from "../icons";
import { pretty } from "../json";
import { useLive } from "../live";
import { Dialog, Exact, Headers, Id, Loaded, Page, Panel, Tags, act, toast } from "../parts";
import { go, href } from "../route";
import { useCan, useSession } from "../session";
import { retryWords } from "./job";
import { Runs, ScheduleDialog, templateText } from "./schedule_dialog";
import { ScheduleState } from "./schedules";

type Read = { schedule: Schedule; next: number[] };

const MISFIRE: Record<string, string> = { latest: "send the latest one", skip: "send none", all: "send each" };

function sentence(one: Schedule): string {
  const when = `${words(one)}${one.tz ? ` (${one.tz})` : ""}`;
  if (one.last_error) return t("Cannot send its job: {error}", { error: one.last_error });
  if (one.paused) return t("Paused. It would run {when}.", { when });
  return one.next_at_ms ? t("Runs {when}; next {time}.", { when, time: relative(one.next_at_ms) }) : t("It has no further run.");
}

export function SchedulePage({ name }: { name: string }) {
  const { ns } = useSession();
  const can = useCan();
  const [dialog, setDialog] = useState<"edit" | "delete" | null>(null);
  const path = schedulePath(name);
  const live = useLive(`schedule ${ns} ${name}`, async (): Promise<Read> => ({ schedule: await call<Schedule>("GET", path, { ns }), next: (await call<{ next: number[] }>("GET", `${path}/next`, { ns, query: { count: 10 } })).next }), 4000, { never: true });
  const one = live.data?.schedule;
  const post = (what: string, done: string): Promise<void> => act(() => call("POST", `${path}/${what}`, { ns }), done, live.reload);
  const actions = one && can("manage") && (
    <>
      <button class="primary" onClick={() => void post("run", t("A job was sent"))}><Icon name="play" />{t("Run now")}</button>
      {one.paused ? <button onClick={() => void post("resume", t("Resumed"))}>{t("Resume")}</button> : <button onClick={() => void post("pause", t("Paused"))}><Icon name="pause" />{t("Pause")}</button>}
      <button onClick={() => setDialog("edit")}>{t("Edit")}</button>
      <button class="danger" onClick={() => setDialog("delete")}>{t("Delete")}</button>
    </>
  );
  return (
    <Page crumb={<a href={href(["schedules"])}>{t("Schedules")}</a>} title={name} lead={one && <><ScheduleState one={one} /> · {sentence(one)}</>} actions={actions}>
      <Loaded live={live} lines={8}>
        {({ schedule, next }) => (
          <div class="cols">
            <div class="stack">
              <Panel title={t("The next ten runs")} tools={<span class="dim small">{zone()}</span>}><div class="pad">{schedule.paused && <p class="dim small">{t("It is paused: these are the runs that it would have.")}</p>}<Runs times={next} /></div></Panel>
              <Template one={schedule} />
            </div>
            <div class="stack"><Facts one={schedule} /></div>
          </div>
        )}
      </Loaded>
      {one && dialog === "edit" && <ScheduleDialog current={one} close={() => setDialog(null)} done={live.reload} />}
      {one && dialog === "delete" && (
        <Dialog title={t("Delete {name}", { name })} close={() => setDialog(null)} action={t("Delete")} danger done={t("Do nothing")} submit={async () => { await call("DELETE", path, { ns }); toast(t("Deleted")); setDialog(null); go(href(["schedules"])); }}>
          <p>{t("No further job is sent. Jobs that it has sent stay.")}</p>
        </Dialog>
      )}
    </Page>
  );
}

function Template({ one }: { one: Schedule }) {
  const text = templateText(one);
  return (
    <Panel title={t("What each job carries")}>
      <div class="pad stack">
        <pre class="code" tabIndex={0} dir="auto" aria-label={t("Body")}>{one.job.body_base64 ?? pretty(text).map((piece, at) => (piece.kind === "mark" || piece.kind === "space" ? piece.text : <span key={at} class={`j-${piece.kind}`}>{piece.text}</span>))}</pre>
        <dl class="facts">
          {one.job.tags.length > 0 && <><dt>{t("Tags")}</dt><dd class="row"><Tags tags={one.job.tags} /></dd></>}
          {one.job.retry && <><dt>{t("Retries")}</dt><dd>{retryWords(one.job.retry)}</dd></>}
          {one.job.max_attempts && <><dt>{t("Maximum attempts")}</dt><dd>{exact(one.job.max_attempts)}</dd></>}
          {one.job.ttl_ms && <><dt>{t("Time to live")}</dt><dd>{span(one.job.ttl_ms)}</dd></>}
          {Object.keys(one.job.headers).length > 0 && <><dt>{t("Headers")}</dt><dd><Headers of={one.job.headers} /></dd></>}
        </dl>
      </div>
    </Panel>
  );
}

function Facts({ one }: { one: Schedule }) {
  return (
    <Panel title={t("Details")}>
      <dl class="facts pad">
        <dt>{t("Topic")}</dt><dd><a href={href(["topics", one.topic])}>{one.topic}</a></dd>
        <dt>{t("Expression")}</dt><dd class="mono">{one.cron ?? one.every}</dd>
        {one.tz && <><dt>{t("Time zone")}</dt><dd>{one.tz}</dd></>}
        <dt>{t("Last run")}</dt><dd>{one.last_at_ms ? <Exact ms={one.last_at_ms} /> : t("not yet")}</dd>
        {one.last_job && <><dt>{t("Last job")}</dt><dd><Id text={one.last_job} link={`${href(["topics", one.topic, "jobs", one.last_job])}`} /></dd></>}
        <dt>{t("Missed")}</dt><dd>{exact(one.missed_count)}</dd>
        {one.last_error && <><dt>{t("Last error")}</dt><dd class="break">{one.last_error}</dd></>}
        {one.starts_at_ms && <><dt>{t("Starts")}</dt><dd><Exact ms={one.starts_at_ms} /></dd></>}
        {one.ends_at_ms && <><dt>{t("Ends")}</dt><dd><Exact ms={one.ends_at_ms} /></dd></>}
        <dt>{t("Runs that were missed")}</dt><dd>{t(MISFIRE[one.misfire] ?? one.misfire)}</dd>
        <dt>{t("While the last job is alive")}</dt><dd>{one.overlap === "skip" ? t("skip the run") : t("send the next one, too")}</dd>
        {one.jitter_ms > 0 && <><dt>{t("Jitter")}</dt><dd>{span(one.jitter_ms)}</dd></>}
        {one.owner && <><dt>{t("Owner")}</dt><dd>{one.owner}</dd></>}
        <dt>{t("Version")}</dt><dd>{exact(one.version)}</dd>
      </dl>
    </Panel>
  );
}
