/** Errors of a command as JSON. */
import { LockstepError, messageOf } from "../errors.js";
import { printableJson } from "../text/printable.js";

/** The code and message of any thrown value, for programs. The code of an unexpected error is `INTERNAL`. */
export function failureOf(error: unknown): { readonly code: string; readonly message: string } {
  return { code: error instanceof LockstepError ? error.code : "INTERNAL", message: messageOf(error) };
}

/** One line of JSON for an error. `fields` name the inputs of the command, and precede the error. */
export function failureJson(error: unknown, fields: Readonly<Record<string, unknown>> = {}): string {
  return `${printableJson(JSON.stringify({ ...fields, ok: false, error: failureOf(error) }))}\n`;
}

/** Whether arguments contain --json before a `--`, even if they are invalid otherwise. */
export function isJsonRequested(args: readonly string[]): boolean {
  const end = args.indexOf("--");
  return args.slice(0, end < 0 ? args.length : end).some((word) => /^--json(=|$)/.test(word));
}
