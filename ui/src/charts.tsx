// Drawings made of numbers: a line of 24 hours, calls as dots, and what falls due as bars. No library: each is a few
// shapes, drawn for the width that the page has.
import { useEffect, useRef, useState } from "preact/hooks";
import { clock, date, day, exact, short, span } from "./format";
import { t } from "./i18n";

/** The width of an element in pixels, also after it changed. */
export function useWidth(first = 800): [preact.RefObject<HTMLDivElement | null>, number] {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(first);
  useEffect(() => {
    const seen = new ResizeObserver(([entry]) => entry && setWidth(Math.max(200, Math.round(entry.contentRect.width))));
    if (box.current) seen.observe(box.current);
    return () => seen.disconnect();
  }, []);
  return [box, width];
}

export type Series = (number | null)[];

/** Fewer values: several neighbours become one, by `join`. */
export function thinned(values: Series, most: number, join: (some: number[]) => number): Series {
  const size = Math.ceil(values.length / most);
  return Array.from({ length: Math.ceil(values.length / size) }, (_, at) => {
    const some = values.slice(at * size, (at + 1) * size).filter((one) => one !== null);
    return some.length ? join(some) : null;
  });
}

/** A line without axes. Where a number is not known, it is interrupted. */
export function Spark({ values, kind = "" }: { values: Series; kind?: string }) {
  const known = values.filter((one) => one !== null);
  const most = Math.max(0, ...known);
  const x = (at: number): number => (at / Math.max(1, values.length - 1)) * 100;
  const y = (value: number): number => 23 - (value / most) * 20;
  const runs: string[][] = [[]];
  values.forEach((value, at) => (value === null ? runs.push([]) : runs.at(-1)!.push(`${x(at).toFixed(1)},${y(value).toFixed(1)}`)));
  return (
    <svg class={`spark ${kind}`} viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true">
      <line class="zero-line" x1="0" x2="100" y1="23" y2="23" />
      {most > 0 && runs.filter((run) => run.length > 1).map((run, at) => <g key={at}><polygon points={`${run[0]!.split(",")[0]},24 ${run.join(" ")} ${run.at(-1)!.split(",")[0]},24`} /><polyline points={run.join(" ")} /></g>)}
    </svg>
  );
}

/** Little bars, for counts of a few hours or days. */
export function MiniBars({ values, label }: { values: number[]; label: string }) {
  const most = Math.max(1, ...values);
  const width = 100 / values.length;
  return (
    <svg class="mini" viewBox="0 0 100 20" preserveAspectRatio="none" role="img" aria-label={label}>
      <title>{label}</title>
      {values.map((value, at) => <rect key={at} x={at * width} width={Math.max(0.5, width - 0.8)} y={value ? 20 - Math.max(2, (value / most) * 20) : 19.5} height={value ? Math.max(2, (value / most) * 20) : 0.5} />)}
    </svg>
  );
}

// --- calls as dots

export type Dot = { atMs: number; durationMs: number; ok: boolean; told: string };
const DOTS_HIGH = 190;
const GUTTER = 48;

/** Each call at its time and with its duration; a cross failed. The scale of durations is logarithmic. */
export function DotPlot({ dots, label }: { dots: Dot[]; label: string }) {
  const [box, width] = useWidth();
  const times = dots.map((one) => one.atMs);
  const [from, to] = [Math.min(...times), Math.max(...times)];
  const most = 10 ** Math.ceil(Math.log10(Math.max(10, ...dots.map((one) => one.durationMs))));
  const x = (ms: number): number => (to === from ? width / 2 : GUTTER + ((ms - from) / (to - from)) * (width - GUTTER - 8));
  const y = (ms: number): number => 168 - (Math.log10(Math.max(1, ms)) / Math.log10(most)) * 148;
  const lines = [1, 10, 100, 1000, 10_000, 100_000].filter((ms) => ms <= most);
  return (
    <div ref={box}>
      <svg class="chart dots" width={width} height={DOTS_HIGH} viewBox={`0 0 ${width} ${DOTS_HIGH}`} role="img" aria-label={label}>
        {lines.map((ms) => <g key={ms}><line x1={GUTTER - 4} x2={width} y1={y(ms)} y2={y(ms)} stroke-dasharray="2 4" /><text x={GUTTER - 8} y={y(ms) + 4} text-anchor="end">{span(ms)}</text></g>)}
        {dots.map((one, at) => one.ok ? <circle key={at} class="ok" cx={x(one.atMs)} cy={y(one.durationMs)} r="3"><title>{one.told}</title></circle> : <path key={at} class="bad" d={`M${x(one.atMs) - 4} ${y(one.durationMs) - 4}l8 8m0-8l-8 8`}><title>{one.told}</title></path>)}
        <text x={GUTTER} y={DOTS_HIGH - 2}>{clock(from, to - from < 600_000)}</text>
        <text x={width} y={DOTS_HIGH - 2} text-anchor="end">{to - from < 60_000 ? t("{span} later", { span: span(to - from) }) : clock(to, to - from < 600_000)}</text>
      </svg>
    </div>
  );
}

