import type { ComponentChildren } from "preact";
import { call, type Charts, type Push, type Readiness, type State, type Topic, topicPath } from "../api";
import { type Series, Spark, thinned } from "../charts";
import { exact, rate, short, span } from "../format";
import { t } from "../i18n";
import { Icon, StateMark } from "../icons";
import { Row } from "../keys";
import { missing, useLive } from "../live";
import { Empty, JobState, Loaded, Num, Page, Panel, Time, WORDS } from "../parts";
import { href } from "../route";
import { useHas, useSession } from "../session";
import { type Notice, notices, refusal, sentence, type Target } from "./attention";
import { NextDay, useNextDay } from "./forecast";
import { SendButton } from "./send";
import { LEVELS } from "./store";

const STATES: State[] = ["scheduled", "ready", "leased", "dead"];
const TARGETS = 20; // push targets whose state is read

const total = (topics: Topic[], of: (topic: Topic) => number): number => topics.reduce((all, one) => all + of(one), 0);
const known = (values: Series | undefined): number[] => (values ?? []).filter((one) => one !== null);
const sum = (values: Series | undefined): number => known(values).reduce((all, one) => all + one, 0);

/** The targets of the first topics that have one, to say which are failing. */
function useTargets(topics: Topic[]): Target[] {
  const { ns } = useSession();
  const has = useHas();
  const names = has("push") ? topics.filter((one) => one.push).slice(0, TARGETS).map((one) => one.topic) : [];
  const load = (): Promise<Target[]> => Promise.all(names.map(async (topic) => {
    const push = await call<Push>("GET", `${topicPath(topic)}/push`, { ns });
    return { topic, state: push.state, error: push.last_error };
  }));
  return useLive(`failing ${ns} ${names.join(" ")}`, load, 15_000, { never: true }).data ?? [];
}

export function Overview() {
  const { topics: live, ns } = useSession();
  const ready = useLive("ready", () => call<Readiness>("GET", "/readyz"), 5000, { never: true });
  const charts = useLive(`charts ${ns}`, () => call<Charts>("GET", "/v1/charts", { ns, query: { hours: 24 } }), 10_000, { never: true });
  const next = useNextDay(ns);
  const list = live.data?.topics ?? [];
  const targets = useTargets(list);
  const died = charts.data ? sum(charts.data.series["dead"]) : null;
  return (
    <Page title={t("Overview")} lead={ready.data?.ready === false ? refusal(ready.data) : live.data && sentence(list, live.data.next_cursor !== null, died, targets)} actions={<SendButton />}>
      <Loaded live={live} lines={8}>
        {({ topics }) => {
          const busy = [...topics].sort((a, b) => b.counts.ready + b.counts.leased - a.counts.ready - a.counts.leased || b.counts.scheduled - a.counts.scheduled).slice(0, 8);
          return (
            <>
              <Tiles charts={charts.data} topics={topics} />
              <div class="cols">
                <div class="stack">
                  {missing(next) ? null : <NextDay live={next} />}
                  <Panel title={t("Busiest topics")} tools={<a href={href(["topics"])}>{t("All topics")}</a>}>
                    {busy.length === 0 ? <Empty title={t("There are no topics yet.")} command={`dueline send emails '{"to": "ann"}' --in 1s`}>{t("A topic appears with its first job.")}</Empty> : <BusyTable topics={busy} />}
                  </Panel>
                </div>
                <div class="stack">
                  <Attention found={notices(topics, ready.data, targets)} />
                  <ByState topics={topics} />
                  <Health ready={ready.data} />
                </div>
              </div>
            </>
          );
        }}
      </Loaded>
    </Page>
  );
}

type TileProps = { name: string; figure: ComponentChildren; note: ComponentChildren; values?: Series | undefined; kind?: string; link?: string };

function Tile({ name, figure, note, values, kind, link }: TileProps) {
  const inner = <><div class="name">{name}</div><div class={figure === "0" ? "figure zero" : "figure"}>{figure}</div><div class="note">{note}</div>{values && <Spark values={values} {...(kind ? { kind } : {})} />}</>;
  return link ? <a class="panel tile" href={link}>{inner}</a> : <div class="panel tile">{inner}</div>;
}

const POINTS = 96;
const mean = (some: number[]): number => some.reduce((all, one) => all + one, 0) / some.length;
const most = (some: number[]): number => Math.max(...some);
const line = (values: Series | undefined, join: (some: number[]) => number = mean): Series | undefined => values && thinned(values, POINTS, join);

