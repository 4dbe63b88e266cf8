/**
 * With --json, every command answers every kind of bad input with exit status 2, one JSON object on standard output, and the same
 * error in one line on standard error. Commands and options come from their table.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { expect, it } from "vitest";
import { COMMANDS } from "../../../src/cli/main.js";
import type { Option } from "../../../src/cli/options.js";
import type { ErrorCode } from "../../../src/errors.js";
import { useWorkspace } from "../harness/cli.js";
import { SUCCESSFUL_ARGUMENTS, TENSORS, withOption } from "../harness/commands.js";
import { sampleCases } from "../harness/draws.js";

const w = useWorkspace();

const CODES: Readonly<Record<ErrorCode, true>> = {
  ARGUMENT: true,
  SHAPE: true,
  DTYPE: true,
  UNSUPPORTED: true,
  OUT_OF_MEMORY: true,
  DISPOSED: true,
  BACKEND: true,
  FILE: true,
  MISSING_PACKAGE: true,
  DISTRIBUTED: true,
};

/** Kinds of paths that lead to no usable file, and how each is created. */
const BAD_FILES: Readonly<Record<string, (path: string) => void>> = {
  missing: () => {},
  empty: (path) => writeFileSync(path, ""),
  text: (path) => writeFileSync(path, "no safetensors file, though it is long enough to be one"),
  truncated: (path) => writeFileSync(path, readFileSync(w.path("in")).subarray(0, -1)),
  huge: (path) => writeFileSync(path, Buffer.from("ffffffffffffff7f7b7d", "hex")),
  nested: (path) => writeFileSync(path, header(`{"a":${"[".repeat(100_000)}`)),
  hostile: (path) =>
    writeFileSync(path, header('{"\\u001b[31m":{"dtype":"F32","shape":[1e99],"data_offsets":[0,4]}}')),
  folder: (path) => mkdirSync(path),
  pipe: (path) => execFileSync("mkfifo", [path]),
};

/** A file that consists of a header only. */
function header(json: string): Buffer {
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  return Buffer.concat([length, Buffer.from(json)]);
}

/** Values that an option with a domain refuses. */
const WRONG = ["", "\u001b[31m,\n-", "1e400"];

function refuses({ kind, parse }: Option<unknown>, text: string): boolean {
  if (kind === "flag") return false;
  try {
    parse(text);
    return false;
  } catch {
    return true;
  }
}

const JSON_COMMANDS = COMMANDS.filter(({ options }) => "json" in options);

type Case = readonly [what: string, ...args: readonly string[]];

/** Every call with one mistake: in an option, in the number of arguments, or in a file. */
const CASES: readonly Case[] = [
  ["no command"],
  ["an unknown command", "encrypt"],
  ["help of an unknown command", "help", "encrypt"],
  ...JSON_COMMANDS.flatMap(({ name, inputs, options }): Case[] => {
    const good = SUCCESSFUL_ARGUMENTS[name] ?? [];
    const mistakes: Case[] = [
      ["an unknown option", name, ...good, "--frobnicate"],
      ["an unknown short option", name, ...good, "-z"],
      ["a value of --json", name, ...good, "--json=yes"],
      ["--json twice", name, ...good, "--json"],
    ];
    if (!inputs.at(-1)?.endsWith("…")) mistakes.push(["one argument too many", name, ...good, "@in"]);
    for (const [option, row] of Object.entries(options)) {
      if (option === "json" || option === "help") continue;
      const mistake = (label: string, ...words: string[]): void => {
        mistakes.push([`${label} of --${option}`, ...withOption(name, option, ...words)]);
      };
      if (row.kind === "flag") mistake("a value", `--${option}=1`);
      else mistake("no value", `--${option}`);
      for (const text of WRONG) if (refuses(row, text)) mistake("a wrong value", `--${option}=${text}`);
      if (row.required) mistake("absence");
      if (row.file === "read")
        for (const kind of Object.keys(BAD_FILES)) mistake(kind, `--${option}`, `@${kind}`);
      if (row.file === "written") mistake("a missing folder", `--${option}`, "@none/out");
    }
    for (const [i, input] of inputs.entries()) {
      mistakes.push([`absence of ${input}`, name, ...good.slice(0, i), ...good.slice(inputs.length)]);
      for (const kind of Object.keys(BAD_FILES))
        mistakes.push([`${kind} ${input}`, name, ...good.with(i, `@${kind}`)]);
    }
    return mistakes;
  }),
];

async function expectJsonError(what: string, args: readonly string[]): Promise<void> {
  const { status, stdout, stderr } = await w.run(...args);
  const call = `${what}: ${args.join(" ")}`;
  expect(status, call).toBe(2);
  expect(stderr, call).toMatch(/^lockstep[^\n]*\n$/);
  expect(stdout, call).toMatch(/^[^\n]*\n$/);
  const { ok, error } = JSON.parse(stdout) as { ok: unknown; error: { code: ErrorCode; message: string } };
  expect(ok, call).toBe(false);
  expect(Object.keys(CODES), `${call}: ${stderr}`).toContain(error.code);
  expect(error.message, call).not.toBe("");
  // the line on standard error omits the name of the function where the command has the same name
  expect(stderr, call).toContain(error.message.slice(-40));
}

it.each(sampleCases(CASES, 30))("%s: %s %s", async (what, ...args) => {
  await w.write("in", TENSORS);
  for (const [kind, create] of Object.entries(BAD_FILES))
    if (args.some((word) => word === `@${kind}`)) create(w.path(kind));
  const before = w.names;
  const [name = "--json", ...rest] = args;
  await expectJsonError(
    what,
    name === "--json"
      ? [name]
      : rest.some((word) => word.startsWith("--json="))
        ? args
        : [name, "--json", ...rest],
  );
  expect(w.names).toEqual(before);
});

it("an option that takes --json for its value is told so in JSON, and an argument after -- is none", async () => {
  await w.write("in", TENSORS);
  await expectJsonError("a value", ["encode", "@in", "-o", "@out", "--format", "--json"]);
  const { status, stdout } = await w.run("info", "--", "--json");
  expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
});

it("a command that is not asked for JSON prints none", async () => {
  await w.write("in", TENSORS);
  for (const { name } of COMMANDS) {
    const { status, stdout } = await w.run(name, ...(SUCCESSFUL_ARGUMENTS[name] ?? []), "--frobnicate");
    expect({ name, status, stdout }).toEqual({ name, status: 2, stdout: "" });
  }
});

it("docs/cli.md lists every exit status and the object of an error", () => {
  const page = readFileSync(new URL("../../../docs/cli.md", import.meta.url), "utf8");
  const statuses = Array.from(page.matchAll(/^\| ([\d, ]+) \|/gm), ([, each]) => each);
  expect(statuses).toEqual(["0", "1", "2", "129, 130, 143"]);
  const [shown = ""] = page.match(/\{"ok": false, "error": \{[^}]*\}\}/) ?? [];
  expect(JSON.parse(shown.replace("…", '"…"'))).toMatchObject({ ok: false, error: { message: "…" } });
});
