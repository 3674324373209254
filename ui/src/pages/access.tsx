import { useState } from "preact/hooks";
import { type AuditEntry, call, part, type Token } from "../api";
import { t } from "../i18n";
import { StateMark } from "../icons";
import { useLive } from "../live";
import { CopyButton, Dialog, Empty, Field, Loaded, Page, Panel, Time, Typed, toast } from "../parts";
import { go, href, useRoute } from "../route";
import { useCan, useSession } from "../session";

type Tokens = { tokens: Token[]; next_cursor: string | null };
type Audit = { entries: AuditEntry[]; next_cursor: string | null };

const RIGHTS = ["send", "pull", "read", "manage", "push", "admin"];

export function AccessPage({ tab }: { tab: string }) {
  const { info } = useSession();
  const tabs: [string, string][] = [["tokens", t("Tokens")], ["audit", t("Audit log")]];
  return (
    <Page title={t("Access")} lead={info.auth === "tokens" ? t("Each call needs a token. You are {name}.", { name: info.access.name ?? "?" }) : t("This server checks no tokens: everyone who reaches it may do everything.")}>
      <div>
        <nav class="tabs" aria-label={t("Access")}>{tabs.map(([key, word]) => <a key={key} class={tab === key ? "on" : ""} aria-current={tab === key ? "page" : undefined} href={href(key === "tokens" ? ["access"] : ["access", key])}>{word}</a>)}</nav>
        {tab === "audit" ? <AuditTab /> : <TokensTab />}
      </div>
    </Page>
  );
}

