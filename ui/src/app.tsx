// The frame: who is logged in, the head with search, the navigation, and the view of the URL.
import { useEffect, useState } from "preact/hooks";
import { ApiError, call, type Info, onUnauthorized, type Settings } from "./api";
import { language, setLanguage, t } from "./i18n";
import icon from "./icon.svg";
import { Icon, StateMark } from "./icons";
import { follow, unfollow } from "./events";
import { isLive, onSwitch, setLive, useAway, useLive, useLiveSwitch } from "./live";
import { Page, Panel, Empty, Skeleton, Toasts, Trouble } from "./parts";
import { DEFAULT_NS, go, href, useRoute } from "./route";
import { Search } from "./search";
import { SessionContext, useSession, useTopics } from "./session";
import { zone } from "./format";
import { Keys } from "./keys";
import { AccessPage } from "./pages/access";
import { AllJobs } from "./pages/all_jobs";
import { DeadLetters } from "./pages/dead";
import { ForecastPage } from "./pages/forecast";
import { GroupsPage } from "./pages/groups";
import { JobPage } from "./pages/job";
import { Login } from "./pages/login";
import { Overview } from "./pages/overview";
import { PushPage } from "./pages/push";
import { SchedulePage } from "./pages/schedule";
import { SchedulesPage } from "./pages/schedules";
import { StorePage } from "./pages/store";
import { TopicPage } from "./pages/topic";
import { Topics } from "./pages/topics";
import { WorkersPage } from "./pages/workers";

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
  }, 30_000, { never: true });
  const isIn = Boolean(boot.data?.info);
  useEffect(() => onUnauthorized(() => isIn && boot.reload()), [isIn, ns]);
  if (!boot.data) return <div class="login">{boot.error ? <div class="panel"><Trouble error={boot.error} retry={boot.reload} />{boot.error.code === "forbidden" && <button onClick={() => go(href([], {}, DEFAULT_NS))}>{t("Go to the namespace default")}</button>}</div> : <Skeleton />}</div>;
  const { settings, info } = boot.data;
  if (!info) return <><Login settings={settings} done={boot.reload} /><Toasts /></>;
  return <Frame settings={settings} info={info} ns={ns} left={boot.reload} drawn={() => again((n) => n + 1)} key={ns} />;
}

const LISTS = new Set([undefined, "topics", "dead", "push", "workers", "forecast"]);

function Frame({ settings, info, ns, left, drawn }: { settings: Settings; info: Info; ns: string; left: () => void; drawn: () => void }) {
  const { parts } = useRoute();
  const shows = LISTS.has(parts[0]) && parts.length < 2;
  const [many, setMany] = useState(false);
  const topics = useTopics(ns, shows ? (many ? 15_000 : 4000) : 30_000, !shows);
  useEffect(() => setMany((topics.data?.topics.length ?? 0) > 200), [topics.data?.topics.length]);
  useStream(ns, info.access.topics);
  const names = useNamespaces(ns);
  return (
    <SessionContext.Provider value={{ settings, info, ns, topics, namespaces: names }}>
      <Keys>
        <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>{t("Skip to the content")}</a>
        <Head left={left} drawn={drawn} names={names} />
        <div class="body">
          <Side at={parts[0] ?? ""} />
          <main class="main" id="main" tabIndex={-1}><Namespaces names={names} place="narrow" /><View parts={parts} /></main>
        </div>
        <Toasts />
      </Keys>
    </SessionContext.Provider>
  );
}

