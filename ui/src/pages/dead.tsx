import { useState } from "preact/hooks";
import { type Bulk, call, type DeadPage, type Job, jobPath, now, topicPath } from "../api";
import { MiniBars } from "../charts";
import { exact } from "../format";
import { t } from "../i18n";
import { Row } from "../keys";
import { useLive } from "../live";
import { Empty, Id, Loaded, Num, Page, Panel, Time, Typed } from "../parts";
import { go, href, useRoute } from "../route";
import { useCan, useSession } from "../session";
import { BulkDialog, byIds } from "./bulk";
import { Body } from "./job";
import { Changes, JobTable } from "./jobs";

const PAGE = 500; // the most that one call lists
const GROUPED = 1000;
const LOOKED_AT = 20; // topics whose reasons the page over all topics reads
const REASONS = ["exhausted", "expired", "rejected", "corrupt"];
const DAY_MS = 86_400_000;
const HOURS = 24;

type Reasons = Map<string, Record<string, number>>;

export function DeadLetters() {
  const { ns, topics: live } = useSession();
  const found = (live.data?.topics ?? []).filter((one) => one.counts.dead > 0).sort((a, b) => b.counts.dead - a.counts.dead);
  const all = found.reduce((sum, one) => sum + one.counts.dead, 0);
  const asked = found.slice(0, LOOKED_AT).map((one) => one.topic);
  const load = async (): Promise<Reasons> => new Map(await Promise.all(asked.map(async (topic) => [topic, (await call<DeadPage>("GET", `${topicPath(topic)}/dead`, { ns, query: { limit: 1, body: 0 } })).by_reason] as const)));
  const reasons = useLive(`reasons ${ns} ${asked.join(" ")}`, load, 10_000);
  const of = (reason: string): number => [...(reasons.data?.values() ?? [])].reduce((sum, one) => sum + (one[reason] ?? 0), 0);
  return (
    <Page title={t("Dead letters")} lead={live.data && (all ? t("{n} dead letters", { n: exact(all) }) + t(" in {n} topics. They are kept until they are revived or purged, or their retention ends.", { n: found.length }) : t("No job has died."))}>
      <Loaded live={live}>
        {() => found.length === 0 ? <Panel><Empty title={t("No job has died.")}>{t("A job is dead when its attempts are used up, it expired, or a consumer rejected it.")}</Empty></Panel> : (
          <>
            <div class="tiles">{REASONS.map((reason) => <div class="panel tile" key={reason}><div class="name">{t(reason)}</div><div class="figure">{reasons.data ? <Num n={of(reason)} /> : "…"}</div><div class="note">{t(WHY[reason]!)}</div></div>)}</div>
            <Panel label={t("Dead letters")}>
              <div class="wrap">
                <table class="cards">
                  <thead><tr><th>{t("Topic")}</th><th class="num">{t("dead")}</th>{REASONS.map((reason) => <th class="num" key={reason}>{t(reason)}</th>)}<th class="num">{t("unfinished")}</th></tr></thead>
                  <tbody>
                    {found.map((one) => (
                      <Row key={one.topic} link={href(["topics", one.topic, "dead"])}>
                        <td class="whole"><a class="ell" title={one.topic} href={href(["topics", one.topic, "dead"])}>{one.topic}</a></td>
                        <td class="num" data-label={t("dead")}><strong><Num n={one.counts.dead} /></strong></td>
                        {REASONS.map((reason) => <td class="num" data-label={t(reason)} key={reason}>{reasons.data?.has(one.topic) ? <Num n={reasons.data.get(one.topic)?.[reason] ?? 0} /> : <span class="zero">–</span>}</td>)}
                        <td class="num" data-label={t("unfinished")}><Num n={one.counts.scheduled + one.counts.ready + one.counts.leased} /></td>
                      </Row>
                    ))}
                  </tbody>
                </table>
              </div>
            </Panel>
          </>
        )}
      </Loaded>
    </Page>
  );
}

const WHY: Record<string, string> = { exhausted: "all attempts failed", expired: "not done in time", rejected: "a consumer said stop", corrupt: "a record was damaged" };

type Group = { key: string; reason: string; error: string; jobs: Job[] };

/** Errors that differ only in numbers are one. */
function grouped(jobs: Job[]): Group[] {
  const groups = new Map<string, Group>();
  for (const job of jobs) {
    const error = (job.last_error ?? "").split("\n")[0]!.slice(0, 200);
    const key = `${job.reason} ${error.replace(/\d+/g, "#")}`;
    const group = groups.get(key) ?? { key, reason: job.reason ?? "dead", error, jobs: [] };
    group.jobs.push(job);
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => b.jobs.length - a.jobs.length);
}