function TokensTab() {
  const { ns } = useSession();
  const can = useCan();
  const [dialog, setDialog] = useState<{ kind: "create" } | { kind: "rotate" | "revoke"; token: Token } | null>(null);
  const [made, setMade] = useState<Token>();
  const live = useLive(`tokens ${ns}`, () => call<Tokens>("GET", "/v1/tokens", { ns, query: { limit: 500 } }), 10_000, { never: true });
  const close = (): void => setDialog(null);
  const path = (token: Token): string => `/v1/tokens/${part(token.id)}`;
  const shown = (token: Token): void => (setMade(token), live.reload(), close());
  return (
    <>
      <Panel title={t("Tokens")} tools={can("admin") && <button class="primary" onClick={() => setDialog({ kind: "create" })}>{t("Make a token")}</button>}>
        <Loaded live={live}>
          {({ tokens }) => tokens.length === 0 ? <Empty title={t("There are no tokens.")} command="dueline token create NAME --right admin --all-namespaces" /> : (
            <div class="wrap">
              <table class="cards">
                <thead><tr><th>{t("Name")}</th><th>{t("State")}</th><th>{t("Rights")}</th><th>{t("Namespace")}</th><th>{t("Topics")}</th><th>{t("Created")}</th><th>{t("Expires")}</th><th /></tr></thead>
                <tbody>
                  {tokens.map((one) => (
                    <tr key={one.id}>
                      <td class="whole"><strong class="break">{one.name}</strong> <span class="mono dim small">{one.id}</span></td>
                      <td><StateMark kind={one.state === "active" ? "ok" : "idle"} word={t(one.state)} /></td>
                      <td>{one.rights.map((right) => t(right)).join(", ")}</td>
                      <td data-label={t("Namespace")}>{one.namespace ?? t("all")}</td>
                      <td class="mono break" data-label={t("Topics")}>{one.topics.join(", ")}</td>
                      <td data-label={t("Created")}><Time ms={one.created_at_ms} /></td>
                      <td data-label={t("Expires")}><Time ms={one.expires_at_ms} none={t("never")} /></td>
                      <td class="whole"><span class="row tight">{can("admin") && one.state === "active" && <><button onClick={() => setDialog({ kind: "rotate", token: one })}>{t("Rotate")}</button><button class="danger" onClick={() => setDialog({ kind: "revoke", token: one })}>{t("Revoke")}</button></>}</span></td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
        </Loaded>
      </Panel>
      {dialog?.kind === "create" && <CreateDialog close={close} done={shown} />}
      {dialog?.kind === "rotate" && <Dialog title={t("Rotate {name}", { name: dialog.token.name })} close={close} action={t("Rotate")} submit={async () => shown(await call<Token>("POST", `${path(dialog.token)}/rotate`, { ns, body: {} }))}><p>{t("The token gets a new text. The old one stays valid for an hour.")}</p></Dialog>}
      {dialog?.kind === "revoke" && <Dialog title={t("Revoke {name}", { name: dialog.token.name })} close={close} action={t("Revoke")} danger submit={async () => { await call("DELETE", path(dialog.token), { ns }); toast(t("Revoked")); live.reload(); close(); }}><p>{t("No server accepts it after this. Logins with it end, too.")}</p></Dialog>}
      {made?.token && <Dialog title={t("The token {name}", { name: made.name })} close={() => setMade(undefined)}><p>{t("Copy its text now. It is shown only here.")}</p><pre class="code">{made.token}</pre><CopyButton text={made.token} label={t("Copy")} /></Dialog>}
    </>
  );
}

function CreateDialog({ close, done }: { close: () => void; done: (token: Token) => void }) {
  const { ns } = useSession();
  const [name, setName] = useState("");
  const [rights, setRights] = useState<string[]>(["read"]);
  const [topics, setTopics] = useState("*");
  const [expires, setExpires] = useState("90d");
  const [all, setAll] = useState(false);
  const submit = async (): Promise<void> =>
    done(await call<Token>("POST", "/v1/tokens", { ns, body: { name, rights, topics: topics.split(",").map((one) => one.trim()).filter(Boolean), ...(expires ? { expires } : {}), ...(all ? { namespace: null } : {}) } }));
  return (
    <Dialog title={t("Make a token")} close={close} submit={submit} action={t("Make a token")} disabled={!name || rights.length === 0}>
      <Field label={t("Name")} hint={t("For people: what it is for")}><input autoFocus value={name} onInput={(event) => setName(event.currentTarget.value)} /></Field>
      <fieldset class="row" style={{ border: 0, padding: 0, margin: 0 }}><legend class="small dim">{t("Rights")}</legend>{RIGHTS.map((right) => <label class="row" key={right}><input type="checkbox" checked={rights.includes(right)} onChange={() => setRights(rights.includes(right) ? rights.filter((one) => one !== right) : [...rights, right])} />{t(right)}</label>)}</fieldset>
      <div class="grid2">
        <Field label={t("Topics")} hint={t("Patterns joined with commas, such as billing-*")}><input value={topics} onInput={(event) => setTopics(event.currentTarget.value)} /></Field>
        <Field label={t("Expires in")} hint={t("Such as 90d. Empty: never")}><input value={expires} onInput={(event) => setExpires(event.currentTarget.value)} /></Field>
      </div>
      <label class="row"><input type="checkbox" checked={all} onChange={() => setAll(!all)} />{t("Valid in all namespaces, not only in {ns}", { ns })}</label>
    </Dialog>
  );
}

/** The details of an entry on one line: fields: url, retry · origin: https://example.com */
const told = (details: Record<string, unknown>): string =>
  Object.entries(details).filter(([name, value]) => name !== "ids_count" || value !== (details["ids"] as unknown[] | undefined)?.length).map(([name, value]) => `${name}: ${Array.isArray(value) ? value.join(", ") : typeof value === "object" ? JSON.stringify(value) : String(value)}`).join(" · ").slice(0, 300);

function AuditTab() {
  const { ns } = useSession();
  const { query } = useRoute();
  const action = query.get("action") ?? "";
  const who = query.get("who") ?? "";
  const cursor = query.get("cursor") ?? "";
  const live = useLive(`audit ${ns} ${action} ${who} ${cursor}`, () => call<Audit>("GET", "/v1/audit", { ns, query: { action, who, cursor, limit: 100 } }), cursor ? 0 : 8000, { never: true });
  const set = (values: Record<string, string>): void => go(href(["access", "audit"], { action, who, ...values }));
  return (
    <Panel title={t("Who changed what, newest first")} tools={<>{cursor && <button onClick={() => set({})}>{t("First page")}</button>}{live.data?.next_cursor && <button onClick={() => set({ cursor: live.data!.next_cursor! })}>{t("Next page")}</button>}</>}>
      <form class="pad filter" style={{ marginBottom: 0 }} onSubmit={(event) => event.preventDefault()}>
        <Field label={t("Action")}><Typed value={action} placeholder="delete_topic" commit={(text) => set({ action: text })} /></Field>
        <Field label={t("Token id")}><Typed value={who} commit={(text) => set({ who: text })} /></Field>
      </form>
      <Loaded live={live}>
        {({ entries }) => entries.length === 0 ? <Empty title={t("No entry matches.")} /> : (
          <div class="wrap">
            <table class="cards">
              <thead><tr><th>{t("When")}</th><th>{t("Action")}</th><th>{t("Who")}</th><th>{t("Topic")}</th><th>{t("Result")}</th><th>{t("Details")}</th></tr></thead>
              <tbody>
                {entries.map((one) => (
                  <tr key={one.id}>
                    <td><Time ms={one.at_ms} /></td>
                    <td class="mono">{one.action}</td>
                    <td><span class="ell name" title={one.who}>{one.who_name ?? (one.who || t("without a token"))}</span> <span class="dim small">{one.address ?? ""}</span></td>
                    <td>{one.topic ? <a class="ell name" title={one.topic} href={href(["topics", one.topic], {}, one.namespace)}>{one.topic}</a> : ""} {one.namespace !== ns && <span class="dim small">{one.namespace}</span>}</td>
                    <td>{one.code ? <StateMark kind="bad" word={one.code} /> : <StateMark kind="ok" word={t("done")} />}</td>
                    <td class="whole small break">{told(one.details)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Loaded>
    </Panel>
  );
}
