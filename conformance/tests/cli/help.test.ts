/** The help of each command has an example. The examples succeed if they run in the order of the commands, in one folder. */
import { copyFileSync, cpSync, readFileSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { COMMANDS, runCli } from "../../../src/cli/main.js";
import { NO_BINARY } from "../../../src/cli/session.js";
import { type FileTensor, f32, ramp, useWorkspace } from "../harness/cli.js";
import { writeLanguageModel } from "../models/tiny-tokenizer.js";

const w = useWorkspace();
const ROOT = new URL("../../../", import.meta.url).pathname;

/** The input of the first example: the operands of a product that every quantizer accepts. */
const MODEL: readonly FileTensor[] = [
  f32("x", [128, 128], ramp(2 ** 14)),
  f32("w", [128, 128], ramp(2 ** 14, 7)),
  f32("layers.0.weight", [128, 128], ramp(2 ** 14, 5)),
];

/** The command whose example is not run, because it compiles for minutes. */
const COMPILES = "build-cuda";

/** The words of the example in a command's help, without the program's name. */
async function exampleOf(name: string): Promise<readonly string[]> {
  const help = await w.succeed(name, "--help");
  const [program, ...args] = /\nExample:\n {2}(.+)\n/.exec(help)?.[1]?.split(" ") ?? [];
  expect(program).toBe("lockstep");
  return args;
}

/** The output of `lockstep help NAME`. */
async function helpOf(name: string): Promise<{ status: number; out: string; error: string }> {
  const outputs = { out: "", error: "" };
  const writerTo = (stream: "out" | "error") => ({
    write: (text: string) => {
      outputs[stream] += text;
    },
  });
  const status = await runCli(["help", name], {
    stdout: writerTo("out"),
    stderr: writerTo("error"),
    binary: NO_BINARY,
  });
  return { status, ...outputs };
}

/** An operation of PyTorch on the tensor x. */
const DOUBLED = JSON.stringify({
  schema: "aten::mul.Tensor",
  args: [{ tensor: "x", dtype: "F32", shape: [2] }, 2],
});

const isFile = (word: string): boolean => /\.(safetensors|mjs|txt)$|^(wide|language)-model$|^run$/.test(word);

describe("the help of a command", () => {
  it.each(COMMANDS.map(({ name }) => name))(
    "of %s has an example of this command with existing options",
    async (name) => {
      const [command, ...args] = await exampleOf(name);
      expect(command).toBe(name);
      const options = COMMANDS.find((row) => row.name === name)?.options ?? {};
      const commandWords = args.includes("--") ? args.slice(0, args.indexOf("--")) : args;
      for (const word of commandWords.filter((commandWord) => commandWord.startsWith("--")))
        expect(options).toHaveProperty(word.slice(2));
    },
  );

  it.each(COMMANDS.map((command) => [command.name, command] as const))(
    "of %s shows the options that it accepts, each value of a choice with a meaning or a page that has it",
    async (name, { options }) => {
      const help = await w.succeed(name, "--help");
      expect(help).not.toContain("undefined");
      expect(await helpOf(name)).toEqual({ status: 0, out: help, error: "" });
      const shownOptions = Array.from(help.matchAll(/^ {2}(?:-\w, )?--([\w-]+)/gm), ([, option]) => option);
      expect(shownOptions.sort()).toEqual(Object.keys(options).sort());
      for (const [option, { placeholder = "", help: text }] of Object.entries(options)) {
        const pages = Array.from(text.matchAll(/docs\/[\w-]+\.md/g), ([page]) =>
          readFileSync(`${ROOT}${page}`, "utf8"),
        );
        for (const value of placeholder.includes("|") ? placeholder.split("|") : [])
          if (value !== value.toUpperCase() || /^\d/.test(value))
            expect(
              [text, ...pages].some((page) => new RegExp(`(^|[^\\w-])${value}([^\\w-]|$)`).test(page)),
              `--${option} ${value}`,
            ).toBe(true);
      }
    },
  );

  it.each(
    COMMANDS.filter(({ inputs }) => inputs.length > 0).map((command) => [command.name, command] as const),
  )(
    "of %s shows no option that the command refuses whatever its value is",
    async (name, { options, inputs }) => {
      const missingPaths = inputs.map((_, i) => `@missing-${i}`);
      for (const [option, { kind }] of Object.entries(options).filter(
        ([optionName]) => optionName !== "help",
      )) {
        const { stderr } = await w.run(
          name,
          ...missingPaths,
          `--${option}`,
          ...(kind === "flag" ? [] : ["1"]),
        );
        expect(stderr, option).not.toMatch(new RegExp(`no option|not for ${name}`));
      }
    },
  );

  it.each(COMMANDS.map(({ name, options }) => [name, options] as const))(
    "of %s offers a backend exactly if the command's file uses one",
    (name, options) => {
      const source = readFileSync(`${ROOT}src/cli/commands/${name}.ts`, "utf8");
      const usesBackend = /session\.backend\(|= session\.general;/.test(source);
      expect(Object.hasOwn(options, "backend")).toBe(usesBackend);
    },
  );

  it("of an unknown command suggests the command with the nearest name", async () => {
    const error = expect.stringMatching(/"quantise" is not a command.*quantize/s);
    expect(await helpOf("quantise")).toEqual({ status: 2, out: "", error });
  });

  it("shows examples that succeed one after another, each with the files that earlier ones wrote", async () => {
    await w.write("model.safetensors", MODEL);
    await writeLanguageModel(w.path("language-model"));
    cpSync(`${ROOT}conformance/vectors/runs/operators`, w.path("run"), { recursive: true });
    await w.write("operation.safetensors", [f32("x", [2], [1, 2])], { operation: DOUBLED });
    writeFileSync(w.path("text.txt"), "hello hello");
    writeFileSync(w.path("train.mjs"), "if (process.argv[2] !== '--steps') process.exit(1);\n");
    for (const { name } of COMMANDS.filter((command) => command.name !== COMPILES)) {
      const args = await exampleOf(name);
      // copies the reference's results as the user's correct kernel
      if (name === "compare") copyFileSync(w.path("product.safetensors"), w.path("mine.safetensors"));
      const isPath = (word: string, i: number): boolean => isFile(word) || args[i - 1] === "-o";
      const run = await w.run(...args.map((word, i) => (isPath(word, i) ? `@${word}` : word)));
      // the two dialects of the example differ, so the status is 1
      expect([name, run.status, run.stderr]).toEqual([name, name === "diff" ? 1 : 0, expect.any(String)]);
    }
  }, 120_000);
});