/** How many died in each of the last 24 hours. */
function hourly(jobs: Job[]): number[] {
  const bars = Array.from({ length: HOURS }, () => 0);
  for (const job of jobs) {
    const ago = Math.floor((now() - (job.ended_at_ms ?? 0)) / (DAY_MS / HOURS));
    if (ago >= 0 && ago < HOURS) bars[HOURS - 1 - ago]! += 1;
  }
  return bars;
}

/** The newest dead jobs, in as many calls as it takes. The API lists one partition after the other, and those with a tag
 * from the oldest on. */
async function newest(ns: string, topic: string, tag: string): Promise<DeadPage> {
  const jobs: Job[] = [];
  let page: DeadPage | undefined;
  do {
    page = await call<DeadPage>("GET", `${topicPath(topic)}/dead`, { ns, query: { tag, newest: tag ? null : 1, limit: PAGE, cursor: page?.next_cursor } });
    jobs.push(...page.jobs);
  } while (page.next_cursor !== null && jobs.length < GROUPED);
  return { ...page, jobs: jobs.slice(0, GROUPED) };
}

type Chosen = { what: "revive" | "purge"; ids: string[] | null };

/** Which ones are grouped, if there are more. */
function which(page: DeadPage, tag: string, partitions: number): string {
  if (!page.next_cursor) return "";
  const n = exact(page.jobs.length);
  if (tag) return t("Only the first {n} with this tag are grouped.", { n });
  return partitions > 1 ? t("Only {n} are grouped, the newest of each partition in turn.", { n }) : t("Only the newest {n} are grouped.", { n });
}

export function DeadTab({ topic, partitions }: { topic: string; partitions: number }) {
  const { ns } = useSession();
  const can = useCan();
  const { query } = useRoute();
  const tag = query.get("tag") ?? "";
  const reason = query.get("reason") ?? "";
  const since = Number(query.get("since")) || 0;
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const [bulk, setBulk] = useState<Chosen | null>(null);
  const [only, setOnly] = useState("");
  const live = useLive(`dead ${ns} ${topic} ${tag}`, () => newest(ns, topic, tag), 8000, { topic, hold: () => chosen.size > 0 || bulk !== null });
  const set = (values: Record<string, string | number>): void => (setOnly(""), setChosen(new Set()), go(href(["topics", topic, "dead"], { tag, reason, since, ...values })));
  const change = (what: "revive" | "purge", ids: string[] | null, dry: boolean): Promise<Bulk> => {
    const path = `${topicPath(topic)}/dead/${what}`;
    return ids ? byIds(ids, dry, (some) => call("POST", path, { ns, body: { ids: some } })) : call<Bulk>("POST", path, { ns, body: { filter: tag ? { tag } : {}, dry_run: dry } });
  };
  return (
    <Loaded live={live} lines={6}>
      {(page) => {
        const narrowed = Boolean(reason || since);
        const listed = page.jobs.filter((one) => (!reason || one.reason === reason) && (!since || (one.ended_at_ms ?? 0) >= now() - since));
        const groups = grouped(listed);
        const group = groups.find((one) => one.key === only);
        const shown = (group?.jobs ?? listed).slice(0, 100);
        const picked = chosen.size ? [...chosen] : group ? group.jobs.map((one) => one.id) : narrowed ? listed.map((one) => one.id) : null;
        const buttons = can("manage") && listed.length > 0 && (
          <>
            <Changes live={live} />
            <button onClick={() => setBulk({ what: "revive", ids: picked })}>{picked ? t("Revive these…") : tag ? t("Revive all that match…") : t("Revive all…")}</button>
            <button class="danger" onClick={() => setBulk({ what: "purge", ids: picked })}>{picked ? t("Purge these…") : tag ? t("Purge all that match…") : t("Purge all…")}</button>
          </>
        );
        return (
          <>
            <div class="tiles">{Object.entries(page.by_reason).map(([name, count]) => <button class={`panel tile${reason === name ? " on" : ""}`} aria-pressed={reason === name} key={name} onClick={() => set({ reason: reason === name ? "" : name })}><span class="name">{t(name)}</span><span class="figure"><Num n={count} /></span></button>)}</div>
            {page.jobs.length > 0 && <Groups groups={groups} only={only} choose={(key) => (setOnly(key), setChosen(new Set()))} note={which(page, tag, partitions)} />}
            {group && <Example job={group.jobs[0]!} />}
            <Panel title={chosen.size ? t("{n} chosen", { n: chosen.size }) : group ? t("{n} jobs with this error", { n: group.jobs.length }) : t("{n} jobs", { n: exact(listed.length) })} tools={buttons}>
              <form class="pad filter" style={{ marginBottom: 0 }} onSubmit={(event) => event.preventDefault()}>
                <select aria-label={t("Reason")} value={reason} onChange={(event) => set({ reason: event.currentTarget.value })}><option value="">{t("any reason")}</option>{REASONS.map((one) => <option value={one} key={one}>{t(one)}</option>)}</select>
                <select aria-label={t("Died")} value={String(since || "")} onChange={(event) => set({ since: event.currentTarget.value })}><option value="">{t("at any time")}</option><option value="3600000">{t("in the last hour")}</option><option value="86400000">{t("in the last 24 hours")}</option><option value="604800000">{t("in the last 7 days")}</option></select>
                <Typed aria-label={t("Tag")} placeholder={t("Tag")} value={tag} commit={(text) => set({ tag: text })} />
              </form>
              {listed.length === 0 ? <Empty title={tag || narrowed ? t("No job matches.") : t("No job has died.")} /> : <JobTable jobs={shown} chosen={can("manage") ? chosen : null} choose={setChosen} dead />}
              {(group?.jobs ?? listed).length > shown.length && <p class="pad dim small">{t("The first {n} are shown.", { n: shown.length })}</p>}
            </Panel>
            {bulk && (
              <BulkDialog danger={bulk.what === "purge"} title={bulk.what === "revive" ? t("Revive dead jobs") : t("Purge dead jobs")} topic={topic} action={bulk.what === "revive" ? t("Revive the jobs") : t("Purge the jobs")} close={() => setBulk(null)}
                done={() => (setChosen(new Set()), live.reload())} run={(dry) => change(bulk.what, bulk.ids, dry)} changed={(answer) => answer.revived ?? answer.purged ?? answer.cancelled ?? 0}>
                <p class="dim">{bulk.what === "revive" ? t("They are due at once, and their attempts begin again.") : t("They are deleted for ever.")}</p>
              </BulkDialog>
            )}
          </>
        );
      }}
    </Loaded>
  );
}

