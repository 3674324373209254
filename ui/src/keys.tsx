// Keys for people who come here often: / searches, g goes, j and k move over the rows of a table.
import { createContext, type ComponentChildren } from "preact";
import { useContext, useLayoutEffect, useRef, useState } from "preact/hooks";
import { t } from "./i18n";
import { Dialog } from "./parts";
import { go, href, route } from "./route";

const PAGES: Record<string, string[]> = { o: [], t: ["topics"], d: ["dead"], f: ["forecast"], j: ["jobs"], c: ["schedules"], p: ["push"], m: ["groups"], w: ["workers"], s: ["store"], a: ["access"] };

const KEYS: [string, string][] = [["/", "Search"], ["g o", "Overview"], ["g t", "Topics"], ["g d", "Dead letters"], ["g f", "Forecast"], ["g j", "Jobs"], ["g c", "Schedules"], ["g p", "Push"], ["g m", "Merge groups"], ["g w", "Workers"], ["g s", "Store"], ["g a", "Access"], ["j  k", "Next and previous row"], ["Enter", "Open the row"], ["← →", "Next bar of a chart; with Shift, a range to zoom into"], ["?", "This help"]];

type Children = { children?: ComponentChildren };

/** The row that j and k have reached: its page, its link, and its place when it was reached. It is kept here and not in
 * the table, so it outlives rows that are read again, sorted, or away for a while. */
type Mark = { page: string; link: string; place: number };

const MarkContext = createContext<Mark>({ page: "", link: "", place: 0 });

const page = (): string => route().parts.join("/");

/** A row that j and k go to and Enter opens. */
export function Row({ link, children }: Children & { link: string }) {
  const mark = useContext(MarkContext);
  return <tr data-link={link} class={mark.link === link && mark.page === page() ? "at" : undefined}>{children}</tr>;
}

export function Keys({ children }: Children) {
  const [open, setOpen] = useState(false);
  const [mark, setMark] = useState<Mark>({ page: "", link: "", place: 0 });
  const last = useRef(mark);
  last.current = mark;
  // Before the page is painted: whoever sees it can use its keys.
  useLayoutEffect(() => {
    let going = false;
    const pressed = (event: KeyboardEvent): void => {
      const at = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || at.closest("input, textarea, select, dialog")) return;
      const to = going ? PAGES[event.key] : undefined;
      going = event.key === "g" && !to;
      if (to) go(href(to));
      else if (event.key === "/") {
        event.preventDefault();
        document.querySelector<HTMLInputElement>(".search input")?.focus();
      } else if (event.key === "?") setOpen(true);
      else if (event.key === "j" || event.key === "k") setMark((last.current = moved(last.current, event.key === "j" ? 1 : -1)));
      else if (event.key === "Enter" && at === document.body) {
        const link = document.querySelector<HTMLElement>("tr.at[data-link]")?.dataset["link"];
        if (link) go(link);
      }
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
  return (
    <MarkContext.Provider value={mark}>
      {children}
      {open && <Dialog title={t("Keys")} close={() => setOpen(false)}><dl class="facts">{KEYS.map(([key, word]) => <><dt><kbd>{key}</kbd></dt><dd>{t(word)}</dd></>)}</dl></Dialog>}
    </MarkContext.Provider>
  );
}

/** The keyboard goes along: Enter opens this row, not what had the focus before, and Tab goes on from here. */
function focused(row: HTMLElement | undefined): void {
  const link = [...(row?.querySelectorAll("a") ?? [])].find((one) => one.getAttribute("href") === row?.dataset["link"]);
  if (link) link.focus({ preventScroll: true });
  else (document.activeElement as HTMLElement | null)?.blur();
}

/** The mark on the next or previous row. If its row is gone, it goes on from the place where the row was. */
function moved(mark: Mark, by: 1 | -1): Mark {
  const rows = [...document.querySelectorAll<HTMLElement>("tr[data-link]")];
  const from = mark.page === page() ? mark : { link: "", place: 0 };
  const found = rows.findIndex((row) => row.dataset["link"] === from.link);
  const next = found >= 0 ? found + by : from.place - (by > 0 ? 0 : 1);
  const place = Math.max(0, Math.min(rows.length - 1, next));
  rows[place]?.scrollIntoView({ block: "nearest" });
  focused(rows[place]);
  return { page: page(), link: rows[place]?.dataset["link"] ?? "", place };
}
