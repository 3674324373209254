// The parts that every view is made of.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, type State } from "./api";
import { date, exact, iso, middle, relative, short, span } from "./format";
import { t } from "./i18n";
import { Icon, StateMark } from "./icons";
import type { Live } from "./live";
import { DEFAULT_NS, route } from "./route";

type Children = { children?: ComponentChildren };

export function Num({ n, label, whole }: { n: number; label?: string; whole?: boolean }) {
  return <span class={n === 0 ? "zero" : undefined} title={label ?? exact(n)}>{whole ? exact(n) : short(n)}</span>;
}

export function Time({ ms, none = "–", brief = false }: { ms: number | null | undefined; none?: string; brief?: boolean }) {
  if (!ms) return <span class={none === "–" ? "zero" : "dim"}>{none}</span>;
  return <time dateTime={iso(ms)} title={`${date(ms)} · ${iso(ms)}`}>{relative(ms, brief)}</time>;
}

export const Exact = ({ ms }: { ms: number | null | undefined }) => (ms ? <span>{date(ms)} <span class="dim">({relative(ms)})</span></span> : <span class="zero">–</span>);

export const WORDS: Record<State, string> = { scheduled: "scheduled", ready: "ready", leased: "leased", done: "done", dead: "dead", cancelled: "cancelled" };

export const JobState = ({ state }: { state: string }) => <StateMark kind={state} word={t(WORDS[state as State] ?? state)} />;

export function Id({ text, link, most = 40 }: { text: string; link?: string; most?: number }) {
  const shown = middle(text, most);
  return link ? <a class="mono" href={link} title={text}>{shown}</a> : <span class="mono" title={text}>{shown}</span>;
}

export const Tags = ({ tags }: { tags: string[] }) => <>{tags.map((tag) => <span class="tag" title={tag} key={tag}>{tag}</span>)}</>;

export const Headers = ({ of }: { of: Record<string, string> }) => <>{Object.entries(of).map(([name, value]) => <div class="mono" key={name}><span class="dim">{name}:</span> {value}</div>)}</>;

export function Panel({ title, tools, children, label }: Children & { title?: ComponentChildren; tools?: ComponentChildren; label?: string }) {
  return (
    <section class="panel" aria-label={label}>
      {(title || tools) && <header>{title && <h2>{title}</h2>}{tools && <span class="row push-right">{tools}</span>}</header>}
      {children}
    </section>
  );
}

export function Page({ title, lead, actions, crumb, children }: Children & { title: ComponentChildren; lead?: ComponentChildren; actions?: ComponentChildren; crumb?: ComponentChildren }) {
  return (
    <>
      <div class="head">
        <div>
          {crumb && <div class="crumb">{crumb}</div>}
          <h1>{title}</h1>
          {lead && <p class="lead">{lead}</p>}
        </div>
        {actions && <div class="row">{actions}</div>}
      </div>
      <div class="stack">{children}</div>
    </>
  );
}

export const Skeleton = ({ lines = 4 }: { lines?: number }) => (
  <div role="status" aria-label={t("Loading")}>{Array.from({ length: lines }, (_, at) => <div class="skel" key={at} />)}</div>
);

/** `command`: what makes it not empty, typed for the namespace that is shown. */
export function Empty({ title, children, command }: Children & { title: string; command?: string }) {
  const { ns } = route();
  return <div class="empty"><strong>{title}</strong>{children && <span>{children}</span>}{command && <code>{ns === DEFAULT_NS ? command : `DUELINE_NAMESPACE=${ns} ${command}`}</code>}</div>;
}

export const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/** What went wrong, why, and what to do. */
export function Trouble({ error, retry }: { error: ApiError; retry?: () => void }) {
  const advice =
    error.away ? t("Is it running? This page tries again by itself.")
    : error.code === "forbidden" ? t("Your token does not allow this. Ask an administrator, or log in with another token.")
    : error.code === "version_mismatch" ? t("Somebody else has changed it meanwhile. Close this and look at it again.")
    : error.status === 404 ? t("It may have ended and been removed, or it belongs to another namespace.")
    : error.status === 503 ? t("Nothing is lost. This page tries again by itself.") : "";
  return (
    <div class="alert red" role="alert">
      <Icon name="warn" />
      <div><strong>{capital(t(error.message))}</strong>{error.field && <span> ({error.field})</span>} <span class="small mono">{error.code}</span><div class="small">{advice}</div></div>
      {retry && <button onClick={retry}>{t("Retry")}</button>}
    </div>
  );
}

