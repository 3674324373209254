// What falls due, from one call that counts jobs between times. It reads no jobs.
import { call, now, type Topic, topicPath } from "../api";
import { clock, date, day, exact, short } from "../format";
import { t } from "../i18n";
import { Icon } from "../icons";
import { useLive } from "../live";
import { Empty, Loaded, Panel } from "../parts";
import { go, href, useRoute } from "../route";
import { useSession } from "../session";

type Range = { key: string; word: string; bars: number; stepMs: number };

const RANGES: Range[] = [
  { key: "minute", word: "Next minute", bars: 60, stepMs: 1000 },
  { key: "hour", word: "Next hour", bars: 60, stepMs: 60_000 },
  { key: "day", word: "Next 24 hours", bars: 48, stepMs: 1_800_000 },
  { key: "week", word: "Next 7 days", bars: 56, stepMs: 10_800_000 },
  { key: "month", word: "Next 30 days", bars: 60, stepMs: 43_200_000 },
];
const WIDTH = 960;
const HEIGHT = 220;
const BASE = 190;
const TOP = 18;
const STORM = 10; // times the median

type Counted = { fromMs: number; bands: number[] };

export function Forecast({ topic, paused }: { topic: string; paused: boolean }) {
  const { ns } = useSession();
  const { query } = useRoute();
  const range = RANGES.find((one) => one.key === query.get("range")) ?? RANGES[2]!;
  const bounds = Array.from({ length: range.bars }, (_, at) => (at + 1) * range.stepMs);
  const load = async (): Promise<Counted> => {
    const found = await call<Topic>("GET", topicPath(topic), { ns, query: { bands_ms: bounds.join(",") } });
    return { fromMs: now(), bands: found.bands ?? [] };
  };
  const live = useLive(`forecast ${ns} ${topic} ${range.key}`, load, range.key === "minute" ? 2000 : 10_000);
  return (
    <Panel title={t("Due times")} tools={<div class="seg" role="group" aria-label={t("Range")}>{RANGES.map((one) => <button key={one.key} class={one === range ? "on" : ""} aria-pressed={one === range} onClick={() => go(href(["topics", topic, "forecast"], { range: one.key }), true)}>{t(one.word)}</button>)}</div>}>
      <div class="pad">
        <Loaded live={live}>{(counted) => <Chart counted={counted} range={range} topic={topic} paused={paused} />}</Loaded>
      </div>
    </Panel>
  );
}

function median(values: number[]): number {
  const some = values.filter((one) => one > 0).sort((a, b) => a - b);
  return some.length ? some[Math.floor(some.length / 2)]! : 0;
}

function Chart({ counted, range, topic, paused }: { counted: Counted; range: Range; topic: string; paused: boolean }) {
  const bars = counted.bands.slice(0, range.bars);
  const later = counted.bands[range.bars] ?? 0;
  const most = Math.max(1, ...bars);
  const usual = median(bars);
  const total = bars.reduce((sum, one) => sum + one, 0);
  const width = WIDTH / range.bars;
  const label = (ms: number): string => (range.stepMs >= 10_800_000 ? day(ms) : clock(ms, range.stepMs < 60_000));
  const storms = bars.filter((one) => usual > 0 && one > STORM * usual).length;
  return (
    <>
      <p class="lead">
        {t("{n} jobs", { n: exact(total) })} {t("fall due in this range; {later} later.", { later: exact(later) })} {paused && t("The topic is paused: they will wait.")} {t("Retry waits are included.")}
      </p>
      {storms > 0 && <div class="alert amber"><Icon name="warn" /><div>{t("A due storm: a bar has more than ten times the usual number of jobs. Spread such jobs with spread_ms of the policy.")}</div></div>}
      {total === 0 ? <Empty title={t("Nothing falls due in this range.")} /> : (
        <svg class="chart" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="group" aria-label={t("Due times")}>
          <text x="0" y="11">{short(most)}</text>
          <line x1="0" x2={WIDTH} y1={TOP} y2={TOP} stroke-dasharray="2 4" />
          <line x1="0" x2={WIDTH} y1={BASE} y2={BASE} />
          {bars.map((count, at) => {
            const from = counted.fromMs + at * range.stepMs;
            const to = from + range.stepMs;
            const height = count ? Math.max(2, (count / most) * (BASE - TOP)) : 0;
            const told = `${date(from)} – ${clock(to, range.stepMs < 60_000)}: ${t("{n} jobs", { n: exact(count) })}`;
            const open = (): void => go(href(["topics", topic], { state: "scheduled", after: Math.floor(from), before: Math.ceil(to) }));
            return (
              <g key={at} tabIndex={count ? 0 : -1} role={count ? "link" : undefined} aria-label={count ? told : undefined} onClick={count ? open : undefined} onKeyDown={(event) => count && event.key === "Enter" && open()}>
                <title>{told}</title>
                <rect class="hit" x={at * width} y={TOP} width={width} height={BASE - TOP} />
                <rect class={usual > 0 && count > STORM * usual ? "b storm" : "b"} x={at * width + 1} y={BASE - height} width={Math.max(1, width - 2)} height={height} rx="1.5" />
              </g>
            );
          })}
          {[0, 0.25, 0.5, 0.75].map((share) => <text key={share} x={share * WIDTH} y={BASE + 18}>{share === 0 ? t("now") : label(counted.fromMs + share * range.bars * range.stepMs)}</text>)}
          <text x={WIDTH} y={BASE + 18} text-anchor="end">{label(counted.fromMs + range.bars * range.stepMs)}</text>
        </svg>
      )}
    </>
  );
}
