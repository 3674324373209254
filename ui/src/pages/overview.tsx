import { call, now, type Readiness, type Topic } from "../api";
import { exact, span } from "../format";
import { t } from "../i18n";
import { Icon, StateMark } from "../icons";
import { useLive } from "../live";
import { Empty, Loaded, Num, Page, Panel, Time } from "../parts";
import { href } from "../route";
import { isDeserted, useSession } from "../session";
import { SendButton } from "./send";

type Notice = { level: "red" | "amber"; text: string; link: string };
const OLD_MS = 60_000;

export function notices(topics: Topic[], ready: Readiness | undefined): Notice[] {
  const found: Notice[] = [];
  for (const one of ready?.reasons ?? []) found.push({ level: "red", text: one.message, link: href(["store"]) });
  for (const one of ready?.warnings ?? []) found.push({ level: "amber", text: one.message, link: href(["store"]) });
  for (const one of topics) {
    const link = href(["topics", one.topic]);
    const late = one.oldest_ready_at_ms ? now() - one.oldest_ready_at_ms : 0;
    if (isDeserted(one)) found.push({ level: late > OLD_MS ? "red" : "amber", text: t("Nobody is consuming {topic}: {jobs} ready, the oldest for {span}", { topic: one.topic, jobs: exact(one.counts.ready), span: span(late) }), link });
    else if (!one.paused && late > OLD_MS) found.push({ level: "amber", text: t("{topic} is behind: {jobs} ready, the oldest for {span}", { topic: one.topic, jobs: exact(one.counts.ready), span: span(late) }), link });
    if (one.paused && one.counts.ready) found.push({ level: "amber", text: t("{topic} is paused with {jobs} ready", { topic: one.topic, jobs: exact(one.counts.ready) }), link });
    if (one.counts.dead) found.push({ level: "amber", text: t("{topic} has {n} dead letters", { topic: one.topic, n: exact(one.counts.dead) }), link: href(["topics", one.topic, "dead"]) });
  }
  return found.sort((a, b) => (a.level === b.level ? 0 : a.level === "red" ? -1 : 1));
}

const sum = (topics: Topic[], of: (topic: Topic) => number): number => topics.reduce((all, one) => all + of(one), 0);

function sentence(topics: Topic[], more: boolean): string {
  if (!topics.length) return t("There are no topics yet.");
  const deserted = topics.filter(isDeserted).length;
  const dead = sum(topics, (one) => one.counts.dead);
  const first = deserted ? t("{n} topics have ready jobs and nobody consumes them", { n: deserted }) : t("Every topic with ready jobs is being consumed");
  const second = dead ? t("{n} dead letters", { n: exact(dead) }) : t("no dead letters");
  return `${t("{first}; {second}.", { first, second })}${more ? ` ${t("These are the first {n} topics by name.", { n: topics.length })}` : ""}`;
}

function Tile({ name, n, note, link, kind }: { name: string; n: number; note?: preact.ComponentChildren; link?: string; kind?: string }) {
  const inner = (
    <>
      <div class="name">{kind ? <StateMark kind={kind} word={name} /> : name}</div>
      <div class="figure"><Num n={n} /></div>
      <div class="note">{note}</div>
    </>
  );
  return link ? <a class="panel tile" href={link}>{inner}</a> : <div class="panel tile">{inner}</div>;
}

export function Overview() {
  const { topics: live, ns } = useSession();
  const ready = useLive("ready", () => call<Readiness>("GET", "/readyz"), 5000);
  const list = live.data?.topics ?? [];
  return (
    <Page title={t("Overview")} lead={live.data && sentence(list, live.data.next_cursor !== null)} actions={<SendButton />}>
      <Loaded live={live} lines={8}>
        {({ topics }) => {
          const next = topics.map((one) => one.next_due_at_ms).filter((ms) => ms !== null).sort((a, b) => a - b)[0];
          const oldest = topics.map((one) => one.oldest_ready_at_ms).filter((ms) => ms !== null).sort((a, b) => a - b)[0];
          const found = notices(topics, ready.data);
          const busy = [...topics].sort((a, b) => b.counts.ready + b.counts.leased - a.counts.ready - a.counts.leased || b.counts.scheduled - a.counts.scheduled).slice(0, 8);
          return (
            <>
              <div class="tiles">
                <Tile name={t("scheduled")} kind="scheduled" n={sum(topics, (one) => one.counts.scheduled)} note={next ? <>{t("next")} <Time ms={next} /></> : ""} link={href(["topics"], { sort: "scheduled" })} />
                <Tile name={t("ready")} kind="ready" n={sum(topics, (one) => one.counts.ready)} note={oldest ? <>{t("oldest")} <Time ms={oldest} /></> : ""} link={href(["topics"], { sort: "ready" })} />
                <Tile name={t("leased")} kind="leased" n={sum(topics, (one) => one.counts.leased)} note={t("being worked on")} link={href(["topics"], { sort: "leased" })} />
                <Tile name={t("dead")} kind="dead" n={sum(topics, (one) => one.counts.dead)} note={t("can be revived")} link={href(["dead"])} />
                <Tile name={t("Topics")} n={topics.length} note={t("{n} topics are paused", { n: topics.filter((one) => one.paused).length })} link={href(["topics"])} />
                <Tile name={t("Consumers")} n={sum(topics, (one) => one.waiters)} note={t("waiting now")} />
              </div>
              <div class="cols">
                <Panel title={t("Busiest topics")} tools={<a href={href(["topics"])}>{t("All topics")}</a>}>
                  {busy.length === 0 ? <Empty title={t("There are no topics yet.")} command={`dueline send emails '{"to": "ann"}' --in 1s${ns === "default" ? "" : ` --namespace ${ns}`}`}>{t("A topic appears with its first job.")}</Empty> : <BusyTable topics={busy} />}
                </Panel>
                <Panel title={t("Needs attention")}>
                  {found.length === 0 ? <Empty title={t("All is well")}>{t("Nothing needs a person now.")}</Empty> : (
                    <div class="list">
                      {found.slice(0, 12).map((one) => <a class={`item ${one.level}`} href={one.link} key={one.text}><Icon name="warn" title={one.level === "red" ? t("urgent") : t("warning")} /><span>{one.text}</span></a>)}
                      {found.length > 12 && <a class="item" href={href(["topics"])}><span>{t("{n} more", { n: found.length - 12 })}</span></a>}
                    </div>
                  )}
                </Panel>
              </div>
            </>
          );
        }}
      </Loaded>
    </Page>
  );
}

function BusyTable({ topics }: { topics: Topic[] }) {
  return (
    <div class="wrap">
      <table class="cards">
        <thead><tr><th>{t("Topic")}</th><th class="num">{t("ready")}</th><th class="num">{t("leased")}</th><th class="num">{t("scheduled")}</th><th>{t("Next due")}</th></tr></thead>
        <tbody>
          {topics.map((one) => (
            <tr key={one.topic} data-link={href(["topics", one.topic])}>
              <td class="whole"><a href={href(["topics", one.topic])} class="ell" title={one.topic}>{one.topic}</a></td>
              <td class="num" data-label={t("ready")}><Num n={one.counts.ready} /></td>
              <td class="num" data-label={t("leased")}><Num n={one.counts.leased} /></td>
              <td class="num" data-label={t("scheduled")}><Num n={one.counts.scheduled} /></td>
              <td data-label={t("Next due")}><Time ms={one.next_due_at_ms} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
