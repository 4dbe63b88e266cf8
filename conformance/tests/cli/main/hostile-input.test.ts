/**
 * Hostile input for every command, option, input and kind of file in the table of commands. A command that refuses its
 * input prints one line without control characters, exits with status 2, and leaves no file behind. The cases are
 * derived from the table, so a new command or option is tested without further work.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { COMMANDS } from "../../../../src/cli/main.js";
import type { Option } from "../../../../src/cli/options.js";
import { printable } from "../../../../src/text/printable.js";
import { type CliRun, type FileTensor, f32, ramp, raw, useWorkspace } from "../../harness/cli.js";
import { SLOW_COMMANDS, SUCCESSFUL_ARGUMENTS, TENSORS, withOption } from "../../harness/commands.js";
import { sampleCases } from "../../harness/draws.js";

const w = useWorkspace();

const TEXTS = [
  "",
  " ",
  "-1",
  "1.5",
  "NaN",
  "Infinity",
  "1e400",
  "-1e400",
  "99999999999999999999",
  "0x",
  "nothing",
  "\x1b[31mred",
  "two\nlines",
  "\u202eleft",
  "__proto__",
  "constructor",
  "toString",
  ",",
  "1,2",
  "é",
  "e4m3\0",
  "1-0",
  "--",
  "-",
];

/** Whether a string is a number. */
const isNumber = (text: string): boolean => text.trim() !== "" && Number.isFinite(Math.fround(Number(text)));
const isFinite64 = (text: string): boolean => text.trim() !== "" && Number.isFinite(Number(text));
const TAKES: Readonly<Record<string, (text: string) => boolean>> = {
  prefix: (text) => text === "",
  counterexample: (text) => text !== "",
  alpha: isNumber,
  at: (text) => text === "1,2",
  "max-abs": (text) => isFinite64(text) && Number(text) >= 0,
  "max-rel": (text) => isFinite64(text) && Number(text) >= 0,
  "min-sqnr": isFinite64,
  scale: (text) => isNumber(text) && Number(text) > 0,
  "out-scale": (text) => isNumber(text) && Number(text) > 0,
  "amax-epsilon": (text) => isNumber(text) && Number(text) >= 0,
};

// biome-ignore lint/suspicious/noControlCharactersInRegex: the test searches for control characters
const CONTROL = /[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]/;

/** Fails unless the run succeeded or refused its input as documented; with `isJson`, a refusal is also printed as JSON. */
function expectPlain(run: CliRun, namesBefore: readonly string[], label: string, isJson = false): void {
  expect([0, 1, 2], label).toContain(run.status);
  expect(run.stdout, label).not.toMatch(CONTROL);
  expect(run.stderr, label).not.toMatch(CONTROL);
  expect(run.stderr, label).not.toMatch(/unexpected error|\n\s+at /);
  if (run.status === 2) {
    expect(run.stderr, label).toMatch(/^lockstep[^\n]*\n$/);
    if (isJson) expect(JSON.parse(run.stdout), label).toMatchObject({ ok: false, error: {} });
    else expect(run.stdout, label).toBe("");
    expect(w.names, label).toEqual(namesBefore);
  } else expect(run.stderr, label).toBe("");
}

async function expectRefused(args: readonly string[], message?: RegExp): Promise<void> {
  const namesBefore = w.names;
  const run = await w.run(...args);
  const title = args.join(" ");
  expectPlain(
    run,
    namesBefore,
    title,
    args.some((arg) => /^--json\b/.test(arg)),
  );
  expect(run.status, title).toBe(2);
  if (message) expect(run.stderr, title).toMatch(message);
}

type Row = readonly [command: string, option: string, row: Option<unknown>];
const OPTIONS: readonly Row[] = COMMANDS.flatMap(({ name, options }) =>
  Object.entries(options).map(([option, row]) => [name, option, row] as const),
);
const VALUES = OPTIONS.filter(([, , { kind, file }]) => kind === "value" && !file);

