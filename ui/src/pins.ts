// Topics that a person wants to see first. The browser remembers them, per namespace.
import { useState } from "preact/hooks";

const KEY = "dueline.pins";
const MOST = 200;

function read(): Record<string, string[]> {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    return value !== null && typeof value === "object" ? (value as Record<string, string[]>) : {};
  } catch {
    return {};
  }
}

export function usePins(ns: string): { pinned: Set<string>; flip: (topic: string) => void } {
  const [, drawAgain] = useState(0);
  const all = read();
  const mine = Array.isArray(all[ns]) ? all[ns] : [];
  const flip = (topic: string): void => {
    const next = mine.includes(topic) ? mine.filter((one) => one !== topic) : [...mine, topic].slice(-MOST);
    localStorage.setItem(KEY, JSON.stringify({ ...all, [ns]: next }));
    drawAgain((n) => n + 1);
  };
  return { pinned: new Set(mine), flip };
}
