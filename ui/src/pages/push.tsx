import { useEffect, useState } from "preact/hooks";
import { type Attempt, call, now, type Push, topicPath } from "../api";
import { DotPlot } from "../charts";
import { date, exact, parseDuration, span } from "../format";
import { t } from "../i18n";
import { Icon, StateMark } from "../icons";
import { Row } from "../keys";
import { type Live, useLive } from "../live";
import { Dialog, Empty, Field, Id, Loaded, Page, Panel, Time, Typed, act, toast } from "../parts";
import { go, href, useRoute } from "../route";
import { useCan, useHas, useSession } from "../session";
import { retryWords } from "./job";

type Attempts = { attempts: Attempt[]; next_cursor: string | null };
type Health = { calls: number; success: number; p50: number; p99: number };

/** What the newest calls of the log say about a target; undefined without calls. */
export function health(attempts: Attempt[]): Health | undefined {
  if (!attempts.length) return undefined;
  const durations = attempts.map((one) => one.duration_ms).sort((a, b) => a - b);
  const at = (share: number): number => durations[Math.min(durations.length - 1, Math.floor(share * durations.length))]!;
  return { calls: attempts.length, success: attempts.filter((one) => !one.error).length / attempts.length, p50: at(0.5), p99: at(0.99) };
}

/** 100 % only if every call succeeded. */
const percent = (share: number): string => `${share === 1 ? 100 : Math.min(99.9, Math.floor(share * 1000) / 10)} %`;

const MOST = 100; // targets that one view reads
const LOGGED = 500; // calls that a target's figures are made from

const pushPath = (topic: string): string => `${topicPath(topic)}/push`;
const KINDS: Record<string, [string, string]> = { ok: ["ok", "working"], open: ["bad", "stopped after failures"], half_open: ["warn", "trying one call"], paused: ["idle", "paused"] };

function TargetState({ state }: { state: string }) {
  const [kind, word] = KINDS[state] ?? ["idle", state];
  return <StateMark kind={kind} word={t(word)} />;
}

export function PushPage() {
  const { topics: live, ns } = useSession();
  const has = useHas();
  const names = (live.data?.topics ?? []).filter((one) => one.push).map((one) => one.topic);
  const shown = has("push") ? names.slice(0, MOST) : [];
  const targets = useLive(`targets ${ns} ${shown.join(" ")}`, () => Promise.all(shown.map(async (topic) => ({ topic, push: await call<Push>("GET", pushPath(topic), { ns }), health: health((await call<Attempts>("GET", `${pushPath(topic)}/attempts`, { ns, query: { limit: 100 } })).attempts) }))), 10_000, { never: true });
  const failing = (targets.data ?? []).filter((one) => one.push.state === "open" || one.push.state === "half_open").length;
  const lead = live.data && has("push") && (names.length === 0 ? t("No topic has a push target.") : failing ? t("{n} targets", { n: failing }) + t(" of {all} failing now.", { all: names.length }) : t("All {n} targets are answering or paused.", { n: names.length }));
  return (
    <Page title={t("Push")} lead={lead}>
      <Loaded live={live}>
        {() => names.length === 0 ? (
          <Panel><Empty title={t("No topic has a push target.")} command="dueline push set emails https://example.com/hook">{t("A push target gets the jobs of a topic by HTTP calls, with retries.")}</Empty></Panel>
        ) : !has("push") ? <Forbidden /> : (
          <Loaded live={targets}>
            {(found) => (
              <Panel label={t("Push targets")}>
                <div class="wrap">
                  <table class="cards">
                    <thead><tr><th>{t("Topic")}</th><th>{t("State")}</th><th>{t("Target")}</th><th class="num">{t("Success")}</th><th class="num">p50</th><th class="num">p99</th><th class="num">{t("In flight")}</th><th>{t("Last error")}</th></tr></thead>
                    <tbody>
                      {found.map(({ topic, push, health }) => (
                        <Row key={topic} link={href(["topics", topic, "push"])}>
                          <td class="whole"><a class="ell" title={topic} href={href(["topics", topic, "push"])}>{topic}</a></td>
                          <td><TargetState state={push.state} /></td>
                          <td class="whole mono"><span class="ell" title={push.url ?? push.service ?? ""}>{push.method} {push.url ?? push.service}</span></td>
                          <td class="num" data-label={t("Success")}>{health ? percent(health.success) : <span class="zero">–</span>}</td>
                          <td class="num" data-label="p50">{health ? span(health.p50) : <span class="zero">–</span>}</td>
                          <td class="num" data-label="p99">{health ? span(health.p99) : <span class="zero">–</span>}</td>
                          <td class="num" data-label={t("In flight")}>{exact(push.in_flight)} / {exact(push.concurrency)}</td>
                          <td class="whole"><span class="ell" title={push.last_error ?? ""}>{push.last_error ?? ""}</span></td>
                        </Row>
                      ))}
                    </tbody>
                  </table>
                </div>
                <p class="pad dim small">{names.length > MOST && t("The first {n} topics by name; there are more.", { n: MOST })} {t("Success and durations are those of the newest 100 calls.")}</p>
              </Panel>
            )}
          </Loaded>
        )}
      </Loaded>
    </Page>
  );
}

