import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { call, type Job, jobPath, now, type Retry, sourceOf, topicPath } from "../api";
import { duration, exact, middle, relative, span } from "../format";
import { t } from "../i18n";
import { useLive } from "../live";
import { isJson, pretty, rawField } from "../json";
import { CopyButton, Dialog, Field, Headers, Id, JobState, Loaded, Page, Panel, Tags, act, toast } from "../parts";
import { go, href } from "../route";
import { useCan, useSession } from "../session";
import { SendButton } from "./send";
import { Timeline } from "./timeline";

const CUT = 64 * 1024;
const LONG = 96; // characters of a name in a title

/** What happens next to a job, in words. */
function next(job: Job): string {
  if (job.state === "scheduled") return t(job.attempts ? "Waits for its next attempt, due {time}." : "Will be due {time}.", { time: relative(job.due_at_ms) });
  if (job.state === "ready") return t("Is due since {span} and waits for a consumer.", { span: span(now() - job.due_at_ms) });
  if (job.state === "leased") return t("A consumer works on it; its lease ends {time}.", { time: job.lease_until_ms ? relative(job.lease_until_ms) : "?" });
  if (job.state === "dead") return `${t(DEAD[job.reason ?? ""] ?? "Is dead.")} ${job.retain_until_ms ? t("Its record is removed {time}.", { time: relative(job.retain_until_ms) }) : ""}`;
  return `${t(job.state === "done" ? "Is done." : "Was cancelled.")} ${job.retain_until_ms ? t("Its record is removed {time}.", { time: relative(job.retain_until_ms) }) : ""}`;
}

const DEAD: Record<string, string> = { exhausted: "Is dead: its attempts are used up.", expired: "Is dead: it expired before it was done.", rejected: "Is dead: a consumer rejected it.", corrupt: "Is dead: its record was damaged." };

/** A retry policy in words. */
export function retryWords(retry: Retry | null): string {
  if (!retry) return t("as the topic says");
  if (retry === "none") return t("at once");
  if (retry.ladder) return t("after {waits}", { waits: retry.ladder.join(", ") });
  return t("after {base}, then {factor} times as long each time, at most {most}", { base: span(retry.base_ms ?? 1000), factor: retry.factor ?? 2, most: span(retry.max_ms ?? 3_600_000) });
}

/** The body of a job that is done or cancelled is not kept: the API answers null. */
function bodyText(job: Job): string {
  if (job.body === null && (job.state === "done" || job.state === "cancelled")) return "";
  const source = sourceOf(job);
  return rawField(source, "body") ?? rawField(source, "items") ?? "";
}

export function JobPage({ topic, id }: { topic: string; id: string }) {
  const { ns } = useSession();
  const can = useCan();
  const [dialog, setDialog] = useState<"reschedule" | "edit" | "cancel" | "purge" | null>(null);
  const live = useLive(`job ${ns} ${topic} ${id}`, () => call<Job>("GET", jobPath(topic, id), { ns }), 3000, { topic, id });
  const job = live.data;
  const close = (): void => setDialog(null);
  const fire = (): Promise<void> => act(() => call("POST", `${jobPath(topic, id)}/fire`, { ns }), t("It is due now"), live.reload);
  const revive = (): Promise<void> => act(() => call("POST", `${topicPath(topic)}/dead/revive`, { ns, body: { ids: [id] } }), t("Revived"), live.reload);
  const waits = job && (job.state === "scheduled" || job.state === "ready");
  const actions = job && can("manage") && (
    <>
      {job.state === "scheduled" && <button class="primary" onClick={() => void fire()}>{t("Fire now")}</button>}
      {waits && <button onClick={() => setDialog("reschedule")}>{t("Reschedule")}</button>}
      {waits && !job.items && <button onClick={() => setDialog("edit")}>{t("Edit")}</button>}
      {job.state === "dead" && <button class="primary" onClick={() => void revive()}>{t("Revive")}</button>}
      {job.state === "dead" && <button class="danger" onClick={() => setDialog("purge")}>{t("Purge")}</button>}
      {(waits || job.state === "leased") && <button class="danger" onClick={() => setDialog("cancel")}>{t("Cancel the job")}</button>}
    </>
  );
  return (
    <Page crumb={<><a href={href(["topics"])}>{t("Topics")}</a> / <a href={href(["topics", topic])} title={topic}>{middle(topic, LONG)}</a></>} title={<span class="mono" title={id}>{middle(id, LONG)}</span>} lead={job && <><JobState state={job.state} /> · {next(job)}</>} actions={actions}>
      <Loaded live={live} lines={8}>
        {(job) => (
          <div class="cols job">
            <div class="stack"><Body job={job} /><Copies job={job} /></div>
            <div class="stack"><Timeline job={job} /><Facts job={job} /></div>
          </div>
        )}
      </Loaded>
      {live.error?.status === 404 && !job && <div><SendButton topic={topic} /></div>}
      {job && dialog === "reschedule" && <RescheduleDialog job={job} close={close} done={live.reload} />}
      {job && dialog === "edit" && <EditDialog job={job} close={close} done={live.reload} />}
      {job && dialog === "cancel" && (
        <Dialog title={t("Cancel the job")} close={close} action={t("Cancel the job")} danger done={t("Do nothing")} submit={async () => { await call("DELETE", jobPath(topic, id), { ns }); toast(t("Cancelled")); live.reload(); close(); }}>
          <p>{job.state === "leased" ? t("A consumer works on it now. It cannot finish the job any more.") : t("It will not be delivered. This cannot be undone.")}</p>
        </Dialog>
      )}
      {job && dialog === "purge" && (
        <Dialog title={t("Purge")} close={close} action={t("Purge")} danger done={t("Do nothing")} submit={async () => { await call("POST", `${topicPath(topic)}/dead/purge`, { ns, body: { ids: [id] } }); toast(t("Purged")); close(); go(href(["topics", topic, "dead"])); }}>
          <p>{t("The job and its body are deleted for ever.")}</p>
        </Dialog>
      )}
    </Page>
  );
}

