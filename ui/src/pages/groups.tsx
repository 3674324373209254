// Merge groups that are filling up: how full, and when each is delivered.
import { call, type Group, type GroupPage, now, type Topic, topicPath } from "../api";
import { bytes, exact, relative, span } from "../format";
import { t } from "../i18n";
import { Row } from "../keys";
import { after, missing, useLive, useTick } from "../live";
import { Empty, Id, Loaded, Page, Panel, Time } from "../parts";
import { go, href, useRoute } from "../route";
import { useSession } from "../session";

const PAGE = 100;
const LOOKED_AT = 40; // topics that the page over all topics asks
const SHOWN = 200;

type Row = Group & { topic: string };

const groupsPath = (topic: string): string => `${topicPath(topic)}/groups`;

/** How far the wait since the last item has come: the group is delivered when the bar is full. */
function Countdown({ group }: { group: Group }) {
  useTick();
  const left = Math.max(0, group.due_at_ms - now());
  const whole = Math.max(1, group.due_at_ms - group.updated_at_ms);
  const share = Math.min(1, 1 - left / whole);
  return (
    <span class="fill" title={group.quiet_ms ? t("Each new item waits {span} again, up to its longest wait.", { span: span(group.quiet_ms) }) : ""}>
      <span class="progress"><span style={{ width: `${share * 100}%` }} /></span>
      <span>{left > 0 ? t("in {span}", { span: span(Math.ceil(left / 1000) * 1000) }) : t("now")}</span>
    </span>
  );
}

function Fill({ group }: { group: Group }) {
  if (!group.max_items) return <span>{t("{n} items", { n: exact(group.items_count) })}</span>;
  return (
    <span class="fill">
      <span class="progress" role="img" aria-label={t("{n} of {all}", { n: group.items_count, all: group.max_items })}><span style={{ width: `${Math.min(100, (group.items_count / group.max_items) * 100)}%` }} /></span>
      <span>{exact(group.items_count)} / {exact(group.max_items)}</span>
    </span>
  );
}

function GroupTable({ rows, withTopic }: { rows: Row[]; withTopic: boolean }) {
  return (
    <div class="wrap">
      <table class="cards">
        <thead><tr><th>{t("Merge key")}</th>{withTopic && <th>{t("Topic")}</th>}<th>{t("Items")}</th><th>{t("Delivery")}</th><th class="num">{t("Size")}</th><th>{t("Latest item")}</th><th>{t("Opened")}</th></tr></thead>
        <tbody>
          {rows.map((one) => (
            <Row key={`${one.topic} ${one.id}`} link={href(["topics", one.topic, "jobs", one.id])}>
              <td class="whole"><Id text={one.merge_key} link={href(["topics", one.topic, "jobs", one.id])} most={36} /></td>
              {withTopic && <td><a class="ell name" title={one.topic} href={href(["topics", one.topic, "groups"])}>{one.topic}</a></td>}
              <td class="whole"><Fill group={one} /></td>
              <td class="whole"><Countdown group={one} /></td>
              <td class="num" data-label={t("Size")}>{bytes(one.bytes)}</td>
              <td data-label={t("Latest item")}><Time ms={one.updated_at_ms} /></td>
              <td data-label={t("Opened")}><Time ms={one.created_at_ms} /></td>
            </Row>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const Command = ({ topic }: { topic: string }) => (
  <Empty title={t("No merge group is filling up.")} command={`dueline send ${topic} '{"comment": 7}' --merge-key ann --quiet 5m --max-items 50`}>{t("Sends with the same merge key become one delivery.")}</Empty>
);

const Older = () => <Panel><Empty title={t("This server does not list merge groups yet.")} /></Panel>;

export function GroupsTab({ topic }: { topic: string }) {
  const { ns } = useSession();
  const { query } = useRoute();
  const cursor = query.get("cursor") ?? "";
  const live = useLive(`groups ${ns} ${topic} ${cursor}`, () => call<GroupPage>("GET", groupsPath(topic), { ns, query: { cursor, limit: PAGE } }), 4000, { topic });
  if (missing(live)) return <Older />;
  const place = ["topics", topic, "groups"];
  return (
    <Panel title={t("Merge groups that are filling up")} tools={<>{cursor && <button onClick={() => go(href(place))}>{t("First page")}</button>}{live.data?.next_cursor && <button onClick={() => go(href(place, { cursor: live.data!.next_cursor! }))}>{t("Next page")}</button>}</>}>
      <Loaded live={live}>{({ groups }) => groups.length === 0 ? <Command topic={topic} /> : <GroupTable rows={groups.map((one) => ({ ...one, topic }))} withTopic={false} />}</Loaded>
    </Panel>
  );
}

type Found = { rows: Row[]; more: boolean; asked: number };

/** The groups of the topics with the most scheduled jobs: one small call each. */
async function found(ns: string, topics: Topic[]): Promise<Found> {
  const asked = topics.filter((one) => one.counts.scheduled > 0).sort((a, b) => b.counts.scheduled - a.counts.scheduled).slice(0, LOOKED_AT);
  const pages = await Promise.all(asked.map(async ({ topic }) => ({ topic, page: await call<GroupPage>("GET", groupsPath(topic), { ns, query: { limit: 50 } }) })));
  const rows = pages.flatMap(({ topic, page }) => page.groups.map((one) => ({ ...one, topic }))).sort((a, b) => a.due_at_ms - b.due_at_ms);
  return { rows, more: pages.some(({ page }) => page.next_cursor !== null), asked: asked.length };
}

function sentence({ rows, more }: Found): string {
  if (!rows.length) return t("No merge group is filling up.");
  const items = rows.reduce((sum, one) => sum + one.items_count, 0);
  return t("{n} groups hold {items}; the next is delivered {time}.", { n: `${exact(rows.length)}${more ? "+" : ""}`, items: t("{n} items", { n: exact(items) }), time: relative(rows[0]!.due_at_ms) });
}

export function GroupsPage() {
  const { ns, topics } = useSession();
  const list = topics.data?.topics;
  const live = useLive(`groups ${ns} ${list ? "" : "wait"}`, () => found(ns, list ?? []), 5000);
  if (missing(live)) return <Page title={t("Merge groups")}><Older /></Page>;
  return (
    <Page title={t("Merge groups")} lead={list && live.data && sentence(live.data)}>
      <Loaded live={after(topics, live)}>
        {(all) => (
          <Panel label={t("Merge groups")}>
            {all.rows.length === 0 ? <Command topic="digests" /> : <GroupTable rows={all.rows.slice(0, SHOWN)} withTopic />}
            {(all.more || all.rows.length > SHOWN || (list?.length ?? 0) > LOOKED_AT) && <p class="pad dim small">{t("The first groups of {n} topics; a topic lists all of its groups.", { n: all.asked })}</p>}
          </Panel>
        )}
      </Loaded>
    </Page>
  );
}

