// What needs a person, from the counts of the topics and the state of the server. In words, worst first.
import { now, type Readiness, type Topic } from "../api";
import { exact, span } from "../format";
import { t } from "../i18n";
import { capital } from "../parts";
import { href } from "../route";
import { isBehind, isDeserted } from "../session";

export type Notice = { level: "red" | "amber"; text: string; link: string };
export type Target = { topic: string; state: string; error: string | null };

const isFailing = (one: Target): boolean => one.state === "open" || one.state === "half_open";
const lateness = (one: Topic): number => (one.oldest_ready_at_ms ? now() - one.oldest_ready_at_ms : 0);

export function notices(topics: Topic[], ready: Readiness | undefined, targets: Target[]): Notice[] {
  const found: Notice[] = [];
  for (const one of ready?.reasons ?? []) found.push({ level: "red", text: capital(one.message), link: href(["store"]) });
  for (const one of ready?.warnings ?? []) found.push({ level: "amber", text: capital(one.message), link: href(["store"]) });
  for (const one of targets.filter(isFailing)) found.push({ level: "red", text: t("The push target of {topic} is failing: {error}", { topic: one.topic, error: one.error ?? "?" }), link: href(["topics", one.topic, "push"]) });
  for (const one of topics) {
    const link = href(["topics", one.topic]);
    const late = lateness(one);
    if (isDeserted(one)) found.push({ level: isBehind(one) ? "red" : "amber", text: t("Nobody is consuming {topic}: {jobs} ready, the oldest for {span}", { topic: one.topic, jobs: exact(one.counts.ready), span: span(late) }), link });
    else if (isBehind(one)) found.push({ level: "amber", text: t("{topic} is behind: {jobs} ready, the oldest for {span}", { topic: one.topic, jobs: exact(one.counts.ready), span: span(late) }), link });
    if (one.paused && one.counts.ready) found.push({ level: "amber", text: t("{topic} is paused with {jobs} ready", { topic: one.topic, jobs: exact(one.counts.ready) }), link });
    if (one.counts.dead) found.push({ level: "amber", text: t("{topic} has {n} dead letters", { topic: one.topic, n: exact(one.counts.dead) }), link: href(["topics", one.topic, "dead"]) });
  }
  return found.sort((a, b) => (a.level === b.level ? 0 : a.level === "red" ? -1 : 1));
}

/** The first line of the overview while the server refuses calls: nothing else matters then. */
export const refusal = (ready: Readiness): string => t("The server is not ready: {reasons}.", { reasons: (ready.reasons ?? []).map((one) => one.message).join(t("; ")) });

/** The first line of the overview. `died`: in the last 24 hours, if that is known. */
export function sentence(topics: Topic[], more: boolean, died: number | null, targets: Target[]): string {
  if (!topics.length) return t("There are no topics yet.");
  const deserted = topics.filter(isDeserted);
  const worst = [...deserted].sort((a, b) => lateness(b) - lateness(a))[0];
  const dead = topics.reduce((sum, one) => sum + one.counts.dead, 0);
  const first =
    worst && deserted.length === 1 ? t("Nobody is consuming {topic}: {jobs} ready, the oldest for {span}", { topic: worst.topic, jobs: exact(worst.counts.ready), span: span(lateness(worst)) })
    : deserted.length ? t("{n} topics have ready jobs and nobody consumes them", { n: deserted.length })
    : t("Every topic with ready jobs is being consumed");
  const second = died ? t("{n} jobs died in the last 24 hours", { n: exact(died) }) : dead ? t("{n} dead letters", { n: exact(dead) }) : t("no dead letters");
  const failing = targets.filter(isFailing).length;
  const parts = failing ? [first, t("{n} push targets are failing", { n: failing }), second] : [first, second];
  return `${parts.join(t("; "))}${t(".")}${more ? ` ${t("These are the first {n} topics by name.", { n: topics.length })}` : ""}`;
}