/** `title` and `children`, which stand above the body, if another page shows it. */
export function Body({ job, title, children }: { job: Job; title?: ComponentChildren; children?: ComponentChildren }) {
  const [raw, setRaw] = useState(false);
  const [all, setAll] = useState(false);
  const isBytes = job.body_base64 !== undefined && job.body_base64 !== null;
  const source = isBytes ? job.body_base64! : bodyText(job);
  const isText = typeof job.body === "string";
  const whole = isText ? (job.body as string) : source;
  const nested = isText && /^\s*[[{]/.test(whole) && isJson(whole); // a dialect's text body that holds JSON
  const plain = raw || isBytes || (isText && !nested);
  const shown = all ? whole : whole.slice(0, CUT);
  const kind = job.items ? `${t("Items")} (${exact(job.items.length)})` : isBytes ? t("Body, as base64") : isText ? t("Body, a text") : t("Body");
  return (
    <Panel title={title ?? kind} tools={<>{(nested || !plain || raw) && !isBytes && <button onClick={() => setRaw(!raw)}>{raw ? t("Pretty") : t("Raw")}</button>}<CopyButton text={whole} label={t("Copy")} /></>}>
      <div class="pad">
        {children}
        {whole === "" ? <p class="dim">{job.state === "done" || job.state === "cancelled" ? t("The body of an ended job is not kept.") : t("The body is empty.")}</p> : (
          <pre class="code" dir="auto" tabIndex={0} aria-label={kind}>{plain || shown.length < whole.length ? shown : pretty(shown).map((piece, at) => (piece.kind === "mark" || piece.kind === "space" ? piece.text : <span key={at} class={`j-${piece.kind}`}>{piece.text}</span>))}</pre>
        )}
        {shown.length < whole.length && <p class="row small"><span class="dim">{t("The first 64 KB of {n} characters.", { n: exact(whole.length) })}</span><button class="link" onClick={() => setAll(true)}>{t("Show all")}</button></p>}
      </div>
    </Panel>
  );
}

function Facts({ job }: { job: Job }) {
  const most = job.max_attempts ? t("dead after {n} attempts", { n: exact(job.max_attempts) }) : t("no limit of attempts");
  return (
    <Panel title={t("Details")}>
      <dl class="facts pad">
        <dt>{t("Id")}</dt><dd><span class="mono break">{job.id}</span> <CopyButton text={job.id} label={t("Copy")} brief /></dd>
        <dt>{t("Attempts")}</dt><dd>{exact(job.attempts)}{job.max_attempts ? ` / ${exact(job.max_attempts)}` : ""}</dd>
        <dt>{t("Policy")}</dt><dd>{t("Retries {how}; {most}.", { how: retryWords(job.retry), most })}</dd>
        {job.lease_ms && <><dt>{t("Lease")}</dt><dd>{span(job.lease_ms)}</dd></>}
        {job.tags.length > 0 && <><dt>{t("Tags")}</dt><dd class="row"><Tags tags={job.tags} /></dd></>}
        {job.merge_key && <><dt>{t("Merge key")}</dt><dd><Id text={job.merge_key} link={href(["topics", job.topic], { key: job.merge_key })} /></dd></>}
        {Object.keys(job.headers).length > 0 && <><dt>{t("Headers")}</dt><dd><Headers of={job.headers} /></dd></>}
        <dt>{t("Version")}</dt><dd>{exact(job.version)}</dd>
      </dl>
    </Panel>
  );
}

const quoted = (text: string): string => `'${text.split("'").join(`'\\''`)}'`;
const python = (text: string): string => JSON.stringify(text);

/** The send of this job as commands, to repeat it elsewhere. Both take a token from DUELINE_TOKEN. */
function Copies({ job }: { job: Job }) {
  const { ns, info } = useSession();
  const base = new URL("..", location.href.split("#")[0]).href.replace(/\/$/, "");
  const bytes = job.body_base64;
  const source = bodyText(job);
  if ((!source && !bytes) || job.items) return null;
  const body = bytes ? `"body_base64":${JSON.stringify(bytes)}` : `"body":${source}`;
  const more = (["tags", "headers"] as const).filter((name) => Object.keys(job[name]).length).map((name) => [name, JSON.stringify(job[name])] as const);
  const extra = more.map(([name, text]) => `,"${name}":${text}`).join("");
  const token = info.auth === "tokens" ? ` -H "Authorization: Bearer $DUELINE_TOKEN"` : "";
  const header = `${token}${ns === "default" ? "" : ` -H ${quoted(`Dueline-Namespace: ${ns}`)}`}`;
  const curl = `curl -s ${quoted(`${base}${topicPath(job.topic)}/jobs`)} -H 'Content-Type: application/json'${header} -d ${quoted(`{"id":${JSON.stringify(job.id)},${body},"delay":"1m"${extra}}`)}`;
  const namespace = ns === "default" ? "" : `, namespace=${python(ns)}`;
  const options = more.map(([name, text]) => `, ${name}=${text}`).join("");
  const value = bytes ? `base64.b64decode(${python(bytes)})` : `json.loads(${python(source)})`;
  const code = `import ${bytes ? "base64" : "json"}\nfrom dueline import Client\n\nwith Client(${python(base)}${namespace}) as client:\n    client.send(${python(job.topic)}, ${value}, id=${python(job.id)}, delay="1m"${options})\n`;
  return (
    <Panel title={t("Send it again")} tools={<><CopyButton text={curl} label={t("Copy as curl")} /><CopyButton text={code} label={t("Copy as Python")} /></>}>
      <div class="pad"><pre class="code" tabIndex={0} aria-label="curl">{curl.length > 2000 ? `${curl.slice(0, 2000)}…` : curl}</pre></div>
    </Panel>
  );
}

/** A dialog changes the job as it was when it opened: its version says whether somebody else was faster. */
const useOpened = <T,>(one: T): T => useState(one)[0];

type ChangeProps = { job: Job; close: () => void; done: () => void };

function RescheduleDialog({ job: current, close, done }: ChangeProps) {
  const { ns } = useSession();
  const job = useOpened(current);
  const [text, setText] = useState(job.due_at_ms > now() ? duration(Math.max(1000, Math.round((job.due_at_ms - now()) / 1000) * 1000)) : "5m");
  const submit = async (): Promise<void> => {
    await call("PATCH", jobPath(job.topic, job.id), { ns, body: { delay: text, version: job.version } });
    toast(t("Rescheduled"));
    done();
    close();
  };
  return (
    <Dialog title={t("Reschedule")} close={close} submit={submit} action={t("Reschedule")}>
      <Field label={t("Due in")} hint={t("From now, such as 90s, 1h30m, 2d")}><input autoFocus value={text} onInput={(event) => setText(event.currentTarget.value)} /></Field>
    </Dialog>
  );
}

/** A long text opens at its first line. */
const atStart = (field: HTMLTextAreaElement | null): void => field?.setSelectionRange(0, 0);

function EditDialog({ job: current, close, done }: ChangeProps) {
  const { ns } = useSession();
  const job = useOpened(current);
  const first = bodyText(job);
  const [body, setBody] = useState(() => pretty(first).map((one) => one.text).join(""));
  const [tags, setTags] = useState(job.tags.join(", "));
  const [attempts, setAttempts] = useState(job.max_attempts ? String(job.max_attempts) : "");
  const isBytes = job.body_base64 !== undefined;
  const valid = isBytes || isJson(body);
  const submit = async (): Promise<void> => {
    const rest = { tags: tags.split(",").map((one) => one.trim()).filter(Boolean), max_attempts: attempts ? Number(attempts) : null, version: job.version };
    const text = JSON.stringify(rest);
    const changed = !isBytes && body !== pretty(first).map((one) => one.text).join("");
    await call("PATCH", jobPath(job.topic, job.id), { ns, raw: changed ? `{"body":${body.trim()},${text.slice(1)}` : text });
    toast(t("Saved"));
    done();
    close();
  };
  return (
    <Dialog title={t("Edit")} close={close} submit={submit} action={t("Save")} disabled={!valid}>
      {!isBytes && <Field label={t("Body, as JSON")} hint={valid ? undefined : t("This is not valid JSON.")}><textarea ref={atStart} rows={10} spellcheck={false} value={body} onInput={(event) => setBody(event.currentTarget.value)} /></Field>}
      <div class="grid2">
        <Field label={t("Tags")} hint={t("Joined with commas")}><input value={tags} onInput={(event) => setTags(event.currentTarget.value)} /></Field>
        <Field label={t("Maximum attempts")} hint={t("Empty: no limit")}><input type="number" min="1" value={attempts} onInput={(event) => setAttempts(event.currentTarget.value)} /></Field>
      </div>
    </Dialog>
  );
}
