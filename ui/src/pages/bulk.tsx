// A change of many jobs: first how many it would be, then a confirmation, then progress until it is complete.
import { useEffect, useState } from "preact/hooks";
import { ApiError, type Bulk } from "../api";
import { exact } from "../format";
import { t } from "../i18n";
import { Dialog, Field, Trouble, toast } from "../parts";

const MANY = 1000; // from here on the topic's name must be typed

type Results = { results: { id: string; error?: unknown }[] };

const AT_ONCE = 200;

/** The same for jobs that were chosen one by one: their number is known. They are changed in calls of a few hundred, so
 * that the progress shows; what is done is taken out of `ids`. */
export async function byIds(ids: string[], dry: boolean, change: (ids: string[]) => Promise<Results>): Promise<Bulk> {
  if (dry) return { matched: ids.length, cancelled: 0, dry_run: true };
  const some = ids.slice(0, AT_ONCE);
  const done = (await change(some)).results.filter((one) => !one.error).length;
  ids.splice(0, AT_ONCE);
  return { matched: some.length, cancelled: done, dry_run: false, complete: ids.length === 0 };
}

type Props = {
  title: string; topic: string; action: string; close: () => void; done: () => void;
  run: (dry: boolean) => Promise<Bulk>; changed: (answer: Bulk) => number; danger?: boolean; children?: preact.ComponentChildren;
};

export function BulkDialog({ title, topic, action, close, done, run, changed, danger, children }: Props) {
  const [matched, setMatched] = useState<number>();
  const [partial, setPartial] = useState(false);
  const [error, setError] = useState<ApiError>();
  const [typed, setTyped] = useState("");
  const [finished, setFinished] = useState<number>();
  useEffect(() => {
    run(true).then(
      (answer) => (setMatched(answer.matched), setPartial(answer.complete === false)),
      (reason) => setError(reason instanceof ApiError ? reason : new ApiError(0, "page", String(reason))),
    );
  }, []);
  const submit = async (): Promise<void> => {
    let all = 0;
    for (let complete = false; !complete; ) {
      const answer = await run(false);
      complete = answer.complete !== false;
      all += changed(answer);
      setFinished(all);
    }
    toast(t("{n} jobs were changed", { n: exact(all) }));
    done();
    close();
  };
  const needsName = (matched ?? 0) > MANY;
  return (
    <Dialog title={title} close={close} submit={submit} action={action} {...(danger ? { danger } : {})} disabled={!matched || (needsName && typed !== topic)} done={t("Do nothing")}>
      {error ? <Trouble error={error} /> : matched === undefined ? <p>{t("Counting…")}</p> : (
        <>
          <p>{matched === 0 ? t("No job matches.") : <strong>{t("{n} jobs of {topic} match now.", { n: `${exact(matched)}${partial ? "+" : ""}`, topic })}</strong>}</p>
          {children}
          {needsName && <Field label={t("Type the name of the topic to confirm")}><input value={typed} onInput={(event) => setTyped(event.currentTarget.value)} autocomplete="off" /></Field>}
          {finished !== undefined && <><div class="progress" role="progressbar" aria-valuenow={finished} aria-valuemax={matched}><span style={{ width: `${Math.min(100, (finished / Math.max(1, matched)) * 100)}%` }} /></div><p class="small dim">{t("{n} of {all}", { n: exact(finished), all: exact(matched) })}</p></>}
        </>
      )}
    </Dialog>
  );
}
