// When a schedule runs, in words. Only the usual forms have words; any other expression is shown as it is. The server
// decides when it really runs: this is for reading.
import type { Schedule } from "./api";
import { parseDuration, span } from "./format";
import { language, t } from "./i18n";

const NAMES: Record<string, string> = { "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *" };
const DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const isNumber = (text: string): boolean => /^\d+$/.test(text);

function dayName(text: string): string | undefined {
  const at = isNumber(text) ? Number(text) % 7 : DAYS.indexOf(text.toUpperCase());
  if (at < 0) return undefined;
  return new Intl.DateTimeFormat(language() === "zh" ? "zh-CN" : "en-US", { weekday: "long", timeZone: "UTC" }).format(new Date(Date.UTC(2023, 0, 1 + at)));
}

/** MON-FRI, 1,3,5: days of the week in words. */
function days(text: string): string | undefined {
  const parts = text.split(",").map((part) => {
    const ends = part.split("-").map(dayName);
    return ends.some((one) => one === undefined) || ends.length > 2 ? undefined : ends.length === 2 ? t("{first} to {last}", { first: ends[0]!, last: ends[1]! }) : ends[0]!;
  });
  return parts.some((one) => one === undefined) ? undefined : parts.join(t(", "));
}

function cronWords(cron: string): string | undefined {
  const fields = (NAMES[cron] ?? cron).trim().split(/\s+/);
  if (fields.length === 6 && fields[0] === "0") fields.shift();
  if (fields.length !== 5) return undefined;
  const [minute, hour, date, month, weekday] = fields as [string, string, string, string, string];
  const step = /^\*\/(\d+)$/.exec(minute);
  const rest = [hour, date, month, weekday].every((one) => one === "*");
  if (rest && minute === "*") return t("every minute");
  if (rest && step) return t("every {n} minutes", { n: step[1]! });
  if (rest && isNumber(minute)) return minute === "0" ? t("every hour") : t("every hour at minute {minute}", { minute });
  const steps = /^\*\/(\d+)$/.exec(hour);
  if (minute === "0" && steps && [date, month, weekday].every((one) => one === "*")) return t("every {n} hours", { n: steps[1]! });
  if (!isNumber(minute) || !hour.split(",").every(isNumber)) return undefined;
  const time = hour.split(",").map((one) => `${one.padStart(2, "0")}:${minute.padStart(2, "0")}`).join(t(", "));
  if (month !== "*") return undefined;
  if (date === "*" && weekday === "*") return t("every day at {time}", { time });
  const which = date === "*" ? days(weekday) : undefined;
  if (which) return t("{days} at {time}", { days: which, time });
  if (weekday === "*" && isNumber(date)) return t("on day {day} of every month at {time}", { day: date, time });
  return weekday === "*" && date === "L" ? t("on the last day of every month at {time}", { time }) : undefined;
}

/** "every day at 09:00", or the expression itself. */
export function words(one: Pick<Schedule, "cron" | "every">): string {
  if (one.every) return t("every {span}", { span: span(parseDuration(one.every) ?? 0) });
  return (one.cron && cronWords(one.cron)) || one.cron || "";
}