/** One job of a group, to see what died and why. It is read once: its whole body and error. */
function Example({ job }: { job: Job }) {
  const { ns } = useSession();
  const live = useLive(`example ${ns} ${job.topic} ${job.id} ${job.version}`, () => call<Job>("GET", jobPath(job.topic, job.id), { ns }), 0, { never: true });
  const link = href(["topics", job.topic, "jobs", job.id]);
  return (
    <div class="example"><Loaded live={live}>
      {(found) => <Body job={found} title={<>{t("An example")}: <Id text={found.id} link={link} /></>}>{found.last_error && <p class="said" dir="auto">{found.last_error}</p>}</Body>}
    </Loaded></div>
  );
}

function Groups({ groups, only, choose, note }: { groups: Group[]; only: string; choose: (key: string) => void; note: string }) {
  return (
    <Panel title={t("By reason and error")} tools={<span class="dim small">{note}</span>}>
      <div class="wrap">
        <table class="cards">
          <thead><tr><th>{t("Reason")}</th><th>{t("Error")}</th><th class="num">{t("Jobs")}</th><th>{t("Last 24 hours")}</th><th>{t("Latest")}</th></tr></thead>
          <tbody>
            {groups.slice(0, 20).map((one) => (
              <tr key={one.key} class={one.key === only ? "at" : ""}>
                <td>{t(one.reason)}</td>
                <td class="whole"><button class="link break" aria-pressed={one.key === only} onClick={() => choose(one.key === only ? "" : one.key)}><span class="ell long" title={one.error}>{one.error || t("no error was given")}</span></button></td>
                <td class="num" data-label={t("Jobs")}><Num n={one.jobs.length} /></td>
                <td><MiniBars values={hourly(one.jobs)} label={t("{n} in the last 24 hours", { n: exact(hourly(one.jobs).reduce((sum, n) => sum + n, 0)) })} /></td>
                <td data-label={t("Latest")}><Time ms={Math.max(...one.jobs.map((job) => job.ended_at_ms ?? 0))} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
