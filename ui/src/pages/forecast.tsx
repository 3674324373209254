// What falls due, in all topics or in one: counts between times, from one call that reads no jobs.
import { useState } from "preact/hooks";
import { ApiError, call, now, type Topic, topicPath } from "../api";
import { DueChart, type Layer, storms, sums } from "../charts";
import { exact, middle, relative, span } from "../format";
import { t } from "../i18n";
import { Icon } from "../icons";
import { type Live, useLive } from "../live";
import { Empty, Loaded, Num, Page, Panel } from "../parts";
import { go, href, useRoute } from "../route";
import { useCan, useSession } from "../session";
import { SpreadDialog } from "./spread";

type Range = { key: string; word: string; bars: number; stepMs: number };

const RANGES: Range[] = [
  { key: "minute", word: "Next minute", bars: 60, stepMs: 1000 },
  { key: "hour", word: "Next hour", bars: 60, stepMs: 60_000 },
  { key: "day", word: "Next 24 hours", bars: 48, stepMs: 1_800_000 },
  { key: "week", word: "Next 7 days", bars: 56, stepMs: 10_800_000 },
  { key: "month", word: "Next 30 days", bars: 60, stepMs: 43_200_000 },
];
const MOST_TOPICS = 8;
const LEAST_WINDOW_MS = 10_000;
const SUMMED_TOPICS = 5000; // of one answer

export type Forecasted = {
  at_ms: number; edges_ms: number[]; counts: number[]; retries: number[] | null; paused: number[] | null; later: number;
  topics?: { topic: string; counts: number[] }[]; topics_counted?: number; complete?: boolean;
};

/** The edges of the bars: now, and then full steps of the reader's clock. */
export function edgesOf(range: Range, fromMs = Math.ceil(now())): number[] {
  const shift = new Date(fromMs).getTimezoneOffset() * 60_000;
  const first = Math.floor((fromMs - shift) / range.stepMs) * range.stepMs + shift;
  return [fromMs, ...Array.from({ length: range.bars }, (_, at) => first + (at + 1) * range.stepMs)];
}

function windowEdges(fromMs: number, toMs: number): number[] {
  const stepMs = Math.max(1, Math.ceil((toMs - fromMs) / 60));
  const bars = Math.max(1, Math.ceil((toMs - fromMs) / stepMs));
  return Array.from({ length: bars + 1 }, (_, at) => fromMs + at * stepMs);
}

export async function forecast(ns: string, topic: string | null, edges: number[]): Promise<Forecasted> {
  const query = { edges_ms: edges.join(",") };
  if (topic === null) return call<Forecasted>("GET", "/v1/forecast", { ns, query });
  try {
    return await call<Forecasted>("GET", `${topicPath(topic)}/forecast`, { ns, query });
  } catch (error) {
    if (!(error instanceof ApiError && error.code === "no_route")) throw error;
  }
  // A server without that call counts by how soon jobs are due.
  const found = await call<Topic>("GET", topicPath(topic), { ns, query: { bands_ms: edges.slice(1).map((ms) => Math.max(1, Math.round(ms - now()))).join(",") } });
  const bands = found.bands ?? [];
  return { at_ms: now(), edges_ms: edges, counts: bands.slice(0, edges.length - 1), retries: null, paused: null, later: bands[edges.length - 1] ?? 0 };
}

/** The forecast in layers: the largest topics, all others, retries, paused topics. */
export function layersOf(found: Forecasted, topic: string | null): Layer[] {
  const top = topic !== null ? [] : (found.topics ?? []).slice(0, MOST_TOPICS);
  const layers: Layer[] = top.map((one, at) => ({ key: one.topic, kind: `k${at}`, counts: one.counts, topic: one.topic }));
  const rest = found.counts.map((count, at) => Math.max(0, count - top.reduce((sum, one) => sum + (one.counts[at] ?? 0), 0)));
  if (topic !== null) layers.push({ key: t("jobs"), kind: "k0", counts: rest });
  else if (rest.some(Boolean)) layers.push({ key: t("other topics"), kind: "k8", counts: rest });
  if (found.retries?.some(Boolean)) layers.push({ key: t("retries"), kind: "retry", counts: found.retries });
  if (found.paused?.some(Boolean)) layers.push({ key: t("paused topics"), kind: "paused", counts: found.paused });
  return layers;
}

type Window = { edges: () => number[]; key: string; range: Range; zoomed: boolean };

function useWindow(): Window {
  const { query } = useRoute();
  const range = RANGES.find((one) => one.key === query.get("range")) ?? RANGES[2]!;
  const [from, to] = [Number(query.get("from")), Number(query.get("to"))];
  if (from > 0 && to > from) return { edges: () => windowEdges(from, Math.max(to, from + LEAST_WINDOW_MS)), key: `${from} ${to}`, range, zoomed: true };
  return { edges: () => edgesOf(range), key: range.key, range, zoomed: false };
}

