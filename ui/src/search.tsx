// Search: a topic by a part of its name, a job by its id, or the jobs with a tag. An id is looked up exactly, topic by topic; nothing scans.
import { useRef, useState } from "preact/hooks";
import { ApiError, call, type Job, jobPath } from "./api";
import { middle } from "./format";
import { t } from "./i18n";
import { Icon } from "./icons";
import { go, href } from "./route";
import { useSession } from "./session";

const MOST_LOOKED_AT = 40;

export function Search() {
  const { topics, ns } = useSession();
  const [text, setText] = useState("");
  const [open, setOpen] = useState(false);
  const [note, setNote] = useState("");
  const field = useRef<HTMLInputElement>(null);
  const names = (topics.data?.topics ?? []).map((one) => one.topic);
  const wanted = text.trim();
  const found = wanted ? names.filter((name) => name.toLowerCase().includes(wanted.toLowerCase())).slice(0, 8) : [];
  const leave = (address: string): void => {
    setText("");
    setOpen(false);
    setNote("");
    field.current?.blur();
    go(address);
  };
  const exists = (topic: string, id: string): Promise<boolean> =>
    call<Job>("GET", jobPath(topic, id), { ns }).then(() => true, (error) => {
      if (error instanceof ApiError && (error.status === 404 || error.status === 400)) return false;
      throw error;
    });
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (!wanted) return;
    const [topic = "", ...rest] = wanted.split(/[\s/]+/);
    if (rest.length && rest[0]) return leave(href(["topics", topic, "jobs", rest.join("/")]));
    if (names.includes(wanted)) return leave(href(["topics", wanted]));
    setNote(t("Looking for a job with this id…"));
    try {
      const looked = [...(topics.data?.topics ?? [])].sort((a, b) => total(b.counts) - total(a.counts)).slice(0, MOST_LOOKED_AT);
      const hits = await Promise.all(looked.map(async (one) => ((await exists(one.topic, wanted)) ? one.topic : null)));
      const hit = hits.find((one) => one !== null);
      if (hit) return leave(href(["topics", hit, "jobs", wanted]));
      if (found[0]) return leave(href(["topics", found[0]]));
      setNote(names.length > MOST_LOOKED_AT ? t("Not found in the {n} largest topics. Write: topic id", { n: MOST_LOOKED_AT }) : t("No topic has this name, and no topic has a job with this id."));
    } catch (error) {
      setNote(error instanceof Error ? t(error.message) : String(error));
    }
  };
  /** Up and down go over what was found, Escape leaves. */
  const pressed = (event: KeyboardEvent): void => {
    const at = document.activeElement as HTMLElement;
    if (event.key === "Escape") return setText(""), at.blur();
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const stops = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("input, .found a")];
    stops[stops.indexOf(at) + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
    event.preventDefault();
  };
  return (
    <form class="search" role="search" onSubmit={(event) => void submit(event)} onKeyDown={pressed} onFocusOut={(event) => !event.currentTarget.contains(event.relatedTarget as Node | null) && setOpen(false)}>
      <Icon name="search" />
      <input ref={field} type="search" aria-label={t("Search")} placeholder={t("Search a topic, the id of a job or a tag")} value={text} onFocus={() => setOpen(true)} onInput={(event) => (setText(event.currentTarget.value), setNote(""))} />
      <kbd aria-hidden="true">/</kbd>
      {open && wanted && (
        <div class="found">
          {found.map((name) => <a key={name} href={href(["topics", name])} onClick={(event) => (event.preventDefault(), leave(href(["topics", name])))}><Icon name="topics" /><span class="break">{middle(name, 60)}</span></a>)}
          <a href={href(["jobs"], { tag: wanted })} onClick={(event) => (event.preventDefault(), leave(href(["jobs"], { tag: wanted })))}><Icon name="jobs" /><span class="break">{t("Jobs with the tag {tag}", { tag: middle(wanted, 60) })}</span></a>
          <p class="dim" role="status">{note || t("Enter: open the topic, or the job with this id")}</p>
        </div>
      )}
    </form>
  );
}

const total = (counts: Record<string, number>): number => Object.values(counts).reduce((sum, one) => sum + one, 0);
