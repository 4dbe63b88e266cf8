/** The help of each command has an example. The examples succeed if they run in the order of the commands, in one folder. */
import { copyFileSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { COMMANDS } from "../../../src/cli/main.js";
import { type FileTensor, f32, ramp, useWorkspace } from "../harness/cli.js";

const w = useWorkspace();

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
  const [program, ...words] = /\nExample:\n {2}(.+)\n/.exec(help)?.[1]?.split(" ") ?? [];
  expect(program).toBe("lockstep");
  return words;
}

const isFile = (word: string): boolean => /\.(safetensors|mjs)$|^wide-model$/.test(word);

describe("the help of a command", () => {
  it.each(COMMANDS.map(({ name }) => name))(
    "of %s has an example of this command with existing options",
    async (name) => {
      const [command, ...words] = await exampleOf(name);
      expect(command).toBe(name);
      const known = COMMANDS.find((each) => each.name === name)?.options ?? {};
      const own = words.includes("--") ? words.slice(0, words.indexOf("--")) : words;
      for (const word of own.filter((each) => each.startsWith("--")))
        expect(known).toHaveProperty(word.slice(2));
    },
  );

  it("shows examples that succeed one after another, each with the files that earlier ones wrote", async () => {
    await w.write("model.safetensors", MODEL);
    writeFileSync(w.path("train.mjs"), "if (process.argv[2] !== '--steps') process.exit(1);\n");
    for (const { name } of COMMANDS.filter((command) => command.name !== COMPILES)) {
      const words = await exampleOf(name);
      // the results of the user's own kernel, which are right
      if (name === "compare") copyFileSync(w.path("product.safetensors"), w.path("mine.safetensors"));
      const isPath = (word: string, i: number): boolean => isFile(word) || words[i - 1] === "-o";
      const run = await w.run(...words.map((word, i) => (isPath(word, i) ? `@${word}` : word)));
      // the two dialects of the example differ, which is what it shows
      expect([name, run.status, run.stderr]).toEqual([name, name === "diff" ? 1 : 0, expect.any(String)]);
    }
  }, 120_000);
});
