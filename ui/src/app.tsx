// The frame: who is logged in, the head with search, the navigation, and the view of the URL.
import { useEffect, useState } from "preact/hooks";
import { ApiError, call, type Info, onUnauthorized, type Settings } from "./api";
import { language, setLanguage, t } from "./i18n";
import icon from "./icon.svg";
import { Icon } from "./icons";
import { setLive, useLive, useLiveSwitch } from "./live";
import { Dialog, Page, Panel, Empty, Skeleton, Toasts, Trouble } from "./parts";
import { DEFAULT_NS, go, href, useRoute } from "./route";
import { Search } from "./search";
import { SessionContext, useSession, useTopics } from "./session";
import { zone } from "./format";
import { useKeys } from "./keys";
import { AccessPage } from "./pages/access";
import { DeadLetters } from "./pages/dead";
import { JobPage } from "./pages/job";
import { Login } from "./pages/login";
import { Overview } from "./pages/overview";
import { PushPage } from "./pages/push";
import { StorePage } from "./pages/store";
import { TopicPage } from "./pages/topic";
import { Topics } from "./pages/topics";

type Boot = { settings: Settings; info: Info | null };

export function App() {
  const { ns } = useRoute();
  const [, again] = useState(0);
  const boot = useLive<Boot>(`boot ${ns}`, async () => {
    const settings = await call<Settings>("GET", "/ui/settings");
    try {
      return { settings, info: await call<Info>("GET", "/v1/info", { ns }) };
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) return { settings, info: null };
      throw error;
    }
  }, 30_000);
  const isIn = Boolean(boot.data?.info);
  useEffect(() => onUnauthorized(() => isIn && boot.reload()), [isIn, ns]);
  if (!boot.data) return <div class="login">{boot.error ? <div class="panel"><Trouble error={boot.error} retry={boot.reload} />{boot.error.code === "forbidden" && <button onClick={() => go(href([], {}, DEFAULT_NS))}>{t("Go to the namespace default")}</button>}</div> : <Skeleton />}</div>;
  const { settings, info } = boot.data;
  if (!info) return <><Login settings={settings} done={boot.reload} /><Toasts /></>;
  return <Frame settings={settings} info={info} ns={ns} left={boot.reload} drawn={() => again((n) => n + 1)} key={ns} />;
}

const LISTS = new Set([undefined, "topics", "dead", "push"]);

function Frame({ settings, info, ns, left, drawn }: { settings: Settings; info: Info; ns: string; left: () => void; drawn: () => void }) {
  const { parts } = useRoute();
  const shows = LISTS.has(parts[0]) && parts.length < 2;
  const [many, setMany] = useState(false);
  const topics = useTopics(ns, shows ? (many ? 15_000 : 4000) : 30_000);
  useEffect(() => setMany((topics.data?.topics.length ?? 0) > 200), [topics.data?.topics.length]);
  const help = useKeys();
  const names = useNamespaces(ns);
  return (
    <SessionContext.Provider value={{ settings, info, ns, topics }}>
      <Head left={left} drawn={drawn} names={names} />
      <div class="body">
        <Side at={parts[0] ?? ""} />
        <main class="main" id="main"><Namespaces names={names} place="narrow" /><View parts={parts} /></main>
      </div>
      <Toasts />
      {help.open && <HelpDialog close={help.close} />}
    </SessionContext.Provider>
  );
}

function View({ parts }: { parts: string[] }) {
  const [page, name, tab, id] = parts;
  if (page === undefined) return <Overview />;
  if (page === "topics" && name === undefined) return <Topics />;
  if (page === "topics" && tab === "jobs" && id !== undefined) return <JobPage topic={name!} id={id} key={`${name} ${id}`} />;
  if (page === "topics") return <TopicPage name={name!} tab={tab ?? "jobs"} key={name} />;
  if (page === "dead") return <DeadLetters />;
  if (page === "push") return <PushPage />;
  if (page === "store") return <StorePage />;
  if (page === "access") return <AccessPage tab={name ?? "tokens"} />;
  return <Page title={t("There is no such page")}><Panel><Empty title={t("The address may be mistyped.")}><a href={href([])}>{t("Overview")}</a></Empty></Panel></Page>;
}