/** The chart with its ranges, for one topic or, with null, for all. */
export function Forecast({ topic, paused = false }: { topic: string | null; paused?: boolean }) {
  const { ns } = useSession();
  const place = topic === null ? ["forecast"] : ["topics", topic, "forecast"];
  const window = useWindow();
  const live = useLive(`forecast ${ns} ${topic ?? "*"} ${window.key}`, () => forecast(ns, topic, window.edges()), window.key === "minute" ? 2000 : 10_000, topic === null ? {} : { topic });
  const tools = (
    <>
      {window.zoomed && <button onClick={() => go(href(place, { range: window.range.key }))}>{t("Zoom out")}</button>}
      <div class="seg" role="group" aria-label={t("Range")}>{RANGES.map((one) => <button key={one.key} class={one === window.range && !window.zoomed ? "on" : ""} aria-pressed={one === window.range && !window.zoomed} onClick={() => go(href(place, { range: one.key }), true)}><span class="long">{t(one.word)}</span><span class="brief" title={t(one.word)}>{span(one.bars * one.stepMs)}</span></button>)}</div>
    </>
  );
  const zoom = (from: number, to: number): void => go(href(place, { range: window.range.key, from: Math.floor(from), to: Math.ceil(to) }));
  return <Panel title={t("Due times")} tools={tools}><div class="pad"><Loaded live={live}>{(found) => <Chart found={found} topic={topic} paused={paused} zoom={zoom} reload={live.reload} />}</Loaded></div></Panel>;
}

export const jobsBetween = (topic: string | null, from: number, to: number): string => href(topic === null ? ["jobs"] : ["topics", topic], { state: "scheduled", after: Math.floor(from), before: Math.ceil(to) });

type ChartProps = { found: Forecasted; topic: string | null; paused: boolean; zoom: (from: number, to: number) => void; reload: () => void };

function Chart({ found, topic, paused, zoom, reload }: ChartProps) {
  const can = useCan();
  const [spread, setSpread] = useState(false);
  const edges = found.edges_ms;
  const layers = layersOf(found, topic);
  const totals = sums(layers, edges.length - 1);
  const total = totals.reduce((sum, one) => sum + one, 0);
  const counted = topic === null ? ` ${t("Counted {time} over {n} topics.", { time: relative(found.at_ms), n: exact(found.topics_counted ?? 0) })}${found.complete !== false ? "" : (found.topics_counted ?? 0) < SUMMED_TOPICS ? ` ${t("The rest is being counted.")}` : ` ${t("There are more topics.")}`}` : "";
  return (
    <>
      <p class="lead">
        {t("{n} jobs fall due in this range; {later} later.", { n: exact(total), later: exact(found.later) })} {paused && t("The topic is paused: they will wait.")} {found.retries === null && t("Retry waits are included.")}{counted}
      </p>
      {storms(totals).some(Boolean) && <div class="alert amber"><Icon name="warn" /><div>{t("A due storm: a bar has more than ten times the usual number of jobs. Spread such jobs with spread_ms of the policy.")}</div></div>}
      {total === 0 ? <Empty title={t("Nothing falls due in this range.")} /> : <DueChart edges={edges} layers={layers} open={(from, to) => go(jobsBetween(topic, from, to))} zoom={zoom} />}
      {total > 0 && (topic === null || layers.length > 1) && <Legend layers={layers} />}
      {total > 0 && <p class="row small" style={{ marginTop: "12px" }}><a href={jobsBetween(topic, edges[0]!, edges.at(-1)!)}>{t("List these jobs")}</a>{topic !== null && can("manage") && <button onClick={() => setSpread(true)}>{t("Spread these…")}</button>}</p>}
      {spread && topic !== null && <SpreadDialog topic={topic} fromMs={edges[0]!} toMs={edges.at(-1)!} close={() => setSpread(false)} done={reload} />}
    </>
  );
}

export function Legend({ layers }: { layers: Layer[] }) {
  return (
    <div class="legend">
      {layers.map((one) => {
        const n = one.counts.reduce((sum, count) => sum + count, 0);
        const inner = <><svg viewBox="0 0 12 12" class="key" aria-hidden="true"><rect class={`b ${one.kind}`} x="1" y="1" width="10" height="10" rx="2" /></svg>{middle(one.key, 40)} <strong><Num n={n} /></strong></>;
        return one.topic !== undefined ? <a key={one.key} title={one.topic} href={href(["topics", one.topic, "forecast"])}>{inner}</a> : <span key={one.key}>{inner}</span>;
      })}
    </div>
  );
}

export function ForecastPage() {
  const { topics } = useSession();
  const next = (topics.data?.topics ?? []).map((one) => one.next_due_at_ms).filter((ms) => ms !== null).sort((a, b) => a - b)[0];
  return <Page title={t("Forecast")} lead={topics.data && (next ? t("The next job is due {time}.", { time: relative(next) }) : t("No job is scheduled."))}><Forecast topic={null} /></Page>;
}

/** The next 24 hours on the overview. */
export function NextDay({ live }: { live: Live<Forecasted> }) {
  return (
    <Panel title={t("Falls due in the next 24 hours")} tools={<a href={href(["forecast"])}>{t("Forecast")}</a>}>
      <div class="pad">
        <Loaded live={live}>
          {(found) => {
            const layers = layersOf(found, null);
            const total = sums(layers, found.counts.length).reduce((sum, one) => sum + one, 0);
            if (!total) return <Empty title={t("Nothing falls due in this range.")}>{found.later ? t("{n} jobs fall due later.", { n: exact(found.later) }) : null}</Empty>;
            return <><p class="lead">{t("{n} jobs", { n: exact(total) })}{t("; {later} later. Counted {time}.", { later: exact(found.later), time: relative(Math.min(found.at_ms, now())) })}</p><DueChart edges={found.edges_ms} layers={layers} high={170} open={(from, to) => go(jobsBetween(null, from, to))} /><Legend layers={layers} /></>;
          }}
        </Loaded>
      </div>
    </Panel>
  );
}

export const useNextDay = (ns: string): Live<Forecasted> => useLive(`next day ${ns}`, () => forecast(ns, null, edgesOf(RANGES[2]!)), 15_000);
