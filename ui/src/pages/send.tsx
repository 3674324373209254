import { useState } from "preact/hooks";
import { call, topicPath } from "../api";
import { isJson } from "../json";
import { t } from "../i18n";
import { Icon } from "../icons";
import { Dialog, Field, toast } from "../parts";
import { go, href } from "../route";
import { useCan, useSession } from "../session";

type Sent = { id: string; result: string };

/** A job from the page. The body is sent as it is written. */
export function SendButton({ topic = "", label }: { topic?: string; label?: string }) {
  const can = useCan();
  const [open, setOpen] = useState(false);
  if (!can("send")) return null;
  return (
    <>
      <button class="primary" onClick={() => setOpen(true)}><Icon name="plus" />{label ?? t("Send a job")}</button>
      {open && <SendDialog topic={topic} close={() => setOpen(false)} />}
    </>
  );
}

export function SendDialog({ topic: given, close }: { topic: string; close: () => void }) {
  const { ns, topics } = useSession();
  const [topic, setTopic] = useState(given);
  const [id, setId] = useState("");
  const [body, setBody] = useState('{\n  "hello": "world"\n}');
  const [delay, setDelay] = useState("1m");
  const [tags, setTags] = useState("");
  const [attempts, setAttempts] = useState("");
  const valid = isJson(body);
  const submit = async (): Promise<void> => {
    const job: Record<string, unknown> = {};
    if (id) job["id"] = id;
    if (delay) job["delay"] = delay;
    if (tags.trim()) job["tags"] = tags.split(",").map((one) => one.trim()).filter(Boolean);
    if (attempts) job["max_attempts"] = Number(attempts);
    const sent = await call<Sent>("POST", `${topicPath(topic)}/jobs`, { ns, raw: `{"body":${body.trim()}${Object.entries(job).map(([name, value]) => `,"${name}":${JSON.stringify(value)}`).join("")}}` });
    toast(t(sent.result === "created" ? "The job was sent" : "The job was there already"));
    close();
    go(href(["topics", topic, "jobs", sent.id]));
  };
  return (
    <Dialog title={t("Send a job")} close={close} submit={submit} action={t("Send")} disabled={!topic || !valid}>
      <div class="grid2">
        <Field label={t("Topic")}><input required list="known-topics" value={topic} onInput={(event) => setTopic(event.currentTarget.value)} autoFocus={!given} /></Field>
        <datalist id="known-topics">{topics.data?.topics.slice(0, 200).map((one) => <option value={one.topic} key={one.topic} />)}</datalist>
        <Field label={t("Id")} hint={t("Empty: the server makes one")}><input value={id} onInput={(event) => setId(event.currentTarget.value)} /></Field>
        <Field label={t("Due in")} hint={t("Such as 90s, 1h30m. Empty: now")}><input value={delay} onInput={(event) => setDelay(event.currentTarget.value)} /></Field>
        <Field label={t("Maximum attempts")} hint={t("Empty: as the topic says")}><input type="number" min="1" value={attempts} onInput={(event) => setAttempts(event.currentTarget.value)} /></Field>
      </div>
      <Field label={t("Body, as JSON")} hint={valid ? undefined : t("This is not valid JSON.")}><textarea rows={7} spellcheck={false} value={body} onInput={(event) => setBody(event.currentTarget.value)} aria-invalid={!valid} /></Field>
      <Field label={t("Tags")} hint={t("Joined with commas")}><input value={tags} onInput={(event) => setTags(event.currentTarget.value)} /></Field>
    </Dialog>
  );
}