const Forbidden = () => <Panel><Empty title={t("Push targets need the right push.")} /></Panel>;

export function PushTab({ topic, has, changed }: { topic: string; has: boolean; changed: () => void }) {
  const can = useCan();
  const mayLook = useHas()("push");
  const [open, setOpen] = useState(false);
  if (!mayLook) return <Forbidden />;
  return (
    <>
      {has ? <Target topic={topic} edit={() => setOpen(true)} changed={changed} /> : (
        <Panel><Empty title={t("This topic has no push target.")} command={`dueline push set ${topic} https://example.com/hook`}>{t("A push target gets the jobs of a topic by HTTP calls, with retries.")}</Empty>{can("push") && <p class="pad" style={{ textAlign: "center", paddingTop: 0 }}><button class="primary" onClick={() => setOpen(true)}>{t("Set a target")}</button></p>}</Panel>
      )}
      {open && <TargetDialog topic={topic} has={has} close={() => setOpen(false)} done={changed} />}
    </>
  );
}

function Target({ topic, edit, changed }: { topic: string; edit: () => void; changed: () => void }) {
  const { ns } = useSession();
  const [removing, setRemoving] = useState(false);
  const [leaving, setLeaving] = useState(false);
  const live = useLive(`push ${ns} ${topic}`, () => call<Push>("GET", pushPath(topic), { ns }), 4000, { topic, leaving });
  const can = useCan();
  const flip = (push: Push): Promise<void> => act(() => call("POST", `${pushPath(topic)}/${push.paused ? "resume" : "pause"}`, { ns }), push.paused ? t("Resumed") : t("Paused"), live.reload);
  const log = useAttempts(topic, leaving);
  const test = (): Promise<void> => {
    const id = `test-${now()}-${Math.floor(Math.random() * 1e6)}`;
    return act(() => call("POST", `${topicPath(topic)}/jobs`, { ns, body: { id, body: { test: true }, tags: ["test"], max_attempts: 1 } }), t("A test job was sent; its call is below in a moment."), () => go(href(["topics", topic, "push"], { job: id })));
  };
  const tools = (push: Push) => can("push") && <>{can("send") && !push.paused && <button onClick={() => void test()}>{t("Test call")}</button>}<button onClick={() => void flip(push)}><Icon name={push.paused ? "play" : "pause"} />{push.paused ? t("Resume") : t("Pause")}</button><button onClick={edit}>{t("Edit")}</button><button class="danger" onClick={() => setRemoving(true)}>{t("Remove")}</button></>;
  const remove = async (): Promise<void> => {
    setLeaving(true);
    await call("DELETE", pushPath(topic), { ns }).catch((error: unknown) => {
      setLeaving(false);
      throw error;
    });
    toast(t("Removed"));
    setRemoving(false);
    changed();
  };
  return (
    <div class="stack">
      {log.data && log.data.attempts.length > 0 && <Figures attempts={log.data.attempts} />}
      <div class={log.data?.attempts.length ? "cols" : "stack"}>
        {log.data && log.data.attempts.length > 0 && <Answers attempts={log.data.attempts} />}
        <Loaded live={live}>
          {(push) => (
            <Panel title={<TargetState state={push.state} />} tools={tools(push)}>
              <dl class="facts pad">
                <dt>{t("Target")}</dt><dd class="mono">{push.method} {push.url ?? push.service}</dd>
                <dt>{t("In flight")}</dt><dd>{exact(push.in_flight)} / {exact(push.concurrency)}</dd>
                <dt>{t("Timeout")}</dt><dd>{push.timeout_ms ? span(push.timeout_ms) : "–"}</dd>
                <dt>{t("Rate")}</dt><dd>{push.rate_per_s ? t("{n} per second", { n: push.rate_per_s }) : t("no limit")}</dd>
                <dt>{t("Retries")}</dt><dd>{retryWords(push.retry)}</dd>
                <dt>{t("Breaker")}</dt><dd>{push.breaker ? t("stops for {span} after {n} failures in a row", { span: span(push.breaker.open_ms), n: push.breaker.failures }) : t("none")}</dd>
                {push.secrets.length > 0 && <><dt>{t("Secrets")}</dt><dd class="mono">{push.secrets.join(", ")}</dd></>}
                {push.last_error && <><dt>{t("Last error")}</dt><dd>{push.last_error}</dd></>}
              </dl>
            </Panel>
          )}
        </Loaded>
      </div>
      <AttemptLog topic={topic} live={log} />
      {removing && (
        <Dialog title={t("Remove the target")} close={() => setRemoving(false)} action={t("Remove")} danger submit={remove}>
          <p>{t("No more calls are made. The jobs of the topic stay.")}</p>
        </Dialog>
      )}
    </div>
  );
}

