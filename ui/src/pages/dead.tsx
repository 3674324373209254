import { useState } from "preact/hooks";
import { type Bulk, call, type DeadPage, type Job, topicPath } from "../api";
import { exact } from "../format";
import { t } from "../i18n";
import { useLive } from "../live";
import { Empty, Loaded, Num, Page, Panel, Time } from "../parts";
import { go, href, useRoute } from "../route";
import { useCan, useSession } from "../session";
import { BulkDialog, byIds } from "./bulk";
import { JobTable } from "./jobs";

const GROUPED = 500;

export function DeadLetters() {
  const { topics: live } = useSession();
  const found = (live.data?.topics ?? []).filter((one) => one.counts.dead > 0).sort((a, b) => b.counts.dead - a.counts.dead);
  const all = found.reduce((sum, one) => sum + one.counts.dead, 0);
  return (
    <Page title={t("Dead letters")} lead={live.data && (all ? t("{n} dead letters", { n: exact(all) }) + t(" in {n} topics. They are kept until they are revived or purged, or their retention ends.", { n: found.length }) : t("No job has died."))}>
      <Loaded live={live}>
        {() => (
          <Panel label={t("Dead letters")}>
            {found.length === 0 ? <Empty title={t("No job has died.")}>{t("A job is dead when its attempts are used up, it expired, or a consumer rejected it.")}</Empty> : (
              <div class="wrap">
                <table class="cards">
                  <thead><tr><th>{t("Topic")}</th><th class="num">{t("dead")}</th><th class="num">{t("unfinished")}</th><th>{t("Next due")}</th></tr></thead>
                  <tbody>
                    {found.map((one) => (
                      <tr key={one.topic} data-link={href(["topics", one.topic, "dead"])}>
                        <td class="whole"><a class="ell" title={one.topic} href={href(["topics", one.topic, "dead"])}>{one.topic}</a></td>
                        <td class="num" data-label={t("dead")}><Num n={one.counts.dead} /></td>
                        <td class="num" data-label={t("unfinished")}><Num n={one.counts.scheduled + one.counts.ready + one.counts.leased} /></td>
                        <td data-label={t("Next due")}><Time ms={one.next_due_at_ms} /></td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            )}
          </Panel>
        )}
      </Loaded>
    </Page>
  );
}

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

export function DeadTab({ topic }: { topic: string }) {
  const { ns } = useSession();
  const can = useCan();
  const { query } = useRoute();
  const tag = query.get("tag") ?? "";
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const [bulk, setBulk] = useState<{ what: "revive" | "purge"; ids: string[] | null } | null>(null);
  const [only, setOnly] = useState("");
  const live = useLive(`dead ${ns} ${topic} ${tag}`, () => call<DeadPage>("GET", `${topicPath(topic)}/dead`, { ns, query: { tag, limit: GROUPED, body: 1 } }), 8000);
  const change = (what: "revive" | "purge", ids: string[] | null, dry: boolean): Promise<Bulk> => {
    const path = `${topicPath(topic)}/dead/${what}`;
    return ids ? byIds(ids, dry, () => call("POST", path, { ns, body: { ids } })) : call<Bulk>("POST", path, { ns, body: { filter: tag ? { tag } : {}, dry_run: dry } });
  };
  return (
    <Loaded live={live} lines={6}>
      {(page) => {
        const groups = grouped(page.jobs);
        const group = groups.find((one) => one.key === only);
        const shown = (group?.jobs ?? page.jobs).slice(0, 100);
        const picked = chosen.size ? [...chosen] : group ? group.jobs.map((one) => one.id) : [];
        return (
          <>
            <div class="tiles">{Object.entries(page.by_reason).map(([reason, count]) => <div class="panel tile" key={reason}><div class="name">{t(reason)}</div><div class="figure"><Num n={count} /></div></div>)}</div>
            {page.jobs.length > 0 && (
              <Panel title={t("By reason and error")} tools={<span class="dim small">{page.next_cursor ? t("of the first {n} listed", { n: exact(page.jobs.length) }) : ""}</span>}>
                <div class="wrap">
                  <table class="cards">
                    <thead><tr><th>{t("Reason")}</th><th>{t("Error")}</th><th class="num">{t("Jobs")}</th><th>{t("Latest")}</th></tr></thead>
                    <tbody>
                      {groups.slice(0, 20).map((one) => (
                        <tr key={one.key} class={one.key === only ? "at" : ""}>
                          <td>{t(one.reason)}</td>
                          <td class="whole"><button class="link break" aria-pressed={one.key === only} onClick={() => (setOnly(one.key === only ? "" : one.key), setChosen(new Set()))}><span class="ell" title={one.error}>{one.error || t("no error was given")}</span></button></td>
                          <td class="num" data-label={t("Jobs")}><Num n={one.jobs.length} /></td>
                          <td data-label={t("Latest")}><Time ms={Math.max(...one.jobs.map((job) => job.ended_at_ms ?? 0))} /></td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
                </div>
              </Panel>
            )}
            <Panel
              title={chosen.size ? t("{n} chosen", { n: chosen.size }) : group ? t("{n} jobs with this error", { n: group.jobs.length }) : t("Jobs")}
              tools={can("manage") && page.jobs.length > 0 && (
                <>
                  {picked.length > 0 && <><button onClick={() => setBulk({ what: "revive", ids: picked })}>{t("Revive these…")}</button><button class="danger" onClick={() => setBulk({ what: "purge", ids: picked })}>{t("Purge these…")}</button></>}
                  {picked.length === 0 && <><button onClick={() => setBulk({ what: "revive", ids: null })}>{tag ? t("Revive all that match…") : t("Revive all…")}</button><button class="danger" onClick={() => setBulk({ what: "purge", ids: null })}>{tag ? t("Purge all that match…") : t("Purge all…")}</button></>}
                </>
              )}
            >
              <form class="pad filter" style={{ marginBottom: 0 }} onSubmit={(event) => event.preventDefault()}>
                <input aria-label={t("Tag")} placeholder={t("Tag")} value={tag} onChange={(event) => go(href(["topics", topic, "dead"], { tag: event.currentTarget.value }))} />
              </form>
              {page.jobs.length === 0 ? <Empty title={tag ? t("No job matches.") : t("No job has died.")} /> : <JobTable jobs={shown} topic={topic} chosen={can("manage") ? chosen : null} choose={setChosen} dead />}
            </Panel>
            {bulk && (
              <BulkDialog title={bulk.what === "revive" ? t("Revive dead jobs") : t("Purge dead jobs")} topic={topic} action={bulk.what === "revive" ? t("Revive the jobs") : t("Purge the jobs")} close={() => setBulk(null)}
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
