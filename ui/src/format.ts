// Numbers, times and durations as people read them.
import { now } from "./api";
import { language, t } from "./i18n";

const locale = (): string => (language() === "zh" ? "zh-CN" : "en-US");

export const exact = (n: number): string => n.toLocaleString(locale());

/** 1,204; 12.3 K; 1.2 M */
export function short(n: number): string {
  if (Math.abs(n) < 10_000) return exact(n);
  const [unit, size] = Math.abs(n) >= 1e9 ? ["B", 1e9] : Math.abs(n) >= 1e6 ? ["M", 1e6] : ["K", 1e3];
  const shown = Math.trunc((n / size) * 10) / 10;
  return `${shown.toLocaleString(locale(), { maximumFractionDigits: shown >= 100 ? 0 : 1 })} ${unit}`;
}

/** 512 B, 12 KB, 3.4 MB, 1.2 GB */
export function bytes(n: number): string {
  const [unit, size] = n >= 1 << 30 ? ["GB", 1 << 30] : n >= 1 << 20 ? ["MB", 1 << 20] : n >= 1024 ? ["KB", 1024] : ["B", 1];
  return `${(n / size).toLocaleString(locale(), { maximumFractionDigits: n < 1 << 20 ? 0 : 1 })} ${unit}`;
}

/** 0.6, 1,204 in a second */
export const rate = (perS: number): string => (perS === 0 ? "0" : perS < 0.1 ? "< 0.1" : perS < 100 ? perS.toFixed(1) : short(Math.round(perS)));

export function date(ms: number, seconds = true): string {
  return new Date(ms).toLocaleString(locale(), { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", ...(seconds ? { second: "2-digit" } : {}), hourCycle: "h23" });
}

export const clock = (ms: number, seconds = false): string =>
  new Date(ms).toLocaleTimeString(locale(), { hour: "2-digit", minute: "2-digit", ...(seconds ? { second: "2-digit" } : {}), hourCycle: "h23" });

export const day = (ms: number): string => new Date(ms).toLocaleDateString(locale(), { month: "short", day: "numeric" });

export const iso = (ms: number): string => new Date(ms).toISOString();

const UNITS: [string, number][] = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]];

/** 8 min, 2 h 5 min, 3 d 4 h, 250 ms; `brief`: 8 min, 2 h, 3 d, for narrow columns */
export function span(ms: number, brief = false): string {
  const all = Math.abs(Math.round(ms));
  if (all < 1000) return `${all} ms`;
  const at = UNITS.findIndex(([, size]) => all >= size);
  const [unit, size] = UNITS[at]!;
  if (brief) return `${exact(Math.round(all / size))} ${t(unit)}`;
  const whole = Math.floor(all / size);
  const next = UNITS[at + 1];
  const rest = next && unit !== "min" ? Math.floor((all - whole * size) / next[1]) : 0;
  return rest && whole < 10 ? `${whole} ${t(unit)} ${rest} ${t(next![0])}` : `${exact(whole)} ${t(unit)}`;
}

/** in 12 min, 3 s ago, now */
export function relative(ms: number, brief = false): string {
  const away = ms - now();
  if (Math.abs(away) < 1000) return t("now");
  return away > 0 ? t("in {span}", { span: span(away, brief) }) : t("{span} ago", { span: span(away, brief) });
}

/** The text of a duration as the API takes it: 90s, 1h30m. */
export function duration(ms: number): string {
  const parts: string[] = [];
  for (const [unit, size] of [["w", 604_800_000], ["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1000], ["ms", 1]] as const) {
    const whole = Math.floor(ms / size);
    if (whole) parts.push(`${whole}${unit}`);
    ms -= whole * size;
  }
  return parts.join("") || "0s";
}

/** Milliseconds of such a text; undefined if it is none. */
export function parseDuration(text: string): number | undefined {
  const sizes: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
  if (!/^(\d+(\.\d+)?(ms|[smhdw]))+$/.test(text.trim())) return undefined;
  let ms = 0;
  for (const [, number, , unit] of text.matchAll(/(\d+(\.\d+)?)(ms|[smhdw])/g)) ms += Number(number) * sizes[unit!]!;
  return Math.round(ms);
}

/** The value of a datetime-local field, in the reader's time zone. */
export function localInput(ms: number): string {
  const at = new Date(ms - new Date(ms).getTimezoneOffset() * 60_000);
  return at.toISOString().slice(0, 19);
}

/** order-104…88af: both ends of a long name. */
export const middle = (text: string, most = 40): string =>
  text.length <= most ? text : `${text.slice(0, Math.ceil(most * 0.6))}…${text.slice(-Math.floor(most * 0.4) + 1)}`;

export const zone = (): string => Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
