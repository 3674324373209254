import { useState } from "preact/hooks";
import { type Bulk, call, type Job, type JobPage, topicPath } from "../api";
import { exact, localInput } from "../format";
import { t } from "../i18n";
import { Row } from "../keys";
import { type Live, useLive } from "../live";
import { Empty, Field, Id, JobState, Loaded, Panel, Tags, Time, Typed, WORDS } from "../parts";
import { go, href, useRoute } from "../route";
import { useCan, useSession } from "../session";
import { BulkDialog, byIds } from "./bulk";

type Filter = { state: string; tag: string; key: string; after: string; before: string };

const PAGE = 50;
const BODY_SHOWN = 80;

export function filterOf(query: URLSearchParams): Filter {
  const of = (name: string): string => query.get(name) ?? "";
  return { state: of("state"), tag: of("tag"), key: of("key"), after: of("after"), before: of("before") };
}

export const asked = (one: Filter) => (one.key ? { merge_key: one.key } : { state: one.state, tag: one.tag, due_after_ms: one.after, due_before_ms: one.before });

/** The beginning of a body on one line. */
export function excerpt(job: Job): string {
  if (job.body === null && (job.state === "done" || job.state === "cancelled")) return ""; // not kept
  const value = job.items !== undefined ? job.items : job.body !== undefined ? job.body : job.body_base64;
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
  return text.length > BODY_SHOWN ? `${text.slice(0, BODY_SHOWN)}…` : text;
}

export function JobList({ topic }: { topic: string }) {
  const { ns } = useSession();
  const can = useCan();
  const { query } = useRoute();
  const filter = filterOf(query);
  const cursor = query.get("cursor") ?? "";
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const [bulk, setBulk] = useState<{ ids: string[] | null } | null>(null);
  const key = JSON.stringify([ns, topic, filter, cursor]);
  const live = useLive(`jobs ${key}`, () => call<JobPage>("GET", `${topicPath(topic)}/jobs`, { ns, query: { ...asked(filter), cursor, limit: PAGE, body: 1 } }), cursor ? 15_000 : 4000, { topic, hold: () => chosen.size > 0 });
  const set = (values: Partial<Filter> & { cursor?: string }): void => {
    setChosen(new Set());
    go(href(["topics", topic], { ...filter, ...values }));
  };
  const canCancel = can("manage") && !["done", "dead", "cancelled"].includes(filter.state);
  const cancel = (ids: string[] | null, dry: boolean): Promise<Bulk> =>
    ids ? byIds(ids, dry, (some) => call("POST", `${topicPath(topic)}/cancel`, { ns, body: { ids: some } })) : call<Bulk>("POST", `${topicPath(topic)}/cancel`, { ns, body: { filter: bodyFilter(filter), dry_run: dry } });
  const filtered = Object.values(filter).some(Boolean);
  return (
    <>
      <FilterBar filter={filter} set={set} topic={topic} />
      <Panel
        label={t("Jobs")}
        title={chosen.size ? t("{n} chosen", { n: chosen.size }) : t("Jobs")}
        tools={
          <>
            <Changes live={live} />
            {canCancel && chosen.size > 0 && <button class="danger" onClick={() => setBulk({ ids: [...chosen] })}>{t("Cancel these…")}</button>}
            {canCancel && filtered && !filter.key && <button class="danger" onClick={() => setBulk({ ids: null })}>{t("Cancel all that match…")}</button>}
            {cursor && <button onClick={() => set({ cursor: "" })}>{t("First page")}</button>}
            {live.data?.next_cursor && <button onClick={() => set({ cursor: live.data!.next_cursor! })}>{t("Next page")}</button>}
          </>
        }
      >
        <Loaded live={live} lines={6}>
          {({ jobs, next_cursor }) =>
            jobs.length === 0 ? (
              <Empty title={next_cursor ? t("No job of this page matches; there are more pages.") : filtered ? t("No job matches.") : t("It has no jobs.")} {...(filtered ? {} : { command: `dueline send ${topic} '{"to": "ann"}' --in 1s` })} />
            ) : (
              <JobTable jobs={jobs} chosen={canCancel ? chosen : null} choose={setChosen} />
            )
          }
        </Loaded>
      </Panel>
      {bulk && (
        <BulkDialog danger title={bulk.ids ? t("Cancel these jobs") : t("Cancel all that match")} topic={topic} action={t("Cancel the jobs")} close={() => setBulk(null)}
          done={() => (setChosen(new Set()), live.reload())} run={(dry) => cancel(bulk.ids, dry)} changed={(answer) => answer.cancelled ?? 0} />
      )}
    </>
  );
}

/** Rows do not jump: when there were many changes, a person decides when to see them. */
export const Changes = ({ live }: { live: Live<unknown> }) => (live.changes > 0 ? <button class="changes" onClick={live.reload}>{t("{n} changes, show", { n: exact(live.changes) })}</button> : null);

