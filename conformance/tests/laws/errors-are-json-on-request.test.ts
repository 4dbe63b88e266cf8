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
    const validArguments = SUCCESSFUL_ARGUMENTS[name] ?? [];
    const mistakes: Case[] = [
      ["an unknown option", name, ...validArguments, "--frobnicate"],
      ["an unknown short option", name, ...validArguments, "-z"],
      ["a value of --json", name, ...validArguments, "--json=yes"],
      ["--json twice", name, ...validArguments, "--json"],
    ];
    if (!inputs.at(-1)?.endsWith("…"))
      mistakes.push(["one argument too many", name, ...validArguments, "@in"]);
    for (const [option, row] of Object.entries(options)) {
      if (option === "json" || option === "help") continue;
      const addCase = (label: string, ...args: string[]): void => {
        mistakes.push([`${label} of --${option}`, ...withOption(name, option, ...args)]);
      };
      if (row.kind === "flag") addCase("a value", `--${option}=1`);
      else addCase("no value", `--${option}`);
      for (const text of WRONG) if (refuses(row, text)) addCase("a wrong value", `--${option}=${text}`);
      if (row.required) addCase("absence");
      if (row.file === "read")
        for (const kind of Object.keys(BAD_FILES)) addCase(kind, `--${option}`, `@${kind}`);
      if (row.file === "written") addCase("a missing folder", `--${option}`, "@none/out");
    }
    for (const [i, input] of inputs.entries()) {
      mistakes.push([
        `absence of ${input}`,
        name,
        ...validArguments.slice(0, i),
        ...validArguments.slice(inputs.length),
      ]);
      for (const kind of Object.keys(BAD_FILES))
        mistakes.push([`${kind} ${input}`, name, ...validArguments.with(i, `@${kind}`)]);
    }
    return mistakes;
  }),
];

async function expectJsonError(title: string, args: readonly string[]): Promise<void> {
  const { status, stdout, stderr } = await w.run(...args);
  const call = `${title}: ${args.join(" ")}`;
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

it.each(sampleCases(CASES, 30))("%s: %s %s", async (title, ...args) => {
  await w.write("in", TENSORS);
  for (const [kind, create] of Object.entries(BAD_FILES))
    if (args.some((word) => word === `@${kind}`)) create(w.path(kind));
  const namesBefore = w.names;
  const [name = "--json", ...commandArguments] = args;
  await expectJsonError(
    title,
    name === "--json"
      ? [name]
      : commandArguments.some((word) => word.startsWith("--json="))
        ? args
        : [name, "--json", ...commandArguments],
  );
  expect(w.names).toEqual(namesBefore);
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
  const statuses = Array.from(page.matchAll(/^\| ([\d, ]+) \|/gm), ([, cell]) => cell);
  expect(statuses).toEqual(["0", "1", "2", "129, 130, 143"]);
  const [example = ""] = page.match(/\{"ok": false, "error": \{[^}]*\}\}/) ?? [];
  expect(JSON.parse(example.replace("…", '"…"'))).toMatchObject({ ok: false, error: { message: "…" } });
});