/** Show live data: a skeleton before it, trouble instead of it, and a note when it is old. */
export function Loaded<T>({ live, children, lines }: { live: Live<T>; children: (data: T) => ComponentChildren; lines?: number }) {
  if (live.data === undefined) return live.error ? <Trouble error={live.error} retry={live.reload} /> : <Skeleton lines={lines ?? 4} />;
  const old = live.error && Date.now() - live.atMs > 8000;
  return (
    <>
      {live.error && <div class="alert amber stale" role="status"><Icon name="warn" /><div>{t(live.error.message)} {t("What you see is {span} old.", { span: span(Date.now() - live.atMs) })}</div></div>}
      <div class={`stack${live.error ? " aged" : ""}${old ? " old" : ""}`}>{children(live.data)}</div>
    </>
  );
}

/** `brief`: only the icon, beside a text. */
export function CopyButton({ text, label, brief = false }: { text: string; label: string; brief?: boolean }) {
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      toast(t("Copied"));
    } catch {
      toast(t("The browser did not allow copying. Select the text instead."), true);
    }
  };
  if (brief) return <button type="button" class="quiet brief" aria-label={label} title={label} onClick={() => void copy()}><Icon name="copy" /></button>;
  return <button type="button" onClick={() => void copy()}><Icon name="copy" />{label}</button>;
}

export function Field({ label, hint, children }: Children & { label: string; hint?: ComponentChildren }) {
  return <div class="field"><label><span>{label}</span>{children}</label>{hint && <span class="hint">{hint}</span>}</div>;
}

type TypedProps = { value: string; commit: (text: string) => void; time?: boolean; placeholder?: string; "aria-label"?: string };

/** A text that counts when it is committed (Enter, or leaving the field). What is typed until then stays, however often the page is drawn. */
export function Typed({ value, commit, time, ...rest }: TypedProps) {
  const [typed, setTyped] = useState<string | null>(null);
  const hooks = {
    value: typed ?? value,
    onInput: (event: { currentTarget: HTMLInputElement }) => setTyped(event.currentTarget.value),
    onChange: (event: { currentTarget: HTMLInputElement }) => (commit(event.currentTarget.value), setTyped(null)),
  };
  return time ? <input {...rest} {...hooks} type="datetime-local" step="1" /> : <input {...rest} {...hooks} />;
}

// --- dialogs

type DialogProps = Children & { title: string; close: () => void; submit?: () => Promise<void> | void; action?: string; danger?: boolean; disabled?: boolean; done?: string };

export function Dialog({ title, close, submit, action, danger, disabled, children, done }: DialogProps) {
  const box = useRef<HTMLDialogElement>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  useEffect(() => {
    const dialog = box.current;
    if (dialog && !dialog.open) dialog.showModal();
  }, []);
  const sent = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (!submit || busy || disabled) return;
    setBusy(true);
    setError(undefined);
    try {
      await submit();
    } catch (reason) {
      setError(reason instanceof ApiError ? reason : new ApiError(0, "page", String(reason)));
    }
    setBusy(false);
  };
  return (
    <dialog ref={box} onClose={close} aria-label={title}>
      <form onSubmit={(event) => void sent(event)}>
        <header>{title}</header>
        <div class="pad">{children}{error && <Trouble error={error} />}</div>
        <footer>
          <button type="button" class="quiet" onClick={() => box.current?.close()}>{done ?? t("Close")}</button>
          {action && <button type="submit" class={danger ? "primary danger" : "primary"} disabled={busy || disabled}>{busy ? t("Working…") : action}</button>}
        </footer>
      </form>
    </dialog>
  );
}

// --- messages

type Message = { id: number; text: string; bad: boolean };
let messages: Message[] = [];
let draw: (list: Message[]) => void = () => undefined;
let count = 0;

export function toast(text: string, bad = false): void {
  const id = ++count;
  messages = [...messages.slice(-3), { id, text, bad }];
  draw(messages);
  setTimeout(() => {
    messages = messages.filter((one) => one.id !== id);
    draw(messages);
  }, bad ? 10_000 : 4000);
}

export function Toasts() {
  const [list, setList] = useState<Message[]>([]);
  draw = setList;
  return <div class="toasts" role="status" aria-live="polite">{list.map((one) => <div key={one.id} class={one.bad ? "toast bad" : "toast"}>{one.text}</div>)}</div>;
}

/** Do something and say so; say why if it failed. */
export async function act(what: () => Promise<unknown>, done: string | null, after?: () => void): Promise<void> {
  try {
    await what();
    if (done) toast(done);
  } catch (error) {
    toast(error instanceof ApiError ? `${t(error.message)} (${error.code})` : String(error), true);
  }
  after?.();
}
