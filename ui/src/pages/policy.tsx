import { useState } from "preact/hooks";
import { call, type Policy, type Retry, type Topic, topicPath } from "../api";
import { duration, parseDuration } from "../format";
import { t } from "../i18n";
import { Field, Panel, Trouble, toast } from "../parts";
import { ApiError } from "../api";
import { useCan, useSession } from "../session";
import { retryWords } from "./job";

type Kind = "duration" | "count" | "choice";
type Row = { name: string; word: string; kind: Kind; normal: string; choices?: string[]; hint?: string };

const ROWS: Row[] = [
  { name: "lease_ms", word: "Lease", kind: "duration", normal: "30s", hint: "How long a consumer may work before the job is delivered again" },
  { name: "max_attempts", word: "Maximum attempts", kind: "count", normal: "20" },
  { name: "ttl_ms", word: "Time to live", kind: "duration", normal: "no limit", hint: "Counted from the due time" },
  { name: "retain_ms", word: "Keep ended jobs for", kind: "duration", normal: "1m" },
  { name: "dead_retain_ms", word: "Keep dead jobs for", kind: "duration", normal: "30d" },
  { name: "spread_ms", word: "Spread due times over", kind: "duration", normal: "0s", hint: "Against many jobs at the same moment" },
  { name: "on_conflict", word: "When an id exists", kind: "choice", normal: "reject", choices: ["reject", "keep", "replace"] },
  { name: "max_body_bytes", word: "Largest body in bytes", kind: "count", normal: "the server's limit" },
];

const written = (row: Row, value: unknown): string => (value === null || value === undefined ? "" : row.kind === "duration" ? duration(value as number) : String(value));

function ladderOf(retry: Retry | null | undefined): string {
  return retry === "none" ? "none" : retry && "ladder" in retry && retry.ladder ? retry.ladder.join(", ") : "";
}

/** A form with the value that is set, what applies without it, and who set it. */
export function PolicyTab({ topic, saved }: { topic: Topic; saved: () => void }) {
  const { ns } = useSession();
  const can = useCan();
  const policy: Policy = topic.policy;
  const retry = policy["retry"] as Retry | null;
  const [values, setValues] = useState<Record<string, string>>({});
  const [error, setError] = useState<ApiError>();
  const value = (row: Row): string => values[row.name] ?? written(row, policy[row.name]);
  const set = (name: string, text: string): void => setValues({ ...values, [name]: text });
  const ladder = values["retry"] ?? ladderOf(retry);
  const wrong = ROWS.find((row) => value(row) && ((row.kind === "duration" && parseDuration(value(row)) === undefined) || (row.kind === "count" && !/^\d+$/.test(value(row)))));
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const changed = Object.keys(values);
    const body: Record<string, unknown> = { ...policy, version: topic.version, by_worker: (policy.by_worker ?? []).filter((name) => !changed.includes(name)) };
    for (const row of ROWS) {
      if (!changed.includes(row.name)) continue;
      const text = values[row.name]!;
      body[row.name] = text === "" ? null : row.kind === "duration" ? parseDuration(text) : row.kind === "count" ? Number(text) : text;
    }
    if (changed.includes("retry")) body["retry"] = ladder === "" ? null : ladder === "none" ? "none" : { ladder: ladder.split(",").map((one) => one.trim()).filter(Boolean) };
    try {
      await call("PUT", topicPath(topic.topic), { ns, body });
      setValues({});
      setError(undefined);
      toast(t("Saved"));
      saved();
    } catch (reason) {
      setError(reason instanceof ApiError ? reason : new ApiError(0, "page", String(reason)));
    }
  };
  const by = (name: string) => (policy[name] === null || policy[name] === undefined ? "" : policy.by_worker?.includes(name) ? t("set by a worker") : t("set by an operator"));
  const readOnly = !can("manage");
  return (
    <Panel title={t("Policy")} tools={<span class="dim small">{t("It applies to jobs that are sent from now on.")}</span>}>
      <form class="pad stack" onSubmit={(event) => void submit(event)}>
        <div class="grid2">
          {ROWS.map((row) => (
            <Field key={row.name} label={t(row.word)} hint={<>{[row.hint ? t(row.hint) : "", by(row.name)].filter(Boolean).join(" · ")}</>}>
              {row.kind === "choice" ? (
                <select disabled={readOnly} value={value(row)} onChange={(event) => set(row.name, event.currentTarget.value)}><option value="">{t("default: {value}", { value: row.normal })}</option>{row.choices!.map((one) => <option key={one}>{one}</option>)}</select>
              ) : (
                <input readOnly={readOnly} inputMode={row.kind === "count" ? "numeric" : "text"} placeholder={t("default: {value}", { value: t(row.normal) })} value={value(row)} aria-invalid={wrong === row} onInput={(event) => set(row.name, event.currentTarget.value)} />
              )}
            </Field>
          ))}
          <Field label={t("Retry ladder")} hint={<>{[t("Waits joined with commas, such as 2m, 10m, 1h; none: at once"), by("retry")].filter(Boolean).join(" · ")}</>}>
            <input readOnly={readOnly} placeholder={retry && !ladderOf(retry) ? retryWords(retry) : t("default: {value}", { value: "1s, 2s, 4s … 1h" })} value={ladder} onInput={(event) => set("retry", event.currentTarget.value)} />
          </Field>
        </div>
        {wrong && <p class="alert amber">{wrong.kind === "count" ? t("{field} is not a whole number.", { field: t(wrong.word) }) : t("{field} is not a duration. Write 90s, 10m, 1h30m or 2d.", { field: t(wrong.word) })}</p>}
        {error && <Trouble error={error} />}
        {!readOnly && <div class="row"><button class="primary" disabled={Object.keys(values).length === 0 || wrong !== undefined}>{t("Save")}</button>{Object.keys(values).length > 0 && <button type="button" class="quiet" onClick={() => setValues({})}>{t("Undo the changes")}</button>}</div>}
      </form>
    </Panel>
  );
}