/** Follow the server's events while the page refreshes itself. A token that is valid for certain topics gets theirs. */
function useStream(ns: string, allowed: string[]): void {
  useEffect(() => {
    const topics = allowed.includes("*") ? [] : allowed.filter((name) => !/[*?[]/.test(name));
    const turn = (): void => (isLive() && (allowed.includes("*") || topics.length > 0) ? follow(ns, topics) : unfollow());
    turn();
    const end = onSwitch(turn);
    return () => (end(), unfollow());
  }, [ns, allowed.join(" ")]);
}

function View({ parts }: { parts: string[] }) {
  const [page, name, tab, id] = parts;
  if (page === undefined) return <Overview />;
  if (page === "topics" && name === undefined) return <Topics />;
  if (page === "topics" && tab === "jobs" && id !== undefined) return <JobPage topic={name!} id={id} key={`${name} ${id}`} />;
  if (page === "topics") return <TopicPage name={name!} tab={tab ?? "jobs"} key={name} />;
  if (page === "forecast") return <ForecastPage />;
  if (page === "jobs") return <AllJobs />;
  if (page === "dead") return <DeadLetters />;
  if (page === "schedules") return name === undefined ? <SchedulesPage /> : <SchedulePage name={name} key={name} />;
  if (page === "groups") return <GroupsPage />;
  if (page === "workers") return <WorkersPage />;
  if (page === "more") return <More />;
  if (page === "push") return <PushPage />;
  if (page === "store") return <StorePage />;
  if (page === "access") return <AccessPage tab={name ?? "tokens"} />;
  return <Page title={t("There is no such page")}><Panel><Empty title={t("The address may be mistyped.")}><a href={href([])}>{t("Overview")}</a></Empty></Panel></Page>;
}

type PageLink = { key: string; icon: string; word: string };
const ON_PHONE = 4; // the bar of a phone has room for these; the others are behind "More"

function usePages(): PageLink[] {
  const { info } = useSession();
  const link = (key: string, word: string, icon = key): PageLink => ({ key, icon, word });
  const pages = [link("", t("Overview"), "overview"), link("topics", t("Topics")), link("forecast", t("Forecast")), link("dead", t("Dead letters")), link("jobs", t("Jobs")), link("schedules", t("Schedules")), link("push", t("Push")), link("groups", t("Merge groups")), link("workers", t("Workers")), link("store", t("Store"))];
  return info.access.rights.includes("admin") ? [...pages, link("access", t("Access"))] : pages;
}

function Side({ at }: { at: string }) {
  const { topics } = useSession();
  const dead = (topics.data?.topics ?? []).reduce((sum, one) => sum + one.counts.dead, 0);
  const pages = usePages();
  const isRest = pages.findIndex((one) => one.key === at) >= ON_PHONE || at === "more";
  return (
    <div class="side">
      <nav aria-label={t("Pages")}>
        {pages.map(({ key, icon, word }, index) => <a key={key} href={href(key ? [key] : [])} class={`${at === key ? "on" : ""} ${index < ON_PHONE ? "" : "rest"}`} aria-current={at === key ? "page" : undefined}><Icon name={icon} />{word}{key === "dead" && dead > 0 && <span class="badge amber">{dead > 999 ? "999+" : dead}</span>}</a>)}
        <a href={href(["more"])} class={`more ${isRest ? "on" : ""}`}><Icon name="more" />{t("More")}</a>
        <p class="zone small dim">{t("Times are those of {zone}.", { zone: zone() })}</p>
      </nav>
    </div>
  );
}

/** The pages that have no place in the bar of a phone. */
function More() {
  return <Page title={t("More")}><Panel><div class="list">{usePages().slice(ON_PHONE).map(({ key, icon, word }) => <a class="item" href={href([key])} key={key}><Icon name={icon} /><span>{word}</span></a>)}</div></Panel><p class="small dim">{t("Times are those of {zone}.", { zone: zone() })}</p></Page>;
}

function Head({ left, drawn, names }: { left: () => void; drawn: () => void; names: string[] }) {
  const { settings, info } = useSession();
  const live = useLiveSwitch();
  const away = useAway();
  const [kind, word] = !live ? ["idle", "stopped"] : away ? ["bad", "disconnected"] : ["ok", "live"];
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
        <button class="quiet" aria-pressed={live} onClick={() => setLive(!live)} title={live ? t("The page refreshes itself") : t("The page does not refresh itself")}><StateMark kind={kind!} word={<span class="wide">{t(word!)}</span>} /><span class="sr">{t("Refresh")}</span></button>
        <button class="quiet" onClick={flip} aria-label={theme === "dark" ? t("Light colours") : t("Dark colours")}><Icon name={theme === "dark" ? "sun" : "moon"} /></button>
        <button class="quiet" lang={language() === "zh" ? "en" : "zh"} aria-label={other} onClick={() => (setLanguage(language() === "zh" ? "en" : "zh"), drawn())}>{language() === "zh" ? other : <Icon name="chinese" />}</button>
        {info.auth === "tokens" && <button class="quiet" onClick={() => void logout()} aria-label={t("Log out")} title={info.access.name ?? ""}><Icon name="out" /></button>}
      </div>
    </header>
  );
}

type Names = { namespaces: { namespace: string }[]; next_cursor: string | null };

function useNamespaces(ns: string): string[] {
  const live = useLive("namespaces", () => call<Names>("GET", "/v1/namespaces", { ns, query: { limit: 200 } }), 60_000, { never: true });
  return [...new Set([DEFAULT_NS, ns, ...(live.data?.namespaces ?? []).map((one) => one.namespace)])].sort();
}

/** In the head, or on a phone above the view. */
function Namespaces({ names, place }: { names: string[]; place: "wide" | "narrow" }) {
  const { ns } = useSession();
  if (names.length < 2) return null;
  return <select class={place} aria-label={t("Namespace")} value={ns} onChange={(event) => go(href([], {}, event.currentTarget.value))}>{names.map((name) => <option key={name}>{name}</option>)}</select>;
}