export const bodyFilter = (one: Pick<Filter, "tag" | "after" | "before"> & { state?: string }) => ({
  ...(one.state ? { state: one.state } : {}),
  ...(one.tag ? { tag: one.tag } : {}),
  ...(one.after ? { due_after_ms: Number(one.after) } : {}),
  ...(one.before ? { due_before_ms: Number(one.before) } : {}),
});

/** `topic` null: the jobs of all topics, which have no key or id in common. */
export function FilterBar({ filter, set, topic }: { filter: Filter; set: (values: Partial<Filter> & { cursor?: string }) => void; topic: string | null }) {
  const [id, setId] = useState("");
  const time = (text: string): string => (text ? String(new Date(text).getTime()) : "");
  const shown = (ms: string): string => (ms ? localInput(Number(ms)) : "");
  return (
    <form class="filter" onSubmit={(event) => (event.preventDefault(), id && topic !== null && go(href(["topics", topic, "jobs", id])))}>
      <Field label={t("State")}>
        <select value={filter.state} onChange={(event) => set({ state: event.currentTarget.value, key: "", cursor: "" })}>
          <option value="">{t("any state")}</option>
          {Object.entries(WORDS).map(([state, word]) => <option value={state} key={state}>{t(word)}</option>)}
        </select>
      </Field>
      <Field label={t("Tag")}><Typed value={filter.tag} commit={(text) => set({ tag: text, key: "", cursor: "" })} /></Field>
      <Field label={t("Due from")}><Typed time value={shown(filter.after)} commit={(text) => set({ after: time(text), key: "", cursor: "" })} /></Field>
      <Field label={t("Due before")}><Typed time value={shown(filter.before)} commit={(text) => set({ before: time(text), key: "", cursor: "" })} /></Field>
      {topic !== null && <Field label={t("Merge key")}><Typed value={filter.key} commit={(text) => set({ state: "", tag: "", after: "", before: "", key: text, cursor: "" })} /></Field>}
      {topic !== null && <Field label={t("Open by id")}><input value={id} onInput={(event) => setId(event.currentTarget.value)} placeholder={t("Id, then Enter")} /></Field>}
      {Object.values(filter).some(Boolean) && <button type="button" class="quiet" onClick={() => set({ state: "", tag: "", key: "", after: "", before: "", cursor: "" })}>{t("Clear")}</button>}
    </form>
  );
}

type TableProps = { jobs: Job[]; chosen: Set<string> | null; choose: (set: Set<string>) => void; dead?: boolean; withTopic?: boolean };

export function JobTable({ jobs, chosen, choose, dead, withTopic }: TableProps) {
  const toggle = (id: string): void => {
    const next = new Set(chosen ?? []);
    if (!next.delete(id)) next.add(id);
    choose(next);
  };
  const all = chosen !== null && jobs.every((one) => chosen.has(one.id));
  return (
    <div class="wrap">
      <table class={withTopic ? "cards tight" : "cards"}>
        <thead>
          <tr>
            {chosen && <th class="check"><input type="checkbox" aria-label={t("Choose all on this page")} checked={all} onChange={() => choose(all ? new Set() : new Set(jobs.map((one) => one.id)))} /></th>}
            <th>{t("Id")}</th>{withTopic && <th>{t("Topic")}</th>}{dead ? <th>{t("Reason")}</th> : <th>{t("State")}</th>}<th>{dead ? t("Died") : t("Due")}</th><th class="num">{t("Attempts")}</th>{dead ? <th>{t("Error")}</th> : <th>{t("Created")}</th>}<th>{t("Body")}</th>
          </tr>
        </thead>
        <tbody>
          {jobs.map((one) => (
            <Row key={`${one.topic} ${one.id}`} link={href(["topics", one.topic, "jobs", one.id])}>
              {chosen && <td class="check"><input type="checkbox" aria-label={t("Choose {id}", { id: one.id })} checked={chosen.has(one.id)} onChange={() => toggle(one.id)} /></td>}
              <td class="whole"><Id text={one.id} link={href(["topics", one.topic, "jobs", one.id])} most={32} /> <Tags tags={one.tags} />{one.merge_key && <span class="tag" title={one.merge_key}>{t("group")} {one.merge_key}</span>}</td>
              {withTopic && <td><a class="ell name" title={one.topic} href={href(["topics", one.topic])}>{one.topic}</a></td>}
              <td>{dead ? t(one.reason ?? "dead") : <JobState state={one.state} />}</td>
              <td data-label={dead ? t("Died") : t("Due")}><Time ms={dead ? one.ended_at_ms : one.due_at_ms} /></td>
              <td class="num" data-label={t("Attempts")}>{exact(one.attempts)}{one.max_attempts ? <span class="dim"> / {exact(one.max_attempts)}</span> : null}</td>
              {dead ? <td class="whole grow"><span class="ell" title={one.last_error ?? ""}>{one.last_error ?? ""}</span></td> : <td data-label={t("Created")}><Time ms={one.created_at_ms} /></td>}
              <td class={dead || withTopic ? "whole grow less" : "whole grow"}><span class="mono ell" dir="auto">{excerpt(one)}</span></td>
            </Row>
          ))}
        </tbody>
      </table>
    </div>
  );
}
