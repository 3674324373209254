// A small set of 16 px icons, drawn with strokes in the colour of the text.
import type { ComponentChildren } from "preact";

const PATHS: Record<string, string> = {
  forecast: "M2 13.5h12M3.5 11.5v-3M6.5 11.5v-7M9.5 11.5v-5M12.5 11.5v-8", jobs: "M3 3h10v4H3zM3 9.5h10v4H3z", schedules: "M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2M8 4.5V8l2.5 1.5",
  groups: "M3 3.5h4M3 8h4M3 12.5h4M9 3.5 12.5 8 9 12.5", workers: "M8 3a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5M3 13.5c.5-5 9.500-5 10 0", more: "M3 8h.1M8 8h.1M13 8h.1",
  overview: "M2.5 8.5 8 3l5.5 5.5M4 7.5V13h8V7.5", topics: "M3 4h10M3 8h10M3 12h10", dead: "M8 2 14 13H2ZM8 6.5v3M8 11.3v.2",
  push: "M2.5 8h9M8 4.5 11.5 8 8 11.5M13.5 3v10", store: "M3 4c0-2 10-2 10 0v8c0 2-10 2-10 0ZM3 4c0 2 10 2 10 0M3 8c0 2 10 2 10 0",
  access: "M5.5 10.5a3 3 0 1 1 2.8-4H13.5V9H12v2h-2V9H8.3a3 3 0 0 1-2.8 1.5", search: "M7 3a4 4 0 1 1 0 8 4 4 0 0 1 0-8m3 7 3.5 3.5",
  sun: "M8 5.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5M8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M12.6 3.4l-1 1M4.4 11.6l-1 1",
  moon: "M13 9.5A5.5 5.5 0 1 1 6.5 3a4.3 4.3 0 0 0 6.5 6.5", out: "M8 2.5v5M4.5 4.5a5 5 0 1 0 7 0", warn: "M8 2 14 13H2ZM8 6.5v3M8 11.3v.2",
  ok: "M3 8.5 6.5 12 13 4.5", pause: "M5.5 3.5v9M10.5 3.5v9", play: "M5 3.5v9l7-4.5Z", copy: "M5.5 5.5h7v7h-7zM3.5 10.5v-7h7", plus: "M8 3v10M3 8h10",
  chinese: "M3 4.500h10v5.500H3zM8 2v12", // drawn, because not every machine has a font with this character
  pin: "M6 2.5h4l-.5 4 2 2.500v1h-7v-1l2-2.500ZM8 10v4",
  info: "M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2M8 7.2v4M8 4.9v.2", help: "M6 6.2a2 2 0 1 1 2.8 1.9c-.6.3-.8.7-.8 1.4M8 12v.2",
};

export function Icon({ name, title }: { name: string; title?: string }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" role={title ? "img" : undefined} aria-hidden={title ? undefined : "true"}>
      {title && <title>{title}</title>}
      <path d={PATHS[name] ?? ""} />
    </svg>
  );
}

const SHAPES: Record<string, string> = {
  scheduled: "M5 0a5 5 0 1 1 0 10A5 5 0 0 1 5 0m0 2a3 3 0 1 0 0 6 3 3 0 0 0 0-6", ready: "M5 0 10 5 5 10 0 5Z", leased: "M1 0 10 5 1 10Z",
  done: "M5 0a5 5 0 1 1 0 10A5 5 0 0 1 5 0", dead: "M0 2 2 0l3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3Z", cancelled: "M0 3.5h10v3H0Z",
  ok: "M5 0a5 5 0 1 1 0 10A5 5 0 0 1 5 0", warn: "M5 0 10 5 5 10 0 5Z", bad: "M0 2 2 0l3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3Z", idle: "M0 3.5h10v3H0Z",
};

/** A state by colour, shape and word. */
export function StateMark({ kind, word }: { kind: string; word: ComponentChildren }) {
  return (
    <span class={`state s-${kind}`}>
      <svg viewBox="0 0 10 10" aria-hidden="true"><path d={SHAPES[kind] ?? SHAPES["idle"]!} fill-rule="evenodd" /></svg>
      {word}
    </span>
  );
}
