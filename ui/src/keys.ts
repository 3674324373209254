// Keys for people who come here often: / searches, g goes, j and k move over the rows of a table.
import { useEffect, useState } from "preact/hooks";
import { go, href } from "./route";

const PAGES: Record<string, string[]> = { o: [], t: ["topics"], d: ["dead"], f: ["forecast"], j: ["jobs"], c: ["schedules"], p: ["push"], m: ["groups"], w: ["workers"], s: ["store"], a: ["access"] };

export function useKeys(): { open: boolean; close: () => void } {
  const [open, setOpen] = useState(false);
  useEffect(() => {
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
      else if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
      else if (event.key === "Enter" && at === document.body) {
        const link = document.querySelector<HTMLElement>("tr.at[data-link]")?.dataset["link"];
        if (link) go(link);
      }
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
  return { open, close: () => setOpen(false) };
}

function move(by: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("tr[data-link]")];
  const at = rows.findIndex((row) => row.classList.contains("at"));
  const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
  rows[at]?.classList.remove("at");
  next?.classList.add("at");
  next?.scrollIntoView({ block: "nearest" });
}
