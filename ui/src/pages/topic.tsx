import { useState } from "preact/hooks";
import { call, now, type State, type Topic, topicPath, type Worker } from "../api";
import { exact, middle, parseDuration, relative, span } from "../format";
import { t } from "../i18n";
import { Icon } from "../icons";
import { useLive } from "../live";
import { Dialog, Empty, Field, JobState, Loaded, Num, Page, Panel, Time, WORDS, act, toast } from "../parts";
import { go, href } from "../route";
import { isDeserted, useCan, useSession } from "../session";
import { DeadTab } from "./dead";
import { Forecast } from "./forecast";
import { GroupsTab } from "./groups";
import { JobList } from "./jobs";
import { PolicyTab } from "./policy";
import { PushTab } from "./push";
import { SendButton } from "./send";
import { Late, Rate, TopicState } from "./topics";
import { isSilent, shownName } from "./workers";

const STATES = Object.keys(WORDS) as State[];

function sentence(topic: Topic): string {
  const { ready, leased, scheduled, dead } = topic.counts;
  const parts: string[] = [];
  const late = topic.oldest_ready_at_ms ? span(now() - topic.oldest_ready_at_ms) : "";
  if (topic.paused) parts.push(topic.paused_until_ms ? t("Paused until {time}", { time: relative(topic.paused_until_ms) }) : t("Paused until resumed"));
  else if (isDeserted(topic)) parts.push(t("Nobody is consuming this topic"));
  if (ready) parts.push(t("{n} jobs are ready", { n: exact(ready) }) + (late ? t(", the oldest for {span}", { span: late }) : ""));
  else if (leased) parts.push(t("{n} jobs are being worked on", { n: exact(leased) }));
  if (!ready && scheduled && topic.next_due_at_ms) parts.push(t("the next of {n} jobs is due {time}", { n: exact(scheduled), time: relative(topic.next_due_at_ms) }));
  if (dead) parts.push(t("{n} dead letters", { n: exact(dead) }));
  const text = parts.join(t("; "));
  return text ? `${text[0]!.toUpperCase()}${text.slice(1)}${t(".")}` : t("It has no jobs.");
}

export function TopicPage({ name, tab }: { name: string; tab: string }) {
  const { ns } = useSession();
  const can = useCan();
  const [dialog, setDialog] = useState<"pause" | "delete" | null>(null);
  const live = useLive(`topic ${ns} ${name}`, () => call<Topic>("GET", topicPath(name), { ns }), 3000, { topic: name });
  const topic = live.data;
  const isNew = live.error?.status === 404 && !topic;
  const resume = (): Promise<void> => act(() => call("POST", `${topicPath(name)}/resume`, { ns }), t("Resumed"), live.reload);
  const tabs: [string, string][] = [["jobs", t("Jobs")], ["forecast", t("Forecast")], ["dead", topic?.counts.dead ? `${t("Dead letters")} (${exact(topic.counts.dead)})` : t("Dead letters")], ["groups", t("Merge groups")], ["policy", t("Policy")], ["push", t("Push")]];
  const actions = topic && (
    <>
      {can("manage") && (topic.paused ? <button onClick={() => void resume()}><Icon name="play" />{t("Resume")}</button> : <button onClick={() => setDialog("pause")}><Icon name="pause" />{t("Pause")}</button>)}
      {can("manage") && tab === "policy" && <button class="danger" onClick={() => setDialog("delete")}>{t("Delete")}</button>}
      <SendButton topic={name} />
    </>
  );
  return (
    <Page crumb={<a href={href(["topics"])}>{t("Topics")}</a>} title={<span title={name}>{middle(name, 96)}</span>} lead={topic && sentence(topic)} actions={actions}>
      {!isNew && <Loaded live={live}>
        {(topic) => (
          <>
            <Panel label={t("Jobs by state")}><div class="pad"><Counts topic={topic} /></div></Panel>
            <div>
              <nav class="tabs" aria-label={t("Views of the topic")}>{tabs.map(([key, word]) => <a key={key} class={tab === key ? "on" : ""} aria-current={tab === key ? "page" : undefined} href={href(["topics", name, ...(key === "jobs" ? [] : [key])])}>{word}</a>)}</nav>
              {tab === "jobs" && <JobList topic={name} />}
              {tab === "forecast" && <Forecast topic={name} paused={topic.paused} />}
              {tab === "dead" && <DeadTab topic={name} partitions={topic.partitions} />}
              {tab === "groups" && <GroupsTab topic={name} />}
              {tab === "policy" && <PolicyTab topic={topic} saved={live.reload} />}
              {tab === "push" && <PushTab topic={name} has={topic.push} changed={live.reload} />}
            </div>
          </>
        )}
      </Loaded>}
      {isNew && <Panel><Empty title={t("This topic does not exist yet.")} command={`dueline send ${name} '{"to": "ann"}' --in 1s`}>{t("A topic appears with its first job.")}</Empty></Panel>}
      {dialog === "pause" && <PauseDialog name={name} close={() => setDialog(null)} done={live.reload} />}
      {dialog === "delete" && <DeleteDialog name={name} close={() => setDialog(null)} />}
    </Page>
  );
}

