// Who looks at the page, at which server, in which namespace. Views read it; only the frame makes it.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { call, now, type Info, type Settings, type Topic, type TopicPage } from "./api";
import { type Live, useLive } from "./live";

export type Session = { settings: Settings; info: Info; ns: string; topics: Live<TopicPage>; namespaces: string[] };

export const SessionContext = createContext<Session>(null as unknown as Session);

export const useSession = (): Session => useContext(SessionContext);

/** Whether the caller has a right, which some pages need only to be seen. */
export function useHas(): (right: string) => boolean {
  const { info } = useSession();
  return (right) => info.access.rights.includes("admin") || info.access.rights.includes(right);
}

/** Whether the caller may do something here. Actions that are not allowed are not shown. */
export function useCan(): (right: string) => boolean {
  const { settings } = useSession();
  const has = useHas();
  return (right) => !settings.read_only && has(right);
}

export const MOST_TOPICS = 500;

/** The first topics of a namespace by name, with their counts: one call, without a scan. */
export const useTopics = (ns: string, everyMs: number, never: boolean): Live<TopicPage> =>
  useLive(`topics ${ns}`, () => call<TopicPage>("GET", "/v1/topics", { ns, query: { limit: MOST_TOPICS } }), everyMs, { never });

const LATE_MS = 60_000;

/** Its oldest ready job waits for long. Nobody consumes it: it is urgent; somebody does: it is behind. */
export const isBehind = (topic: Topic): boolean => !topic.paused && topic.oldest_ready_at_ms !== null && now() - topic.oldest_ready_at_ms > LATE_MS;

/** Nobody waits for jobs of this topic, although some are ready. A push target is a consumer. */
export const isDeserted = (topic: Topic): boolean => topic.counts.ready > 0 && topic.waiters === 0 && topic.counts.leased === 0 && !topic.paused && !topic.push;
