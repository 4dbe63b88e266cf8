/** Short descriptions of values that came from JSON, for error messages. */

/** The maximum length of a description, and of a string in it, in characters. */
const MAX_SHOWN = 160;
const MAX_TEXT = 60;
/** The maximum nesting depth of lists and objects that are shown. */
const MAX_SHOWN_DEPTH = 3;

/** The maximum number of members of a list or an object that are shown. */
const MAX_MEMBERS = 8;

/** Returns a value as JSON in at most 160 characters; "…" stands for what is left out. An absent value is "absent". */
export function shownJson(value: unknown): string {
  if (value === undefined) return "absent";
  const text = shown(value, 0);
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN - 1)}…` : text;
}

function shown(value: unknown, depth: number): string {
  if (typeof value === "string")
    return JSON.stringify(value.length > MAX_TEXT ? `${value.slice(0, MAX_TEXT)}…` : value);
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if ("toJSON" in value && typeof value.toJSON === "function") return JSON.stringify(value);
  const isList = Array.isArray(value);
  const [open, close] = isList ? "[]" : "{}";
  const keys = Object.keys(value);
  if (keys.length > 0 && depth === MAX_SHOWN_DEPTH) return `${open}…${close}`;
  const members = keys.slice(0, MAX_MEMBERS).map((key) => {
    const member = shown((value as Readonly<Record<string, unknown>>)[key], depth + 1);
    return isList ? member : `${shown(key, depth)}:${member}`;
  });
  return `${open}${members.join(",")}${keys.length > MAX_MEMBERS ? ",…" : ""}${close}`;
}