/** The newest calls, or those of the job that the address names. */
function useAttempts(topic: string, leaving: boolean): Live<Attempts> {
  const { ns } = useSession();
  const id = useRoute().query.get("job") ?? "";
  return useLive(`attempts ${ns} ${topic} ${id}`, () => call<Attempts>("GET", `${pushPath(topic)}/attempts`, { ns, query: { id, limit: LOGGED } }), 4000, { topic, leaving });
}

function AttemptLog({ topic, live }: { topic: string; live: Live<Attempts> }) {
  const { query } = useRoute();
  const id = query.get("job") ?? "";
  const failed = query.get("failed") === "1";
  const set = (values: Record<string, string>): void => go(href(["topics", topic, "push"], { job: id, failed: failed ? "1" : "", ...values }));
  const shown = (live.data?.attempts ?? []).filter((one) => !failed || one.error).slice(0, 100);
  const tools = (
    <>
      <label class="row small"><input type="checkbox" checked={failed} onChange={() => set({ failed: failed ? "" : "1" })} />{t("Only failures")}</label>
      <Typed aria-label={t("Job id")} placeholder={t("Only this job id")} value={id} commit={(text) => set({ job: text })} />
    </>
  );
  return (
    <Panel title={t("Calls, newest first")} tools={tools}>
      <Loaded live={live}>{() => (shown.length === 0 ? <Empty title={t("No calls are in the log.")} /> : <CallTable attempts={shown} topic={topic} />)}</Loaded>
    </Panel>
  );
}

function Figures({ attempts }: { attempts: Attempt[] }) {
  const found = health(attempts)!;
  const tiles: [string, string][] = [[t("Success"), percent(found.success)], [t("Duration p50"), span(found.p50)], [t("Duration p99"), span(found.p99)], [t("Calls in the log"), `${exact(found.calls)}${found.calls === LOGGED ? "+" : ""}`]];
  return <div class="tiles">{tiles.map(([name, figure]) => <div class="panel tile" key={name}><div class="name">{name}</div><div class="figure">{figure}</div></div>)}</div>;
}

