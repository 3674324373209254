import { useState } from "preact/hooks";
import { call, type Topic, type TopicPage, topicPath } from "../api";
import { exact, middle, rate, span } from "../format";
import { t } from "../i18n";
import { Icon, StateMark } from "../icons";
import { Row } from "../keys";
import { Dialog, Empty, Loaded, Num, Page, Panel, Time, act } from "../parts";
import { usePins } from "../pins";
import { go, href, useRoute } from "../route";
import { MOST_TOPICS, isBehind, isDeserted, useCan, useSession } from "../session";
import { SendButton, SendDialog } from "./send";
import { PauseDialog } from "./topic";

type Column = "topic" | "scheduled" | "ready" | "oldest" | "leased" | "done" | "dead" | "late" | "consumers" | "next";

const VALUES: Record<Column, (topic: Topic) => number | string> = {
  topic: (one) => one.topic,
  scheduled: (one) => -one.counts.scheduled,
  ready: (one) => -one.counts.ready,
  oldest: (one) => one.oldest_ready_at_ms ?? Infinity,
  leased: (one) => -one.counts.leased,
  done: (one) => -(one.done_per_s ?? -1),
  dead: (one) => -one.counts.dead,
  late: (one) => -(one.late_p99_ms ?? -1),
  consumers: (one) => -one.waiters,
  next: (one) => one.next_due_at_ms ?? Infinity,
};

export function TopicState({ topic }: { topic: Topic }) {
  if (topic.paused) return <StateMark kind="idle" word={t("paused")} />;
  if (isDeserted(topic)) return <StateMark kind={isBehind(topic) ? "bad" : "warn"} word={t("nobody consumes")} />;
  if (isBehind(topic)) return <StateMark kind="warn" word={t("is behind")} />;
  if (topic.push) return <StateMark kind="ok" word={t("push")} />;
  if (topic.waiters || topic.counts.leased) return <StateMark kind="ok" word={t("consumed")} />;
  return <StateMark kind="idle" word={t("idle")} />;
}

/** Pinned topics stand first, each part in the chosen order. */
function ordered(topics: Topic[], by: Column, find: string, pinned: Set<string>): Topic[] {
  const wanted = find.toLowerCase();
  const value = VALUES[by];
  return topics
    .filter((one) => one.topic.toLowerCase().includes(wanted))
    .sort((a, b) => {
      if (pinned.has(a.topic) !== pinned.has(b.topic)) return pinned.has(a.topic) ? -1 : 1;
      const [left, right] = [value(a), value(b)];
      return left < right ? -1 : left > right ? 1 : a.topic < b.topic ? -1 : 1;
    });
}

function sentence(topics: Topic[], more: boolean): string {
  if (!topics.length) return t("There are no topics yet.");
  const [deserted, paused] = [topics.filter(isDeserted).length, topics.filter((one) => one.paused).length];
  const first = more ? t("The first {n} topics by name; there are more", { n: exact(topics.length) }) : t("{n} topics", { n: exact(topics.length) });
  const second = deserted ? t("; {n} topics have ready jobs and nobody consumes them", { n: exact(deserted) }) : t("; every one with ready jobs is being consumed");
  return `${first}${second}${paused ? t("; {n} paused", { n: exact(paused) }) : ""}${t(".")}`;
}