/** The last 24 hours in six figures. A rate is that of the last minute that is over. */
function Tiles({ charts, topics }: { charts: Charts | undefined; topics: Topic[] }) {
  const pending = total(topics, (one) => one.counts.scheduled + one.counts.ready + one.counts.leased);
  const dead = total(topics, (one) => one.counts.dead);
  const series = charts?.series ?? {};
  const seconds = (charts?.step_ms ?? 60_000) / 1000;
  const perS = (name: string): string => rate((known(series[name]).at(-1) ?? 0) / seconds);
  const day = (name: string): string => t("{n} in 24 h", { n: short(sum(series[name])) });
  const late = (name: string): number | undefined => known(series[name]).at(-1);
  const [p50, p99] = [late("late_p50_ms"), late("late_p99_ms")];
  return (
    <div class="tiles six">
      <Tile name={t("Sends/s")} figure={charts ? perS("sends") : "–"} note={charts ? day("sends") : ""} values={line(series["sends"])} />
      <Tile name={t("Deliveries/s")} figure={charts ? perS("deliveries") : "–"} note={charts && <span title={t("{n} done in 24 h", { n: exact(sum(series["acks"])) })}>{perS("acks")} {t("done/s")}</span>} values={line(series["deliveries"])} />
      <Tile name={t("Failures/s")} figure={charts ? perS("failures") : "–"} note={charts ? day("failures") : ""} values={line(series["failures"])} kind="warn" />
      <Tile name={t("Lateness p99")} figure={p99 === undefined ? "–" : span(p99)} note={p50 === undefined ? "" : t("p50 {span}", { span: span(p50) })} values={line(series["late_p99_ms"], most)} />
      <Tile name={t("Unfinished jobs")} figure={<Num n={pending} />} note={t("{n} topics", { n: exact(topics.length) })} values={line(series["pending"])} link={href(["jobs"])} />
      <Tile name={t("Dead letters")} figure={<Num n={dead} />} note={charts ? day("dead") : t("can be revived")} values={line(series["dead"])} kind="bad" link={href(["dead"])} />
    </div>
  );
}

function Attention({ found }: { found: Notice[] }) {
  return (
    <Panel title={t("Needs attention")}>
      {found.length === 0 ? <Empty title={t("All is well")}>{t("Nothing needs a person now.")}</Empty> : (
        <div class="list">
          {found.slice(0, 12).map((one) => <a class={`item ${one.level}`} href={one.link} key={one.text}><Icon name="warn" title={one.level === "red" ? t("urgent") : t("warning")} /><span>{one.text}</span></a>)}
          {found.length > 12 && <a class="item" href={href(["topics"])}><span>{t("{n} more", { n: found.length - 12 })}</span></a>}
        </div>
      )}
    </Panel>
  );
}

function ByState({ topics }: { topics: Topic[] }) {
  const counts = STATES.map((state) => [state, total(topics, (one) => one.counts[state])] as const);
  const all = counts.reduce((sum, [, n]) => sum + n, 0);
  return (
    <Panel title={t("Jobs by state")} tools={<span class="dim small">{t("{n} consumers", { n: exact(total(topics, (one) => one.waiters)) })} {t("waiting now")}</span>}>
      <div class="pad">
        <div class="bar" role="img" aria-label={counts.map(([state, n]) => `${t(WORDS[state])} ${exact(n)}`).join(", ")}>{counts.filter(([, n]) => n).map(([state, n]) => <span class={`s-${state}`} key={state} style={{ flexGrow: n / all }} />)}</div>
        <div class="legend">{counts.map(([state, n]) => <a key={state} href={state === "dead" ? href(["dead"]) : href(["jobs"], { state })}><JobState state={state} /> <strong><Num n={n} /></strong></a>)}</div>
      </div>
    </Panel>
  );
}

/** Whether the server takes jobs, what a success means, and which guards refuse calls. */
function Health({ ready }: { ready: Readiness | undefined }) {
  const { info } = useSession();
  const problems = ready ? [...(ready.reasons ?? []), ...(ready.warnings ?? [])] : [];
  const refused = info.limits_in_use.filter((one) => one.refused > 0);
  return (
    <Panel title={t("Store")} tools={ready && <StateMark kind={ready.ready ? (problems.length ? "warn" : "ok") : "bad"} word={ready.ready ? t("ready") : t("not ready")} />}>
      <div class="pad small">
        <p><strong>{info.durability}</strong> <span class="dim">{t(LEVELS[info.durability] ?? "")}</span></p>
        {refused.map((one) => <p key={`${one.limit} ${one.token_id}`} class="amber-text">{t("The limit {limit} refused {n} calls.", { limit: one.limit, n: exact(one.refused) })}</p>)}
        <p><a href={href(["store"])}>{t("Limits and protocols")}</a></p>
      </div>
    </Panel>
  );
}

function BusyTable({ topics }: { topics: Topic[] }) {
  return (
    <div class="wrap">
      <table class="cards">
        <thead><tr><th>{t("Topic")}</th><th class="num">{t("ready")}</th><th class="num">{t("leased")}</th><th class="num">{t("scheduled")}</th><th>{t("Next due")}</th></tr></thead>
        <tbody>
          {topics.map((one) => (
            <Row key={one.topic} link={href(["topics", one.topic])}>
              <td class="whole"><a href={href(["topics", one.topic])} class="ell" title={one.topic}>{one.topic}</a></td>
              <td class="num" data-label={t("ready")}><Num n={one.counts.ready} /></td>
              <td class="num" data-label={t("leased")}><Num n={one.counts.leased} /></td>
              <td class="num" data-label={t("scheduled")}><Num n={one.counts.scheduled} /></td>
              <td data-label={t("Next due")}><Time ms={one.next_due_at_ms} /></td>
            </Row>
          ))}
        </tbody>
      </table>
    </div>
  );
}