function Answers({ attempts }: { attempts: Attempt[] }) {
  const dots = attempts.map((one) => ({ atMs: one.at_ms, durationMs: one.duration_ms, ok: !one.error, told: `${date(one.at_ms)} · ${one.status ?? t("no answer")} · ${span(one.duration_ms)} · ${one.id}` }));
  const legend = <span class="legend flat small"><span><svg viewBox="0 0 12 12" class="key dots" aria-hidden="true"><circle class="ok" cx="6" cy="6" r="4" /></svg>{t("succeeded")}</span><span><svg viewBox="0 0 12 12" class="key dots" aria-hidden="true"><path class="bad" d="M2 2l8 8m0-8l-8 8" /></svg>{t("failed")}</span></span>;
  return <Panel title={t("Calls by time and duration")} tools={legend}><div class="pad"><DotPlot dots={dots} label={t("{n} calls by time and duration", { n: exact(attempts.length) })} /></div></Panel>;
}

function CallTable({ attempts, topic }: { attempts: Attempt[]; topic: string }) {
  return (
    <div class="wrap">
      <table class="cards">
        <thead><tr><th>{t("When")}</th><th>{t("Answer")}</th><th class="num">{t("Took")}</th><th>{t("Job")}</th><th class="num">{t("Attempt")}</th><th>{t("Error")}</th></tr></thead>
        <tbody>
          {attempts.map((one, at) => (
            <tr key={`${one.id} ${one.at_ms} ${at}`}>
              <td><Time ms={one.at_ms} /></td>
              <td><StateMark kind={one.error ? "bad" : "ok"} word={one.status ? String(one.status) : t("no answer")} /></td>
              <td class="num" data-label={t("Took")}>{span(one.duration_ms)}</td>
              <td><Id text={one.id} link={href(["topics", topic, "jobs", one.id])} most={28} /></td>
              <td class="num" data-label={t("Attempt")}>{exact(one.attempt)}</td>
              <td class="whole"><div class="break">{one.error}</div>{one.error && one.excerpt && <pre class="said" dir="auto">{one.excerpt}</pre>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function TargetDialog({ topic, has, close, done }: { topic: string; has: boolean; close: () => void; done: () => void }) {
  const { ns } = useSession();
  const [push, setPush] = useState<Push>();
  const [url, setUrl] = useState("");
  const [timeout, setTimeout] = useState("30s");
  const [concurrency, setConcurrency] = useState("16");
  useEffect(() => {
    if (has)
      void act(async () => {
        const found = await call<Push>("GET", pushPath(topic), { ns });
        setPush(found);
        setUrl(found.url ?? found.service ?? "");
        setTimeout(`${(found.timeout_ms ?? 30_000) / 1000}s`);
        setConcurrency(String(found.concurrency));
      }, null);
  }, []);
  const submit = async (): Promise<void> => {
    const { state: _, in_flight: __, last_error: ___, ...kept } = push ?? ({} as Push);
    const target = push?.service && url === push.service ? {} : { url, service: null };
    await call("PUT", pushPath(topic), { ns, body: { ...kept, ...target, timeout_ms: parseDuration(timeout), concurrency: Number(concurrency) } });
    toast(t("Saved"));
    done();
    close();
  };
  return (
    <Dialog title={t("Push target of {topic}", { topic })} close={close} submit={submit} action={t("Save")} disabled={!url || parseDuration(timeout) === undefined || (has && !push)}>
      <Field label={t("URL")} hint={t("Addresses of private networks must be allowed in the server's settings")}><input type="text" value={url} onInput={(event) => setUrl(event.currentTarget.value)} placeholder="https://example.com/hook" autoFocus /></Field>
      <div class="grid2">
        <Field label={t("Timeout")}><input value={timeout} onInput={(event) => setTimeout(event.currentTarget.value)} /></Field>
        <Field label={t("Calls at a time")}><input type="number" min="1" value={concurrency} onInput={(event) => setConcurrency(event.currentTarget.value)} /></Field>
      </div>
    </Dialog>
  );
}