it("this file has a valid call of every command", async () => {
  expect(Object.keys(SUCCESSFUL_ARGUMENTS).toSorted()).toEqual(COMMANDS.map(({ name }) => name).toSorted());
  await w.write("in", TENSORS);
  for (const { name } of sampleCases(
    COMMANDS.filter(({ name: command }) => !SLOW_COMMANDS.includes(command)),
    8,
  ))
    await w.succeed(name, ...(SUCCESSFUL_ARGUMENTS[name] ?? []));
});

describe("an option", () => {
  it.each(sampleCases(VALUES))(
    "%s --%s accepts valid values and refuses all others",
    async (command, option) => {
      await w.write("in", TENSORS);
      for (const text of TEXTS) {
        const args = withOption(command, option, `--${option}=${text}`);
        if (TAKES[option]?.(text)) expectPlain(await w.run(...args), w.names, args.join(" "));
        else await expectRefused(args);
      }
    },
  );

  it.each(sampleCases(OPTIONS.filter(([, option]) => option !== "help")))(
    "%s --%s occurs once, with a value exactly if the option takes a value",
    async (command, option, row) => {
      await w.write("in", TENSORS);
      const validValue =
        SUCCESSFUL_ARGUMENTS[command]?.[(SUCCESSFUL_ARGUMENTS[command]?.indexOf(`--${option}`) ?? -1) + 1];
      const value = validValue && SUCCESSFUL_ARGUMENTS[command]?.includes(`--${option}`) ? validValue : "1";
      if (row.kind === "flag") {
        await expectRefused(withOption(command, option, `--${option}=yes`), /takes no value/);
        await expectRefused(withOption(command, option, `--${option}`, `--${option}`), /was given twice/);
        return;
      }
      await expectRefused(withOption(command, option, `--${option}`), /needs a value/);
      await expectRefused(withOption(command, option, `--${option}`, "--quiet"), /needs a value/);
      if (row.required)
        await expectRefused(withOption(command, option), new RegExp(`--${option} \\S+ is needed`));
      const repeatedOption = withOption(command, option, `--${option}`, value, `--${option}`, value);
      await expectRefused(repeatedOption, /was given twice|is not|no scalar format/);
    },
  );

  it.each(sampleCases(OPTIONS))(
    "%s --%s is suggested if a misspelling of it is given",
    async (command, option) => {
      await w.write("in", TENSORS);
      await expectRefused(
        [command, ...(SUCCESSFUL_ARGUMENTS[command] ?? []), `--${option}x`],
        new RegExp(`there is no option --${option}x; did you mean --${option}`),
      );
    },
  );
});

