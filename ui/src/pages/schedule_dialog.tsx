// Make or change a schedule. The next ten runs come from the server, which refuses here what it would refuse later.
import { useEffect, useState } from "preact/hooks";
import { ApiError, call, type Schedule, schedulePath, sourceOf } from "../api";
import { words } from "../cron";
import { date, duration, parseDuration, relative, zone } from "../format";
import { t } from "../i18n";
import { isJson, pretty, rawField } from "../json";
import { Dialog, Field, toast } from "../parts";
import { useSession } from "../session";

type Draft = { name: string; topic: string; kind: "cron" | "every"; cron: string; tz: string; every: string; body: string; jitter: string; misfire: string; overlap: string };
type Next = { next: number[] };

const WAIT_MS = 300;

export const templateText = (one: Schedule): string => rawField(rawField(sourceOf(one), "job") ?? "", "body") ?? "";

const formatted = (text: string): string => pretty(text).map((piece) => piece.text).join("");

function draftOf(one: Schedule | undefined): Draft {
  if (!one) return { name: "", topic: "", kind: "cron", cron: "0 9 * * MON-FRI", tz: zone(), every: "1h", body: "{}", jitter: "", misfire: "latest", overlap: "allow" };
  return {
    name: one.name, topic: one.topic, kind: one.cron ? "cron" : "every", cron: one.cron ?? "", tz: one.tz ?? "UTC", every: one.every ?? "", body: formatted(templateText(one)),
    jitter: one.jitter_ms ? duration(one.jitter_ms) : "", misfire: one.misfire, overlap: one.overlap,
  };
}

/** The body of the PUT, as text: the job's body is sent as it is written. */
function written(draft: Draft, old: Schedule | undefined): string {
  const { body: _, body_base64: bytes, ...job } = old?.job ?? { tags: [], headers: {} };
  const template = JSON.stringify(bytes === undefined ? job : { ...job, body_base64: bytes });
  const withBody = bytes === undefined ? `{"body":${draft.body.trim()}${template === "{}" ? "}" : `,${template.slice(1)}`}` : template;
  const fields = {
    topic: draft.topic, ...(draft.kind === "cron" ? { cron: draft.cron, tz: draft.tz || "UTC" } : { every: draft.every }), misfire: draft.misfire, overlap: draft.overlap, jitter_ms: draft.jitter ? (parseDuration(draft.jitter) ?? -1) : 0,
    ...(old ? { starts_at_ms: old.starts_at_ms, ends_at_ms: old.ends_at_ms, paused: old.paused, owner: old.owner, version: old.version } : { version: 0 }),
  };
  return `{"job":${withBody},${JSON.stringify(fields).slice(1)}`;
}

/** `current`: what is edited, as it was when the dialog opened: its version says whether somebody else was faster. */
export function ScheduleDialog({ current, close, done }: { current?: Schedule; close: () => void; done: (name: string) => void }) {
  const { ns, topics } = useSession();
  const [old] = useState(current);
  const [draft, setDraft] = useState(() => draftOf(old));
  const set = (values: Partial<Draft>): void => setDraft({ ...draft, ...values });
  const input = (name: keyof Draft) => ({ value: draft[name], onInput: (event: { currentTarget: { value: string } }) => set({ [name]: event.currentTarget.value }) });
  const isBytes = old?.job.body_base64 !== undefined;
  const valid = isBytes || isJson(draft.body);
  const ready = Boolean(draft.name && draft.topic && valid);
  const submit = async (): Promise<void> => {
    await call("PUT", schedulePath(draft.name), { ns, raw: written(draft, old) });
    toast(t("Saved"));
    close();
    done(draft.name);
  };
  return (
    <Dialog title={old ? t("Edit {name}", { name: old.name }) : t("Make a schedule")} close={close} submit={submit} action={t("Save")} disabled={!ready}>
      <div class="grid2">
        {!old && <Field label={t("Name")}><input autoFocus {...input("name")} /></Field>}
        <Field label={t("Topic")}><input list="schedule-topics" {...input("topic")} /></Field>
        <datalist id="schedule-topics">{topics.data?.topics.slice(0, 200).map((one) => <option value={one.topic} key={one.topic} />)}</datalist>
        <Field label={t("Runs by")}><select {...input("kind")}><option value="cron">{t("a cron expression")}</option><option value="every">{t("an interval")}</option></select></Field>
        {draft.kind === "cron" ? <><Field label={t("Cron expression")} hint={words({ cron: draft.cron, every: null })}><input class="mono" spellcheck={false} {...input("cron")} /></Field><Field label={t("Time zone")}><input list="zones" {...input("tz")} /></Field></> : <Field label={t("Interval")} hint={t("Such as 90s, 1h30m")}><input {...input("every")} /></Field>}
        <datalist id="zones">{Intl.supportedValuesOf("timeZone").map((name) => <option value={name} key={name} />)}</datalist>
        <Field label={t("Runs that were missed")}><select {...input("misfire")}><option value="latest">{t("send the latest one")}</option><option value="skip">{t("send none")}</option><option value="all">{t("send each")}</option></select></Field>
        <Field label={t("While the last job is alive")}><select {...input("overlap")}><option value="allow">{t("send the next one, too")}</option><option value="skip">{t("skip the run")}</option></select></Field>
        <Field label={t("Jitter")} hint={t("Each job is due up to this much later. Empty: none")}><input {...input("jitter")} /></Field>
      </div>
      {!isBytes && <Field label={t("Body, as JSON")} hint={valid ? undefined : t("This is not valid JSON.")}><textarea rows={4} spellcheck={false} {...input("body")} /></Field>}
      <Preview name={draft.name} text={ready ? written(draft, old) : ""} ns={ns} />
    </Dialog>
  );
}

function Preview({ name, text, ns }: { name: string; text: string; ns: string }) {
  const [next, setNext] = useState<number[]>();
  const [error, setError] = useState<ApiError>();
  useEffect(() => {
    let over = false;
    if (!text) return;
    const timer = setTimeout(() => {
      call<Next>("POST", `${schedulePath(name)}/next`, { ns, raw: text }).then(
        (found) => !over && (setNext(found.next), setError(undefined)),
        (reason) => !over && reason instanceof ApiError && setError(reason),
      );
    }, WAIT_MS);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [name, text, ns]);
  return (
    <section class="preview" aria-label={t("The next ten runs")}>
      <strong class="small">{t("The next ten runs")}</strong>
      {error ? <p class="alert red small" role="alert">{error.message} {error.field && <span class="mono">({error.field})</span>}</p> : !text ? <p class="dim small">{t("Fill in a name, a topic and a body.")}</p> : next === undefined ? <p class="dim small">{t("Counting…")}</p> : <Runs times={next} />}
    </section>
  );
}

export function Runs({ times }: { times: number[] }) {
  if (times.length === 0) return <p class="dim small">{t("There is no further run.")}</p>;
  return <ol class="runs">{times.map((ms) => <li key={ms}><time dateTime={new Date(ms).toISOString()}>{date(ms)}</time> <span class="dim">{relative(ms)}</span></li>)}</ol>;
}
