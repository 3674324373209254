// Jobs of several topics at once. Lists belong to topics, so this asks the largest ones and merges what they answer.
import { call, now, type Job, type JobPage, type State, type Topic, topicPath } from "../api";
import { exact } from "../format";
import { t } from "../i18n";
import { after, useLive } from "../live";
import { Empty, Loaded, Page, Panel } from "../parts";
import { go, href, useRoute } from "../route";
import { useSession } from "../session";
import { asked, Changes, FilterBar, filterOf, JobTable } from "./jobs";

const LOOKED_AT = 12;
const OF_EACH = 20;

type Found = { jobs: Job[]; asked: number; of: number };

/** The topics that can have such jobs, those with the most first. */
function candidates(topics: Topic[], state: string): Topic[] {
  const has = (one: Topic): number => (state ? one.counts[state as State] : Object.values(one.counts).reduce((sum, n) => sum + n, 0));
  return topics.filter((one) => has(one) > 0).sort((a, b) => has(b) - has(a));
}

export function AllJobs() {
  const { ns, topics } = useSession();
  const { query } = useRoute();
  const filter = filterOf(query);
  const list = topics.data?.topics;
  const load = async (): Promise<Found> => {
    const able = candidates(list ?? [], filter.state);
    const some = able.slice(0, LOOKED_AT);
    const pages = await Promise.all(some.map((one) => call<JobPage>("GET", `${topicPath(one.topic)}/jobs`, { ns, query: { ...asked(filter), limit: OF_EACH, body: 1 } })));
    const away = (one: Job): number => (filter.after ? one.due_at_ms : Math.abs(one.due_at_ms - now()));
    return { jobs: pages.flatMap((page) => page.jobs).sort((a, b) => away(a) - away(b)), asked: some.length, of: able.length };
  };
  const live = useLive(`all jobs ${ns} ${JSON.stringify(filter)} ${list ? "" : "wait"}`, load, 8000, { hold: () => false });
  const found = live.data;
  return (
    <Page title={t("Jobs")} lead={list && found && (found.of ? t(found.asked === found.of ? "The first {jobs} jobs of each of {n} topics. Open a topic to see all." : "The first {jobs} jobs of each of {n} topics; {of} have such jobs. Open a topic to see all.", { jobs: OF_EACH, n: found.asked, of: exact(found.of) }) : t("No topic has such jobs."))}>
      <div>
        <FilterBar filter={filter} set={(values) => go(href(["jobs"], { ...filter, ...values }))} topic={null} />
        <Panel label={t("Jobs")} title={t("Jobs")} tools={<Changes live={live} />}>
          <Loaded live={after(topics, live)} lines={8}>
            {({ jobs }) => jobs.length === 0 ? <Empty title={Object.values(filter).some(Boolean) ? t("No job matches.") : t("There are no jobs.")} {...(Object.values(filter).some(Boolean) ? {} : { command: `dueline send emails '{"to": "ann"}' --in 1s` })} /> : <JobTable jobs={jobs} chosen={null} choose={() => undefined} withTopic />}
          </Loaded>
        </Panel>
      </div>
    </Page>
  );
}