function Counts({ topic }: { topic: Topic }) {
  const all = STATES.reduce((sum, state) => sum + topic.counts[state], 0);
  return (
    <>
      <div class="row" style={{ marginBottom: "10px" }}><TopicState topic={topic} /><span class="dim small">{t("{n} consumers", { n: topic.waiters })}{topic.partitions > 1 ? ` · ${t("{n} partitions", { n: topic.partitions })}` : ""} · <Rate topic={topic} /> {t("done/s")} · {t("Late p99")} <Late topic={topic} /></span></div>
      <Workers topic={topic.topic} />
      {topic.history_dropped > 0 && <p class="amber-text small">{t("{n} entries of the histories of its jobs did not fit the budget (limits.max_history_bytes).", { n: exact(topic.history_dropped) })}</p>}
      <div class="bar" role="img" aria-label={STATES.map((state) => `${t(WORDS[state])} ${exact(topic.counts[state])}`).join(", ")}>
        {all > 0 && STATES.filter((state) => topic.counts[state]).map((state) => <span class={`s-${state}`} key={state} style={{ flexGrow: topic.counts[state] / all }} />)}
      </div>
      <div class="legend">
        {STATES.map((state) => <a key={state} href={state === "dead" ? href(["topics", topic.topic, "dead"]) : href(["topics", topic.topic], { state })}><JobState state={state} /> <strong><Num n={topic.counts[state]} /></strong></a>)}
      </div>
    </>
  );
}

const WORKERS = 4; // that are named

/** The workers that take jobs of this topic, the last seen first. Consumers of other kinds are only counted. */
function Workers({ topic }: { topic: string }) {
  const { ns, info } = useSession();
  const may = info.access.topics.includes("*");
  const load = async (): Promise<Worker[]> => (may ? (await call<{ workers: Worker[] }>("GET", "/v1/workers", { ns })).workers : []);
  const live = useLive(`consumers ${ns} ${topic}`, load, 10_000, { never: true });
  const found = (live.data ?? []).filter((one) => one.topics.includes(topic)).sort((a, b) => b.seen_at_ms - a.seen_at_ms);
  if (!found.length) return null;
  return (
    <p class="small consumers">
      <span class="dim">{t("Workers")}</span>{" "}
      {found.slice(0, WORKERS).map((one, at) => <span key={one.name}>{at > 0 && " · "}<span class="break">{shownName(one)}</span> <span class={isSilent(one) ? "amber-text" : "dim"}>{one.stopped ? t("stopped") : t("seen")} <Time ms={one.seen_at_ms} /></span></span>)}
      {found.length > WORKERS && <span class="dim"> · {t("{n} more", { n: exact(found.length - WORKERS) })}</span>}
    </p>
  );
}

export function PauseDialog({ name, close, done }: { name: string; close: () => void; done: () => void }) {
  const { ns } = useSession();
  const [text, setText] = useState("");
  const ms = text ? parseDuration(text) : undefined;
  const submit = async (): Promise<void> => {
    await call("POST", `${topicPath(name)}/pause`, { ns, body: ms === undefined ? {} : { until_ms: Math.round(now() + ms) } });
    toast(t("Paused"));
    done();
    close();
  };
  return (
    <Dialog title={t("Pause {topic}", { topic: name })} close={close} submit={submit} action={t("Pause")} disabled={text !== "" && ms === undefined}>
      <p>{t("A paused topic accepts jobs, but delivers none. Current leases stay valid.")}</p>
      <Field label={t("For how long")} hint={t("Such as 30m, 8h. Empty: until you resume it")}><input autoFocus value={text} onInput={(event) => setText(event.currentTarget.value)} /></Field>
    </Dialog>
  );
}

function DeleteDialog({ name, close }: { name: string; close: () => void }) {
  const { ns, topics } = useSession();
  const submit = async (): Promise<void> => {
    await call("DELETE", topicPath(name), { ns });
    toast(t("Deleted"));
    topics.reload();
    close();
    go(href(["topics"]));
  };
  return (
    <Dialog title={t("Delete {topic}", { topic: name })} close={close} submit={submit} action={t("Delete")} danger>
      <p>{t("This removes the topic with its policy, its push target and the records of done and cancelled jobs. It is refused while the topic has live or dead jobs.")}</p>
    </Dialog>
  );
}