describe("a path", () => {
  const prepare = async (): Promise<void> => {
    await w.write("in", TENSORS);
    mkdirSync(w.path("folder"));
    execFileSync("mkfifo", [w.path("pipe")]);
    symlinkSync("loop", w.path("loop"));
    writeFileSync(w.path("text"), "not a safetensors file, though long enough to be one");
    writeFileSync(w.path("empty"), "");
    writeFileSync(w.path("cut"), readFileSync(w.path("in")).subarray(0, -1));
  };
  const NOWHERE = [
    "",
    "@folder",
    "@pipe",
    "@loop",
    "@in/x",
    "@no/such",
    "/dev/full",
    `@${"n".repeat(300)}`,
    "@zero\0byte",
  ];
  const READ = [...NOWHERE, "/dev/zero", "@none", "@text", "@empty", "@cut", "@\x1b[31mnone", "@two\nlines"];

  it.each(
    sampleCases(
      COMMANDS.flatMap(({ name, inputs }) => inputs.map((input, i) => [name, input, i] as const)),
      6,
    ),
  )("%s %s that leads to no tensors is refused", async (command, _, place) => {
    await prepare();
    // the file that `launch` runs is a program and may have any contents
    for (const path of SLOW_COMMANDS.includes(command) ? NOWHERE : READ) {
      const args = [...(SUCCESSFUL_ARGUMENTS[command] ?? [])];
      args[place] = path;
      await expectRefused([command, ...args]);
    }
  });

  it.each(sampleCases(OPTIONS.filter(([, , { file }]) => file)))(
    "%s --%s that leads to no file is refused",
    async (command, option, { file }) => {
      await prepare();
      const paths = file === "read" ? READ : NOWHERE;
      for (const path of paths) await expectRefused(withOption(command, option, `--${option}`, path));
    },
  );

  /** Commands whose input is not only a file of tensors, and their messages for an unusable input. */
  const OTHER_INPUTS: Readonly<Record<string, RegExp>> = {
    perplexity: /neither tokenizer.json nor a .gguf file/,
    apply: /the metadata "operation"/,
    replay: /log.json: cannot be read/,
  };
  const writers = OPTIONS.filter(([, , { file }]) => file === "written");
  const reading = writers.filter(([command]) =>
    COMMANDS.some(({ name, inputs }) => name === command && inputs.length > 0),
  );
  it.each(sampleCases(reading, 4))(
    "%s --%s that is also an input is overwritten only with --force, by whatever name the path is given",
    async (command, option) => {
      await w.write("in", TENSORS);
      symlinkSync(w.path("in"), w.path("link"));
      symlinkSync(".", w.path("here"));
      execFileSync("ln", [w.path("in"), w.path("hard")]);
      const bytesBefore = readFileSync(w.path("in"));
      for (const name of [
        "in",
        "link",
        "hard",
        join("here", "in"),
        join("here", "..", "here", ".", "link"),
      ]) {
        await expectRefused(
          withOption(command, option, `--${option}`, `@${name}`),
          /is the input .*; give another file, or --force/,
        );
        expect(readFileSync(w.path("in")).equals(bytesBefore)).toBe(true);
      }
      const args = withOption(command, option, `--${option}`, "@link", "--force");
      const otherInput = OTHER_INPUTS[command];
      if (otherInput) await expectRefused(args, otherInput);
      else await w.succeed(...args);
      expect(w.names).toEqual(["hard", "here", "in", "link"]);
    },
  );
});

