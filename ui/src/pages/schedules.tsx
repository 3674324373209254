import { useState } from "preact/hooks";
import { call, type Schedule, type SchedulePage } from "../api";
import { words } from "../cron";
import { exact, relative } from "../format";
import { t } from "../i18n";
import { Icon, StateMark } from "../icons";
import { Row } from "../keys";
import { useLive } from "../live";
import { Empty, Loaded, Num, Page, Panel, Time } from "../parts";
import { go, href, useRoute } from "../route";
import { useCan, useSession } from "../session";
import { ScheduleDialog } from "./schedule_dialog";

export function ScheduleState({ one }: { one: Schedule }) {
  if (one.last_error) return <StateMark kind="bad" word={t("cannot send")} />;
  if (one.paused) return <StateMark kind="idle" word={t("paused")} />;
  return one.next_at_ms === null ? <StateMark kind="idle" word={t("has ended")} /> : <StateMark kind="ok" word={t("running")} />;
}

function sentence(list: Schedule[], more: boolean): string {
  if (!list.length) return t("There are no schedules.");
  const failing = list.filter((one) => one.last_error);
  const next = list.filter((one) => one.next_at_ms !== null).sort((a, b) => a.next_at_ms! - b.next_at_ms!)[0];
  const first = failing.length ? t("{n} schedules cannot send their jobs", { n: failing.length }) : `${t("{n} schedules", { n: exact(list.length) })}${more ? "+" : ""}`;
  return `${first}${next ? t("; the next run is {name}, {time}", { name: next.name, time: relative(next.next_at_ms!) }) : ""}${t(".")}`;
}

export function SchedulesPage() {
  const { ns } = useSession();
  const can = useCan();
  const { query } = useRoute();
  const cursor = query.get("cursor") ?? "";
  const [making, setMaking] = useState(false);
  const live = useLive(`schedules ${ns} ${cursor}`, () => call<SchedulePage>("GET", "/v1/schedules", { ns, query: { cursor, limit: 200 } }), 5000, { never: true });
  return (
    <Page title={t("Schedules")} lead={live.data && sentence(live.data.schedules, live.data.next_cursor !== null)} actions={can("manage") && <button class="primary" onClick={() => setMaking(true)}><Icon name="plus" />{t("Make a schedule")}</button>}>
      <Loaded live={live} lines={6}>
        {({ schedules, next_cursor }) => (
          <Panel label={t("Schedules")} tools={(cursor || next_cursor) && <>{cursor && <button onClick={() => go(href(["schedules"]))}>{t("First page")}</button>}{next_cursor && <button onClick={() => go(href(["schedules"], { cursor: next_cursor }))}>{t("Next page")}</button>}</>}>
            {schedules.length === 0 ? <Empty title={t("There are no schedules.")} command={`dueline schedules put daily-report reports '{"kind": "daily"}' --cron '0 9 * * MON-FRI' --tz Europe/Madrid`}>{t("A schedule sends a job again and again.")}</Empty> : <ScheduleTable schedules={schedules} />}
          </Panel>
        )}
      </Loaded>
      {making && <ScheduleDialog close={() => setMaking(false)} done={(name) => go(href(["schedules", name]))} />}
    </Page>
  );
}

function ScheduleTable({ schedules }: { schedules: Schedule[] }) {
  return (
    <div class="wrap">
      <table class="cards">
        <thead><tr><th>{t("Name")}</th><th>{t("State")}</th><th>{t("Runs")}</th><th>{t("Topic")}</th><th>{t("Next run")}</th><th>{t("Last run")}</th><th class="num">{t("Missed")}</th><th>{t("Last error")}</th></tr></thead>
        <tbody>
          {[...schedules].sort((a, b) => (a.next_at_ms ?? Infinity) - (b.next_at_ms ?? Infinity) || (a.name < b.name ? -1 : 1)).map((one) => (
            <Row key={one.name} link={href(["schedules", one.name])}>
              <td class="whole"><a class="ell name" title={one.name} href={href(["schedules", one.name])}>{one.name}</a></td>
              <td><ScheduleState one={one} /></td>
              <td class="whole">{words(one)}{one.tz && <span class="dim small"> {one.tz}</span>}</td>
              <td><a class="ell name" title={one.topic} href={href(["topics", one.topic])}>{one.topic}</a></td>
              <td data-label={t("Next run")}><Time ms={one.next_at_ms} /></td>
              <td data-label={t("Last run")}><Time ms={one.last_at_ms} none={t("not yet")} /></td>
              <td class="num" data-label={t("Missed")}><Num n={one.missed_count} /></td>
              <td class="whole" data-label={t("Last error")}>{one.last_error ? <span class="ell" title={one.last_error}>{one.last_error}</span> : <span class="zero">–</span>}</td>
            </Row>
          ))}
        </tbody>
      </table>
    </div>
  );
}