// --- due times as bars

/** One kind of jobs in every bar, of one topic or of several. `kind`: k0 to k8 are topics, `retry` is hatched, `paused` an outline. */
export type Layer = { key: string; kind: string; counts: number[]; topic?: string };
type DueProps = { edges: number[]; layers: Layer[]; open: (from: number, to: number) => void; zoom?: (from: number, to: number) => void; high?: number };

const STORM = 10; // times the usual number
const TOP = 24; // the largest number stands above the marks of storms
const FOOT = 22;
const HALF_LABEL = 26; // of the time of a tick

function median(values: number[]): number {
  const some = values.filter((one) => one > 0).sort((a, b) => a - b);
  return some.length ? some[Math.floor(some.length / 2)]! : 0;
}

export const sums = (layers: Layer[], bars: number): number[] => Array.from({ length: bars }, (_, at) => layers.reduce((all, one) => all + (one.counts[at] ?? 0), 0));

/** The bars with far more jobs than the others. */
export function storms(totals: number[]): boolean[] {
  const usual = median(totals);
  return totals.map((one) => usual > 0 && one > STORM * usual);
}

const DAY_MS = 86_400_000;
const STEPS_MS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600, 43_200, 86_400, 172_800, 432_000, 864_000].map((seconds) => seconds * 1000);

/** Round times of the reader's clock between two times, at most so many. */
export function ticks(from: number, to: number, most: number): { stepMs: number; times: number[] } {
  const stepMs = STEPS_MS.find((one) => (to - from) / one <= most) ?? STEPS_MS.at(-1)!;
  const begin = new Date(from);
  const midnight = new Date(begin.getFullYear(), begin.getMonth(), begin.getDate());
  // Days are counted by the calendar, because not every day has 24 hours.
  const time = (at: number): number => (stepMs < DAY_MS ? midnight.getTime() + at * stepMs : new Date(midnight.getFullYear(), midnight.getMonth(), midnight.getDate() + at * (stepMs / DAY_MS)).getTime());
  const times: number[] = [];
  for (let at = 0; time(at) <= to; at++) if (time(at) >= from) times.push(time(at));
  return { stepMs, times };
}

/** Stacked bars between times. A click opens a bar; a drag over several zooms into them. One bar can be reached with the
 * Tab key; from there the arrows go to the others, and with Shift they choose a range. */
