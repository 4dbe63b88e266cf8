/**
 * `examples/finetune` repeats its recorded digests: continued from a checkpoint, and divided between two processes. A full run
 * trains SmolLM2 as recorded, and a tiny model; a short run trains the tiny model only, because a step of SmolLM2 takes more than
 * ten seconds.
 */
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { section } from "../../../examples/finetune/table.mjs";
import { sampleCases } from "../harness/draws.js";
import { IS_FULL } from "../harness/full.js";
import { missingSmolLM2 } from "../harness/models.js";
import { TINY, type TinyChoices } from "../models/tiny-model.js";
import { writeTinyTextModel } from "../models/tiny-text-model.js";

const path = (name: string): string => fileURLToPath(new URL(`../../../${name}`, import.meta.url));
const MAIN = path("examples/finetune/main.mjs");
const LAUNCH = [path("dist/src/cli/bin.js"), "launch", "-n", "2", MAIN, "--"];
/** A run takes two minutes on an idle core, and several times as long on a busy one. */
const DEADLINE_MS = 1_200_000;
/** The last step of SmolLM2 that is repeated: all steps of one recipe. */
const lastOf = (recipe: string): number => (recipe === "bf16" ? 20 : 6);

interface Run {
  readonly losses: readonly number[];
  readonly digests: readonly string[];
}
interface FinetuneRecord {
  readonly host: string;
  readonly runs: Readonly<Record<string, Run>>;
}
const record = JSON.parse(readFileSync(path("examples/finetune/recorded.json"), "utf8")) as FinetuneRecord;

/** The first steps of the tiny model under each recipe. */
const TINY_RUNS: Readonly<Record<string, Run>> = {
  bf16: {
    losses: [3.803644895553589, 3.9007933139801025],
    digests: ["d8b43441d741c389", "5a3bc101e6ba6a72"],
  },
  block: {
    losses: [3.8072519302368164, 3.9078867435455322],
    digests: ["002e4ab483d70f2e", "e44735e919616b43"],
  },
  mxfp8: {
    losses: [3.8078877925872803, 3.9080193042755127],
    digests: ["af6da43be129bc79", "1f5d1f95b7ab0c56"],
  },
};

let folder = "";
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "lockstep-finetune-"));
  // the rows of all weights fill blocks of mxfp8
  const choices: TinyChoices = { ...TINY, heads: [4, 4] };
  await writeTinyTextModel(join(folder, "SmolLM2-135M-Instruct"), { extraCharacters: 'Ċ",:', choices });
});
afterAll(() => rmSync(folder, { recursive: true }));

/** A model that the example trains: the recorded runs, and how the program finds it. */
interface Model {
  readonly runs: Readonly<Record<string, Run>>;
  readonly env: () => NodeJS.ProcessEnv;
  readonly lastOf: (recipe: string) => number;
}
const SMOLLM2: Model = { runs: record.runs, env: () => process.env, lastOf };
const SMALL: Model = {
  runs: TINY_RUNS,
  env: () => ({ ...process.env, LOCKSTEP_MODELS: folder }),
  lastOf: () => 2,
};

/** The lines that a program prints. */
async function outputOf(
  program: readonly string[],
  args: readonly string[],
  env = process.env,
): Promise<readonly string[]> {
  const { stdout } = await promisify(execFile)(process.execPath, [...program, ...args], { env });
  return stdout.trimEnd().split("\n");
}

/** The recorded lines of the steps behind `begin` up to `end`. */
function expectedLines({ runs }: Model, recipe: string, begin: number, end: number): readonly string[] {
  const { losses = [], digests = [] } = runs[recipe] ?? {};
  const lines = losses.map((loss, i) => `${recipe} ${i + 1} ${loss} ${digests[i]}`).slice(begin, end);
  expect(lines).toHaveLength(end - begin);
  return lines;
}

/** Repeats a run that is interrupted, saved and continued by another process. */
async function runInterrupted(model: Model, recipe: string): Promise<void> {
  const lastStep = model.lastOf(recipe);
  const middleStep = lastStep / 2;
  const file = join(folder, `${recipe}.safetensors`);
  const args = ["--recipe", recipe, "--steps"];
  const firstOutput = await outputOf([MAIN], [...args, `${middleStep}`, "--save", file], model.env());
  expect(firstOutput).toEqual(expectedLines(model, recipe, 0, middleStep));
  const secondOutput = await outputOf([MAIN], [...args, `${lastStep}`, "--resume", file], model.env());
  expect(secondOutput).toEqual(expectedLines(model, recipe, middleStep, lastStep));
}

/** Repeats a run as two processes, each with one of the windows of a step. */
async function runDivided(model: Model, recipe: string): Promise<void> {
  const lastStep = model.lastOf(recipe);
  const lines = await outputOf(LAUNCH, ["--recipe", recipe, "--steps", `${lastStep}`], model.env());
  expect(lines).toEqual(expectedLines(model, recipe, 0, lastStep));
}

const CASES = Object.keys(record.runs).flatMap((recipe) => [
  ["interrupted", recipe, runInterrupted] as const,
  ["as two processes", recipe, runDivided] as const,
]);

describe("fine-tuning repeats its recorded digests", () => {
  it("of three recipes, under which the losses of the same windows fall", () => {
    expect(Object.keys(record.runs)).toEqual(["bf16", "block", "mxfp8"]);
    for (const { losses, digests } of Object.values(record.runs)) {
      expect([losses.length, new Set(digests).size]).toEqual([20, 20]);
      for (const step of [0, 5, 10]) expect(losses[step + 5]).toBeLessThan(losses[step] as number);
    }
  });

  it.each(sampleCases(CASES, 1))("of a tiny model, %s, under %s", (_how, recipe, repeat) =>
    repeat(SMALL, recipe),
  );

  const reason = IS_FULL ? missingSmolLM2 : "only LOCKSTEP_TESTS=full trains SmolLM2";
  describe.skipIf(reason)(`of SmolLM2${reason ? ` (skipped: ${reason})` : ""}`, () => {
    it.each(CASES)("%s, under %s", (_how, recipe, repeat) => repeat(SMOLLM2, recipe), DEADLINE_MS);
  });
});

it("the table in docs/models.md shows the recorded runs", () => {
  const [, shownOutput] =
    /<!-- finetune -->\n(.*?)<!-- \/finetune -->/s.exec(readFileSync(path("docs/models.md"), "utf8")) ?? [];
  expect(shownOutput).toBe(section(record));
});

it.each(
  sampleCases<readonly [readonly string[], string]>(
    [
      [["--recipe", "nvfp4"], "--recipe is nvfp4; give bf16, block, mxfp8"],
      [["--steps", "0"], "--steps is 0; give a whole number from 1"],
    ],
    1,
  ),
)("refuses %j", async (args, reason) => {
  const error = await outputOf([MAIN], args).catch((cause: unknown) => cause);
  expect(error).toMatchObject({ code: 2, stderr: `finetune: ${reason}\n` });
});
