import { call, type Info, type LimitUse, type Readiness, type Shard } from "../api";
import { bytes, exact, span } from "../format";
import { t } from "../i18n";
import { StateMark } from "../icons";
import { useLive } from "../live";
import { capital, Empty, Loaded, Num, Page, Panel, Trouble } from "../parts";
import { useSession } from "../session";

export const LEVELS: Record<string, string> = {
  fsync: "A success means: on disk. A crash of any process loses nothing.",
  replicated: "A success means: a second node has it.",
  standard: "A success means what the store is configured for.",
};
const CALLERS: Record<string, string> = { none: "everyone", header: "token in a header", path: "token in a header or path", network: "certain networks", off: "off" };

export function StorePage() {
  const { ns, topics } = useSession();
  const dropped = topics.data?.topics.reduce((sum, one) => sum + one.history_dropped, 0);
  const ready = useLive("ready", () => call<Readiness>("GET", "/readyz"), 4000, { never: true });
  const live = useLive(`info ${ns}`, () => call<Info>("GET", "/v1/info", { ns }), 8000, { never: true });
  const problems = [...(ready.data?.reasons ?? []), ...(ready.data?.warnings ?? [])];
  return (
    <Page title={t("Store")} lead={ready.data && (ready.data.ready ? (problems.length ? t("The server accepts jobs, with warnings.") : t("The server accepts and delivers jobs.")) : t("The server is not ready."))}>
      {ready.error && !ready.data && <Trouble error={ready.error} retry={ready.reload} />}
      {problems.map((one) => <div key={one.code} class={`alert ${ready.data?.reasons?.includes(one) ? "red" : "amber"}`}><div><strong class="mono small">{one.code}</strong><div>{capital(one.message)}</div></div></div>)}
      <Loaded live={live}>
        {(info) => (
          <div class="cols">
            <div class="stack">
              <Panel title={t("Server and store")} tools={ready.data && <StateMark kind={ready.data.ready ? "ok" : "bad"} word={ready.data.ready ? t("ready") : t("not ready")} />}>
                <dl class="facts pad">
                  <dt>{t("Store")}</dt><dd>{info.store}</dd>
                  <dt>{t("Durability")}</dt><dd><strong>{info.durability}</strong><div class="dim">{t(LEVELS[info.durability] ?? "")}</div></dd>
                  <dt>{t("Clock")}</dt><dd>{Math.abs(info.clock_offset_ms) < 5 ? t("The server's clock agrees with the store's.") : t("The store's clock is {span} {way} the server's.", { span: span(info.clock_offset_ms), way: info.clock_offset_ms > 0 ? t("ahead of") : t("behind") })}</dd>
                  {info.disk_free_bytes !== null && <><dt>{t("Free disk")}</dt><dd>{bytes(info.disk_free_bytes)}</dd></>}
                  <dt>{t("Histories")}</dt><dd>{dropped ? <span class="amber-text">{t("{n} entries did not fit the budget (limits.max_history_bytes).", { n: exact(dropped) })}</span> : dropped === 0 ? t("All entries fit the budget.") : "–"}</dd>
                  <dt>{t("Version")}</dt><dd>{info.version}</dd>
                  <dt>{t("Access")}</dt><dd>{info.auth === "tokens" ? t("Each call needs a token.") : t("Everyone who reaches the server may do everything.")}</dd>
                </dl>
              </Panel>
              <Panel title={info.shards.length > 1 ? t("Shards") : t("Memory and replicas")}><ShardTable rows={info.shards} /></Panel>
              <Panel title={t("Limits in use")}><LimitTable rows={info.limits_in_use} /></Panel>
            </div>
            <div class="stack">
              <Panel title={t("Protocols")}><dl class="facts pad"><dt>native</dt><dd>{t(info.auth === "tokens" ? "token in a header" : "everyone")}</dd>{Object.entries(info.dialects).map(([name, who]) => <><dt>{name}</dt><dd>{t(CALLERS[who] ?? who)}</dd></>)}</dl></Panel>
              <Panel title={t("Bounds")}><dl class="facts pad">{Object.entries(info.limits).map(([name, value]) => <><dt class="mono">{name}</dt><dd title={exact(value)}>{bound(name, value)}</dd></>)}</dl></Panel>
            </div>
          </div>
        )}
      </Loaded>
    </Page>
  );
}

/** A limit in the unit that its name ends with. */
const bound = (name: string, value: number): string => (name.endsWith("_bytes") ? bytes(value) : name.endsWith("_ms") ? span(value) : exact(value));

function Memory({ one }: { one: Shard }) {
  if (one.max_memory_bytes === null) return <>{bytes(one.memory_bytes)} <span class="dim">{t("without a limit")}</span></>;
  const share = Math.min(1, one.memory_bytes / one.max_memory_bytes);
  return <span class="fill"><span class="progress" role="img" aria-label={t("{n} % used", { n: Math.round(share * 100) })}><span style={{ width: `${share * 100}%` }} /></span><span>{bytes(one.memory_bytes)} / {bytes(one.max_memory_bytes)}</span></span>;
}

function ShardTable({ rows }: { rows: Shard[] }) {
  if (!rows.length) return <Empty title={t("The store has not answered yet.")} />;
  return (
    <div class="wrap">
      <table class="cards">
        <thead><tr><th>{t("Node")}</th><th>{t("Role")}</th><th>{t("Memory")}</th><th class="num">{t("Replicas")}</th><th>{t("Append-only file")}</th></tr></thead>
        <tbody>{rows.map((one) => <tr key={one.name}><td class="whole mono break">{one.name}</td><td data-label={t("Role")}>{t(one.role)}</td><td class="whole"><Memory one={one} /></td><td class="num" data-label={t("Replicas")}>{exact(one.replicas)}</td><td><StateMark kind={one.aof_ok ? "ok" : "bad"} word={one.aof_ok ? t("written") : t("not written")} /></td></tr>)}</tbody>
      </table>
    </div>
  );
}

function LimitTable({ rows }: { rows: LimitUse[] }) {
  return (
    <div class="wrap">
      <table class="cards">
        <thead><tr><th>{t("Limit")}</th><th class="num">{t("Used")}</th><th class="num">{t("Maximum")}</th><th class="num">{t("Refused")}</th></tr></thead>
        <tbody>{rows.map((one, at) => <tr key={at}><td class="mono whole">{one.limit}</td><td class="num" data-label={t("Used")}>{one.used === null ? "–" : <Num n={Math.round(one.used)} whole />}</td><td class="num" data-label={t("Maximum")}><Num n={one.max} whole /></td><td class="num" data-label={t("Refused")}><Num n={one.refused} /></td></tr>)}</tbody>
      </table>
    </div>
  );
}