export function DueChart({ edges, layers, open, zoom, high = 240 }: DueProps) {
  const [box, width] = useWidth();
  const [at, setAt] = useState<number>();
  const [drag, setDrag] = useState<{ first: number; last: number }>();
  const bars = edges.length - 1;
  const totals = sums(layers, bars);
  const stormy = storms(totals);
  const most = Math.max(1, ...totals);
  const base = high - FOOT;
  const step = width / bars;
  const stepMs = edges[bars]! - edges[bars - 1]!;
  const barAt = (event: PointerEvent): number => {
    const left = (event.currentTarget as SVGElement).getBoundingClientRect().left;
    return Math.max(0, Math.min(bars - 1, Math.floor((event.clientX - left) / step)));
  };
  const told = (index: number): string => `${date(edges[index]!, stepMs < 60_000)} – ${clock(edges[index + 1]!, stepMs < 60_000)}: ${t("{n} jobs", { n: exact(totals[index] ?? 0) })}`;
  const chosen = drag && [Math.min(drag.first, drag.last), Math.max(drag.first, drag.last)];
  const opened = (index: number): void => {
    if (chosen && chosen[0] !== chosen[1] && zoom) zoom(edges[chosen[0]!]!, edges[chosen[1]! + 1]!);
    else if (totals[index]) open(edges[index]!, edges[index + 1]!);
    setDrag(undefined);
  };
  const full = totals.flatMap((total, index) => (total ? [index] : []));
  const stop = at !== undefined && totals[at] ? at : full[0];
  const pressed = (event: KeyboardEvent, index: number): void => {
    if (event.key === "Enter") return opened(index);
    if (event.key === "Escape") return setDrag(undefined);
    const place = full.indexOf(index);
    const to = ({ ArrowLeft: full[place - 1], ArrowRight: full[place + 1], Home: full[0], End: full.at(-1) } as Record<string, number | undefined>)[event.key];
    if (to === undefined) return;
    event.preventDefault();
    setDrag(event.shiftKey && zoom ? { first: drag?.first ?? index, last: to } : undefined);
    (event.currentTarget as Element).parentElement?.querySelector<SVGElement>(`[data-bar="${to}"]`)?.focus();
  };
  const round = ticks(edges[0]!, edges[bars]!, Math.max(2, Math.min(8, Math.floor(width / 80))));
  const placeOf = (ms: number): number => {
    const bar = Math.max(0, edges.findLastIndex((one, index) => one <= ms && index < bars));
    return (bar + (ms - edges[bar]!) / (edges[bar + 1]! - edges[bar]!)) * step;
  };
  const label = (ms: number): string => (round.stepMs >= DAY_MS || new Date(ms).getHours() + new Date(ms).getMinutes() + new Date(ms).getSeconds() === 0 ? day(ms) : clock(ms, round.stepMs < 60_000));
  const parts = at === undefined ? [] : layers.map((one) => [one.key, one.counts[at] ?? 0] as const).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
  return (
    <div ref={box} class="due">
      <p class="readout small" aria-hidden="true">{at === undefined ? <span class="dim">{zoom ? t("Drag over bars to zoom in; click a bar to list its jobs.") : t("Click a bar to list its jobs.")}</span> : <>{told(at)}{parts.length > 1 || (parts.length && layers.length > 1) ? <span class="dim"> · {parts.slice(0, 4).map(([key, n]) => `${key} ${exact(n)}`).join(", ")}</span> : null}</>}</p>
      <svg class="chart" width={width} height={high} viewBox={`0 0 ${width} ${high}`} role="group" aria-label={t("Due times")}
        onPointerDown={(event) => event.button === 0 && setDrag({ first: barAt(event), last: barAt(event) })}
        onPointerMove={(event) => (setAt(barAt(event)), drag && event.buttons & 1 && setDrag({ ...drag, last: barAt(event) }))} onPointerUp={() => drag && opened(drag.first)} onPointerLeave={() => (setAt(undefined), setDrag(undefined))}>
        <defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatch-back" width="5" height="5" /><rect class="hatch-line" width="2" height="5" /></pattern></defs>
        <text x="0" y="11">{short(most)}</text>
        <line x1="0" x2={width} y1={TOP} y2={TOP} stroke-dasharray="2 4" />
        <line x1="0" x2={width} y1={base} y2={base} />
        {chosen && <rect class="chosen" x={chosen[0]! * step} y={TOP} width={(chosen[1]! - chosen[0]! + 1) * step} height={base - TOP} />}
        {totals.map((total, index) => {
          let y = base;
          const scale = total ? Math.max(2, (total / most) * (base - TOP)) / total : 0;
          return (
            <g key={index} data-bar={index} tabIndex={index === stop ? 0 : -1} role={total ? "link" : undefined} aria-label={total ? told(index) : undefined} onFocus={() => setAt(index)} onBlur={() => setAt(undefined)} onKeyDown={(event) => pressed(event, index)}>
              <rect class="hit" x={index * step} y={TOP} width={step} height={base - TOP} />
              {layers.map((one) => {
                const height = (one.counts[index] ?? 0) * scale;
                y -= height;
                return height > 0 && <rect key={one.key} class={`b ${one.kind}`} x={index * step + 1} y={y} width={Math.max(1, step - 2)} height={height} />;
              })}
              {stormy[index] && <path class="storm" d={`M${index * step + step / 2 - 4} ${TOP - 8}h8l-4 6z`}><title>{t("A due storm")}</title></path>}
            </g>
          );
        })}
        {round.times.map((ms) => {
          const x = placeOf(ms);
          return x >= HALF_LABEL && x <= width - HALF_LABEL && <g key={ms}><line x1={x} x2={x} y1={base} y2={base + 4} /><text x={x} y={base + 16} text-anchor="middle">{label(ms)}</text></g>;
        })}
      </svg>
    </div>
  );
}
