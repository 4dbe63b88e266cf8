/** `examples/finetune` repeats its recorded digests: continued from a checkpoint, and divided between two processes. */
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { section } from "../../../examples/finetune/table.mjs";
import { IS_FULL, sampled } from "../harness/draws.js";
import { missingSmolLM2 } from "../harness/models.js";

const path = (name: string): string => fileURLToPath(new URL(`../../../${name}`, import.meta.url));
const MAIN = path("examples/finetune/main.mjs");
const LAUNCH = [path("dist/src/cli/bin.js"), "launch", "-n", "2", MAIN, "--"];
/** A run takes two minutes on an idle core, and several times as long on a busy one. */
const DEADLINE_MS = 1_200_000;
/** The last step that is repeated, and the one after which a run is interrupted. A full run repeats all steps of one recipe. */
const stepsOf = (recipe: string): readonly [last: number, middle: number] => {
  if (!IS_FULL) return [2, 1];
  return recipe === "bf16" ? [20, 10] : [6, 3];
};

interface Recorded {
  readonly host: string;
  readonly runs: Readonly<
    Record<string, { readonly losses: readonly number[]; readonly digests: readonly string[] }>
  >;
}
const recorded = JSON.parse(readFileSync(path("examples/finetune/recorded.json"), "utf8")) as Recorded;

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "lockstep-finetune-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

/** The lines that a program prints. */
async function printed(program: readonly string[], ...words: readonly string[]): Promise<readonly string[]> {
  const { stdout } = await promisify(execFile)(process.execPath, [...program, ...words]);
  return stdout.trimEnd().split("\n");
}

/** The recorded lines of the steps behind `begin` up to `end`. */
function expected(recipe: string, begin: number, end: number): readonly string[] {
  const { losses = [], digests = [] } = recorded.runs[recipe] ?? {};
  const lines = losses.map((loss, i) => `${recipe} ${i + 1} ${loss} ${digests[i]}`).slice(begin, end);
  expect(lines).toHaveLength(end - begin);
  return lines;
}

/** Repeats a run that is interrupted, saved and continued by another process. */
async function interrupted(recipe: string): Promise<void> {
  const [last, middle] = stepsOf(recipe);
  const file = join(folder, `${recipe}.safetensors`);
  const words = ["--recipe", recipe, "--steps"];
  const first = await printed([MAIN], ...words, `${middle}`, "--save", file);
  expect(first).toEqual(expected(recipe, 0, middle));
  const second = await printed([MAIN], ...words, `${last}`, "--resume", file);
  expect(second).toEqual(expected(recipe, middle, last));
}

/** Repeats a run as two processes, each with one of the windows of a step. */
async function divided(recipe: string): Promise<void> {
  const [last] = stepsOf(recipe);
  const lines = await printed(LAUNCH, "--recipe", recipe, "--steps", `${last}`);
  expect(lines).toEqual(expected(recipe, 0, last));
}

const CASES = Object.keys(recorded.runs).flatMap((recipe) => [
  ["interrupted", recipe, interrupted] as const,
  ["as two processes", recipe, divided] as const,
]);

describe("fine-tuning repeats its recorded digests", () => {
  it("of three recipes, under which the losses of the same windows fall", () => {
    expect(Object.keys(recorded.runs)).toEqual(["bf16", "block", "mxfp8"]);
    for (const { losses, digests } of Object.values(recorded.runs)) {
      expect([losses.length, new Set(digests).size]).toEqual([20, 20]);
      for (const step of [0, 5, 10]) expect(losses[step + 5]).toBeLessThan(losses[step] as number);
    }
  });

  for (const [how, recipe, repeat] of sampled(CASES, 2))
    it(
      `${how}, under ${recipe}`,
      async ({ skip }) => {
        if (missingSmolLM2) return skip(missingSmolLM2);
        await repeat(recipe);
      },
      DEADLINE_MS,
    );
});

it("the table in docs/models.md is that of the recorded runs", () => {
  const [, shown] =
    /<!-- finetune -->\n(.*?)<!-- \/finetune -->/s.exec(readFileSync(path("docs/models.md"), "utf8")) ?? [];
  expect(shown).toBe(section(recorded));
});

it.each([
  [["--recipe", "nvfp4"], "--recipe is nvfp4; give bf16, block, mxfp8"],
  [["--steps", "0"], "--steps is 0; give a whole number from 1"],
])("refuses %j", async (words, reason) => {
  const error = await printed([MAIN], ...words).catch((each: unknown) => each);
  expect(error).toMatchObject({ code: 2, stderr: `finetune: ${reason}\n` });
});