function Side({ at }: { at: string }) {
  const { topics, info } = useSession();
  const dead = (topics.data?.topics ?? []).reduce((sum, one) => sum + one.counts.dead, 0);
  const items: [string, string, string][] = [["", "overview", t("Overview")], ["topics", "topics", t("Topics")], ["dead", "dead", t("Dead letters")], ["push", "push", t("Push")], ["store", "store", t("Store")]];
  if (info.access.rights.includes("admin")) items.push(["access", "access", t("Access")]);
  return (
    <div class="side">
      <nav aria-label={t("Pages")}>
        {items.map(([key, mark, word]) => <a key={key} href={href(key ? [key] : [])} class={at === key ? "on" : ""} aria-current={at === key ? "page" : undefined}><Icon name={mark} />{word}{key === "dead" && dead > 0 && <span class="badge amber">{dead > 999 ? "999+" : dead}</span>}</a>)}
      </nav>
    </div>
  );
}

function Head({ left, drawn, names }: { left: () => void; drawn: () => void; names: string[] }) {
  const { settings, info } = useSession();
  const live = useLiveSwitch();
  const [theme, setTheme] = useState(document.documentElement.dataset["theme"] ?? "light");
  const flip = (): void => {
    const next = theme === "dark" ? "light" : "dark";
    localStorage.setItem("dueline.theme", next);
    document.documentElement.dataset["theme"] = next;
    setTheme(next);
  };
  const logout = async (): Promise<void> => {
    await call("POST", "/ui/logout");
    left();
  };
  const other = language() === "zh" ? "EN" : "中文";
  return (
    <header class="top">
      <a class="brand" href={href([])}><img src={icon} alt="" /><span>Dueline</span><span class="sr">Dueline</span></a>
      {settings.environment && <span class={`badge ${settings.colour}`}>{settings.environment}</span>}
      {settings.read_only && <span class="badge grey wide">{t("read only")}</span>}
      <Namespaces names={names} place="wide" />
      <Search />
      <div class="tools">
        <button class="quiet" aria-pressed={live} onClick={() => setLive(!live)} title={`${live ? t("The page refreshes itself") : t("The page does not refresh itself")} · ${zone()}`}><span class={`state s-${live ? "ok" : "idle"}`}><svg viewBox="0 0 10 10" aria-hidden="true"><circle cx="5" cy="5" r="4" /></svg></span><span class="wide">{live ? t("live") : t("stopped")}</span><span class="sr">{t("Refresh")}</span></button>
        <button class="quiet" onClick={flip} aria-label={theme === "dark" ? t("Light colours") : t("Dark colours")}><Icon name={theme === "dark" ? "sun" : "moon"} /></button>
        <button class="quiet" lang={language() === "zh" ? "en" : "zh"} onClick={() => (setLanguage(language() === "zh" ? "en" : "zh"), drawn())}>{other}</button>
        {info.auth === "tokens" && <button class="quiet" onClick={() => void logout()} aria-label={t("Log out")} title={info.access.name ?? ""}><Icon name="out" /></button>}
      </div>
    </header>
  );
}

type Names = { namespaces: { namespace: string }[]; next_cursor: string | null };

function useNamespaces(ns: string): string[] {
  const live = useLive("namespaces", () => call<Names>("GET", "/v1/namespaces", { ns, query: { limit: 200 } }), 60_000);
  return [...new Set([DEFAULT_NS, ns, ...(live.data?.namespaces ?? []).map((one) => one.namespace)])].sort();
}

/** In the head, or on a phone above the view. */
function Namespaces({ names, place }: { names: string[]; place: "wide" | "narrow" }) {
  const { ns } = useSession();
  if (names.length < 2) return null;
  return <select class={place} aria-label={t("Namespace")} value={ns} onChange={(event) => go(href([], {}, event.currentTarget.value))}>{names.map((name) => <option key={name}>{name}</option>)}</select>;
}

const KEYS: [string, string][] = [["/", "Search"], ["g o", "Overview"], ["g t", "Topics"], ["g d", "Dead letters"], ["g p", "Push"], ["g s", "Store"], ["j  k", "Next and previous row"], ["Enter", "Open the row"], ["?", "This help"]];

function HelpDialog({ close }: { close: () => void }) {
  return <Dialog title={t("Keys")} close={close}><dl class="facts">{KEYS.map(([key, word]) => <><dt><kbd>{key}</kbd></dt><dd>{t(word)}</dd></>)}</dl></Dialog>;
}
