// English and Chinese. The English text is the key; zh.ts has the other one. A test checks that none is missing.
import { ZH } from "./zh";

export type Language = "en" | "zh";

const ONE: Record<string, string> = {
  "{n} jobs": "{n} job", "{n} topics": "{n} topic", "{n} dead letters": "{n} dead letter", "{n} consumers": "{n} consumer",
  "{n} jobs are ready": "{n} job is ready", "{n} targets": "{n} target", "{n} push targets are failing": "{n} push target is failing", "{n} items": "{n} item", "{n} more deliveries are not kept.": "{n} more delivery is not kept.",
  "{n} topics have ready jobs and nobody consumes them": "{n} topic has ready jobs and nobody consumes it",
  "{topic} has {n} dead letters": "{topic} has {n} dead letter", "{n} jobs are being worked on": "{n} job is being worked on",
  "the next of {n} jobs is due {time}": "the next job is due {time}", "{n} jobs were changed": "{n} job was changed",
  "{n} jobs with this error": "{n} job with this error", "dead after {n} attempts": "dead after {n} attempt",
  " in {n} topics. They are kept until they are revived or purged, or their retention ends.": " in {n} topic. They are kept until they are revived or purged, or their retention ends.",
  "{n} schedules": "{n} schedule", "{n} schedules cannot send their jobs": "{n} schedule cannot send its job", "{n} changes, show": "{n} change, show",
  "{n} workers run {jobs} now": "{n} worker runs {jobs} now", "{n} jobs died in the last 24 hours": "{n} job died in the last 24 hours",
  "{n} jobs fall due later.": "{n} job falls due later.", "{n} jobs fall due in this range; {later} later.": "{n} job falls due in this range; {later} later.",
  "The first {jobs} jobs of each of {n} topics. Open a topic to see all.": "The first {jobs} jobs of the only topic that has such jobs. Open it to see all.",
  "{n} jobs of {topic} match now.": "{n} job of {topic} matches now.", "; {n} topics have ready jobs and nobody consumes them": "; {n} topic has ready jobs and nobody consumes it",
  "{n} groups hold {items}; the next is delivered {time}.": "{n} group holds {items} and is delivered {time}.",
  "No worker reports itself, but {n} consumers wait for jobs": "No worker reports itself, but {n} consumer waits for jobs",
  "All {n} targets are answering or paused.": "The only target is answering or paused.", "stops for {span} after {n} failures in a row": "stops for {span} after {n} failure",
  "The limit {limit} refused {n} calls.": "The limit {limit} refused {n} call.", "{n} calls by time and duration": "{n} call by time and duration",
  "Counted {time} over {n} topics.": "Counted {time} over {n} topic.",
  "{n} entries of the histories of its jobs did not fit the budget (limits.max_history_bytes).": "{n} entry of the histories of its jobs did not fit the budget (limits.max_history_bytes).",
  "{n} entries did not fit the budget (limits.max_history_bytes).": "{n} entry did not fit the budget (limits.max_history_bytes).",
};

let current: Language = saved() ?? (navigator.language.startsWith("zh") ? "zh" : "en");
document.documentElement.lang = current;

function saved(): Language | undefined {
  const value = localStorage.getItem("dueline.language");
  return value === "en" || value === "zh" ? value : undefined;
}

export const language = (): Language => current;

export function setLanguage(value: Language): void {
  current = value;
  localStorage.setItem("dueline.language", value);
  document.documentElement.lang = value;
}

/** The text in the reader's language. {name} is replaced by a value; `n` chooses between one and many. */
export function t(text: string, values: Record<string, string | number> = {}): string {
  let shown = current === "zh" ? (ZH[text] ?? text) : values["n"] === 1 || values["n"] === "1" ? (ONE[text] ?? text) : text;
  for (const [name, value] of Object.entries(values)) shown = shown.split(`{${name}}`).join(String(value));
  return shown;
}