export function Topics() {
  const { topics: live, ns, info } = useSession();
  const { query } = useRoute();
  const by = (query.get("sort") ?? "topic") as Column;
  const find = query.get("find") ?? "";
  const { pinned, flip } = usePins(ns);
  const [more, setMore] = useState<TopicPage>({ topics: [], next_cursor: null });
  const cursor = more.topics.length ? more.next_cursor : (live.data?.next_cursor ?? null);
  const load = (): Promise<void> =>
    act(async () => {
      const page = await call<TopicPage>("GET", "/v1/topics", { ns, query: { limit: MOST_TOPICS, cursor } });
      setMore({ topics: [...more.topics, ...page.topics], next_cursor: page.next_cursor });
    }, t("Loaded"));
  const set = (values: Record<string, string>): void => go(href(["topics"], { sort: by === "topic" ? "" : by, find, ...values }), true);
  const only = info.access.topics.filter((name) => !/[*?[]/.test(name));
  return (
    <Page title={t("Topics")} lead={live.data && sentence([...live.data.topics, ...more.topics], cursor !== null)} actions={<SendButton />}>
      {live.error?.code === "forbidden" && only.length > 0 && (
        <Panel title={t("Topics of your token")}><div class="list">{only.map((name) => <a class="item" href={href(["topics", name])} key={name}>{name}</a>)}</div></Panel>
      )}
      <Loaded live={live} lines={10}>
        {(page) => {
          const shown = ordered([...page.topics, ...more.topics], by, find, pinned);
          return (
            <Panel label={t("Topics")} title={<input type="search" aria-label={t("Filter by name")} placeholder={t("Filter by name")} value={find} onInput={(event) => set({ find: event.currentTarget.value })} />} tools={cursor && <button onClick={() => void load()}>{t("Load more")}</button>}>
              {shown.length === 0 ? <Empty title={find ? t("No topic has this in its name.") : t("There are no topics yet.")} {...(find ? {} : { command: `dueline send emails '{"to": "ann"}' --in 1s` })} /> : <TopicTable topics={shown} by={by} sort={(sort) => set({ sort })} pinned={pinned} pin={flip} />}
            </Panel>
          );
        }}
      </Loaded>
      <Namespaces />
    </Page>
  );
}

/** Other protocols keep their jobs in namespaces of their own names. */
function Namespaces() {
  const { ns, namespaces, info } = useSession();
  if (namespaces.length < 2) return null;
  return (
    <Panel title={t("Namespaces")}>
      <div class="list">
        {namespaces.map((name) => <a class="item" key={name} href={href(["topics"], {}, name)} aria-current={name === ns ? "true" : undefined}><span><strong>{name}</strong> <span class="dim">{[name === ns && t("shown now"), name in info.dialects && t("jobs of the protocol {name}", { name })].filter(Boolean).join(" · ")}</span></span></a>)}
      </div>
    </Panel>
  );
}

/** What can be done with a topic, without leaving the list. */
function RowMenu({ topic }: { topic: Topic }) {
  const { ns, topics } = useSession();
  const can = useCan();
  const [open, setOpen] = useState<"menu" | "pause" | "send" | null>(null);
  const close = (): void => setOpen(null);
  const name = topic.topic;
  if (!can("manage") && !can("send")) return null;
  const resume = (): Promise<void> => (close(), act(() => call("POST", `${topicPath(name)}/resume`, { ns }), t("Resumed"), topics.reload));
  return (
    <>
      <button class="quiet" aria-label={t("Actions on {topic}", { topic: name })} onClick={() => setOpen("menu")}><Icon name="more" /></button>
      {open === "menu" && (
        <Dialog title={middle(name, 60)} close={close}>
          <div class="list">
            {can("manage") && (topic.paused ? <button type="button" class="item" onClick={() => void resume()}><Icon name="play" />{t("Resume")}</button> : <button type="button" class="item" onClick={() => setOpen("pause")}><Icon name="pause" />{t("Pause")}</button>)}
            {can("send") && <button type="button" class="item" onClick={() => setOpen("send")}><Icon name="plus" />{t("Send a job")}</button>}
            <a class="item" href={href(["topics", name, "policy"])}><Icon name="access" />{t("Policy")}</a>
            <a class="item" href={href(["topics", name, "dead"])}><Icon name="dead" />{t("Dead letters")}</a>
          </div>
        </Dialog>
      )}
      {open === "pause" && <PauseDialog name={name} close={close} done={topics.reload} />}
      {open === "send" && <SendDialog topic={name} close={close} />}
    </>
  );
}

const FIVE = "In the last five full minutes, on all servers";
const Unknown = () => <span class="zero" title={t("not known, or nothing was delivered")}>–</span>;

/** Jobs that were acked, in a second. */
export const Rate = ({ topic }: { topic: Topic }) => topic.done_per_s === null ? <Unknown /> : <span class={topic.done_per_s ? undefined : "zero"} title={t(FIVE)}>{rate(topic.done_per_s)}</span>;

/** How late 99 of 100 deliveries were at most. */
export const Late = ({ topic, brief = false }: { topic: Topic; brief?: boolean }) => topic.late_p99_ms === null ? <Unknown /> : <span title={t(FIVE)}>{span(topic.late_p99_ms, brief)}</span>;

type TableProps = { topics: Topic[]; by: Column; sort: (column: Column) => void; pinned: Set<string>; pin: (topic: string) => void };

function TopicTable({ topics, by, sort, pinned, pin }: TableProps) {
  const head = (column: Column, name: string, num = true) => (
    <th class={num ? "num" : undefined} aria-sort={by === column ? (column === "topic" || column === "next" || column === "oldest" ? "ascending" : "descending") : undefined}>
      <button onClick={() => sort(column)}>{name}{by === column ? " ↓" : ""}</button>
    </th>
  );
  return (
    <div class="wrap">
      <table class="cards dense">
        <thead>
          <tr>{head("topic", t("Topic"), false)}<th>{t("State")}</th>{head("scheduled", t("scheduled"))}{head("ready", t("ready"))}{head("oldest", t("Oldest ready"), false)}{head("leased", t("leased"))}{head("done", t("done/s"))}{head("dead", t("dead"))}{head("late", t("Late p99"))}{head("consumers", t("Consumers"))}{head("next", t("Next due"), false)}<th><span class="sr">{t("Actions")}</span></th></tr>
        </thead>
        <tbody>
          {topics.slice(0, 1000).map((one) => (
            <Row key={one.topic} link={href(["topics", one.topic])}>
              <td class="whole">
                <span class="row tight">
                  <button class={pinned.has(one.topic) ? "pin on" : "pin"} aria-pressed={pinned.has(one.topic)} aria-label={t("Pin {topic}", { topic: one.topic })} onClick={() => pin(one.topic)}><Icon name="pin" /></button>
                  <a href={href(["topics", one.topic])} class="ell name" title={one.topic}>{one.topic}</a>
                </span>
              </td>
              <td class="whole"><TopicState topic={one} /></td>
              <td class="num" data-label={t("scheduled")}><Num n={one.counts.scheduled} /></td>
              <td class="num" data-label={t("ready")}><Num n={one.counts.ready} /></td>
              <td data-label={t("Oldest ready")}><Time ms={one.oldest_ready_at_ms} brief /></td>
              <td class="num" data-label={t("leased")}><Num n={one.counts.leased} /></td>
              <td class="num" data-label={t("done/s")}><Rate topic={one} /></td>
              <td class="num" data-label={t("dead")}><Num n={one.counts.dead} /></td>
              <td class="num" data-label={t("Late p99")}><Late topic={one} brief /></td>
              <td class="num" data-label={t("Consumers")}><Num n={one.waiters} /></td>
              <td data-label={t("Next due")}><Time ms={one.next_due_at_ms} brief /></td>
              <td class="menu"><RowMenu topic={one} /></td>
            </Row>
          ))}
        </tbody>
      </table>
    </div>
  );
}