describe("a file", () => {
  const NAMES = [
    "\x1b[2J\x1b[31mred",
    "two\nlines\r",
    "\u202eleft\u2028",
    "\u009b31m",
    "\ud800",
    "\x07",
    "a",
  ];
  const KINDS: readonly (readonly [string, readonly FileTensor[]])[] = [
    ["no tensors", []],
    [
      "names that do something to a terminal",
      NAMES.map((name, i) => f32(name, [i % 2 ? 3 : 32], ramp(i % 2 ? 3 : 32))),
    ],
    [
      "such names and types that nobody takes",
      NAMES.map((name) => raw(name, "I64", [1], new Array(8).fill(1))),
    ],
    ["tensors without elements", [f32("a", [0, 32], []), f32("b", [0, 0], []), f32("c", [32, 0], [])]],
    ["scalars", [f32("a", [], [1]), f32("b", [], [2])]],
    ["rows of 31", [f32("a", [1, 31], ramp(31)), f32("b", [2, 31], ramp(62))]],
    [
      "specials alone",
      ["a", "b"].map((name) =>
        f32(
          name,
          [1, 32],
          new Array(32).fill(0).map((_, i) => [Number.NaN, Infinity, -Infinity, -0][i % 4]!),
        ),
      ),
    ],
    ["shapes that no product has", [f32("a", [2, 32], ramp(64)), f32("b", [2, 16], ramp(32))]],
    [
      "codes in the place of values",
      [
        raw("a", "F8_E5M2", [1, 32], new Array(32).fill(0x7f)),
        raw("b", "F4", [2, 32], new Array(32).fill(255)),
      ],
    ],
    [
      "names of parts",
      [f32("a", [1, 32], ramp(32)), f32("a.rowwise.data", [1], [1]), f32("a.rowwise.scale_inv", [1], [1])],
    ],
  ];
  const METADATA: readonly Readonly<Record<string, string>>[] = [
    {},
    { "lockstep.a": "{" },
    { "lockstep.a": "null" },
    { "lockstep.\x1b[31m": '{"quantizer":"\x1b[31m\\u001b"}' },
    Object.fromEntries([
      ["__proto__", "\x1b"],
      ["lockstep.__proto__", "[]"],
    ]),
  ];
  const readers = COMMANDS.filter(
    ({ name, inputs }) => inputs.length > 0 && !SLOW_COMMANDS.includes(name),
  ).map(({ name }) => name);

  it.each(sampleCases(readers.flatMap((command) => KINDS.map(([kind]) => [command, kind] as const))))(
    "given to %s has %s",
    async (command, kind) => {
      const tensors = KINDS.find(([fileKind]) => fileKind === kind)?.[1] ?? [];
      const inputs = COMMANDS.find(({ name }) => name === command)?.inputs.length ?? 0;
      for (const metadata of METADATA) {
        for (const extraArgs of [[], ["--json"]]) {
          await w.write("in", tensors, metadata);
          await w.write(
            "other",
            tensors.map((tensor) => ({ ...tensor, bytes: tensor.bytes.map((byte) => byte ^ 1) })).slice(0, 6),
          );
          const args = [...(SUCCESSFUL_ARGUMENTS[command] ?? [])];
          if (inputs > 1) args[1] = "@other";
          const run = await w.run(command, ...args, ...extraArgs);
          const title = `${kind} ${JSON.stringify(metadata)}`;
          expectPlain(run, ["in", "other"], title, extraArgs.length > 0);
          if (run.status < 2 && extraArgs.length > 0) JSON.parse(run.stdout);
          if (w.names.includes("out")) await w.read("out");
          execFileSync("rm", ["-rf", w.path("out"), w.path("wide")]);
        }
      }
    },
  );

  it("keeps metadata of any key through every command that copies them", async () => {
    const metadata = Object.fromEntries([
      ["__proto__", "1"],
      ["", "2"],
      ["\ud800", "3"],
    ]);
    await w.write("in", TENSORS, metadata);
    for (const command of ["encode", "decode", "dequantize"]) {
      await w.succeed(command, ...(SUCCESSFUL_ARGUMENTS[command] ?? []));
      expect(Object.entries((await w.read("out")).metadata)).toEqual(Object.entries(metadata));
    }
  });
});

describe("the file that a command writes", () => {
  const writers = COMMANDS.filter(
    ({ name, options }) =>
      !SLOW_COMMANDS.includes(name) && Object.values(options).some(({ file }) => file === "written"),
  );
  it.each(
    sampleCases(
      writers.map(({ name }) => name),
      4,
    ),
  )("by %s has the same bytes for any number of threads, with --json and without", async (command) => {
    await w.write("in", TENSORS);
    const runs = [
      [],
      ["--threads", "1"],
      ["--threads", "2"],
      ["--threads", "3"],
      ["--json"],
      ["--quiet"],
      ["--backend", "wasm"],
      ["--force"],
    ];
    let firstOutput: Buffer | undefined;
    for (const extraArgs of runs) {
      await w.succeed(command, ...(SUCCESSFUL_ARGUMENTS[command] ?? []), ...extraArgs);
      const bytes = readFileSync(w.path("out"));
      firstOutput ??= bytes;
      expect(bytes.equals(firstOutput), extraArgs.join(" ")).toBe(true);
    }
  });
});

it("every text becomes printable, and printable text stays unchanged", () => {
  for (let code = 0; code < 0x3000; code++) expect(printable(String.fromCharCode(code))).not.toMatch(CONTROL);
  expect(printable("a \\n é 漢 …·σ")).toBe("a \\n é 漢 …·σ");
});
