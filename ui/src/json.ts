// JSON as text. Bodies are shown and edited as they were sent: a parser would round 12345678901234567890.

export type Piece = { kind: "key" | "str" | "num" | "lit" | "mark" | "space"; text: string };

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[[\]{},:]/g;

/** Cut valid JSON into its tokens. */
const tokens = (text: string): string[] => text.match(TOKEN) ?? [];

/** The text of a field of a JSON object, exactly as it was written. */
export function rawField(text: string, name: string): string | undefined {
  const finder = new RegExp(TOKEN.source, "g");
  let depth = 0;
  let start = -1;
  let isKey = false;
  let found = false;
  for (let match = finder.exec(text); match; match = finder.exec(text)) {
    const token = match[0];
    const before = depth;
    if (token === "{" || token === "[") depth += 1;
    else if (token === "}" || token === "]") depth -= 1;
    if (found && start < 0 && token !== ":") start = match.index;
    if (found && start >= 0 && depth <= 1 && (before > 1 || (token !== "{" && token !== "["))) return text.slice(start, finder.lastIndex);
    if (!found && depth === 1) {
      if (token === "{" || token === ",") isKey = true;
      else if (isKey) {
        isKey = false;
        found = token === JSON.stringify(name);
      }
    }
  }
  return undefined;
}

/** Valid JSON with line breaks and two spaces per level. */
export function pretty(text: string): Piece[] {
  const out: Piece[] = [];
  const list = tokens(text);
  let level = 0;
  const line = (): void => void out.push({ kind: "space", text: `\n${"  ".repeat(level)}` });
  list.forEach((token, at) => {
    const next = list[at + 1];
    if (token === "{" || token === "[") {
      out.push({ kind: "mark", text: token });
      level += 1;
      if (next !== "}" && next !== "]") line();
    } else if (token === "}" || token === "]") {
      level -= 1;
      if (list[at - 1] !== "{" && list[at - 1] !== "[") line();
      out.push({ kind: "mark", text: token });
    } else if (token === ",") {
      out.push({ kind: "mark", text: token });
      line();
    } else if (token === ":") out.push({ kind: "mark", text: ": " });
    else out.push({ kind: kindOf(token, next), text: token });
  });
  return out;
}

function kindOf(token: string, next: string | undefined): Piece["kind"] {
  if (token.startsWith('"')) return next === ":" ? "key" : "str";
  return /^[tfn]/.test(token) ? "lit" : "num";
}

export const isJson = (text: string): boolean => {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
};
