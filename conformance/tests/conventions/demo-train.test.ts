/** The training demo: its verdict on recipes follows from its results, and its output is the same on every machine. */
import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { failuresOf, pairedDifference, rowOf, verdict } from "../../../examples/training/compare.mjs";
import { sampleCases } from "../harness/draws.js";

const MAIN = fileURLToPath(new URL("../../../examples/training/main.mjs", import.meta.url));
const BUILT = fileURLToPath(new URL("../../../dist/src/index.js", import.meta.url));
const BAD_USAGE = 2;

/** The digest of a run with one seed, two steps and 512 digits. */
const DIGEST = "bdc8892989602f6b";

const answers = (digits: number) => fc.array(fc.constantFrom(0, 1), { minLength: digits, maxLength: digits });
const pair = fc.integer({ min: 2, max: 40 }).chain((digits) => fc.tuple(answers(digits), answers(digits)));
const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);

describe("a paired difference", () => {
  it("of a recipe to itself is 0, with a standard error of 0", () => {
    fc.assert(
      fc.property(pair, ([first, second]) => {
        expect(pairedDifference([first, second], [first, second])).toEqual({ mean: 0, error: 0 });
      }),
    );
  });

  it("has the mean of the accuracies' difference and the error that the counts of changed answers give", () => {
    fc.assert(
      fc.property(pair, ([answersA, answersB]) => {
        const { mean, error } = pairedDifference([answersA], [answersB]);
        const n = answersA.length;
        const numGained = answersA.filter((isRight, i) => isRight > (answersB[i] as number)).length;
        const numLost = answersA.filter((isRight, i) => isRight < (answersB[i] as number)).length;
        expect(mean).toBeCloseTo((100 * (sum(answersA) - sum(answersB))) / n, 10);
        const variance = (numGained + numLost - (numGained - numLost) ** 2 / n) / (n - 1);
        expect(error).toBeCloseTo(100 * Math.sqrt(variance / n), 10);
      }),
    );
  });

  it("takes the mean over seeds before it looks at digits", () => {
    const { mean, error } = pairedDifference(
      [
        [1, 0, 1, 1],
        [0, 1, 1, 1],
      ],
      [
        [0, 1, 1, 1],
        [1, 0, 1, 1],
      ],
    );
    expect([mean, error]).toEqual([0, 0]);
  });
});

describe("the criterion", () => {
  it("is met by a loss of accuracy of at most the allowance and two standard errors", () => {
    expect(verdict({ mean: -1, error: 0.25 }, 0.5)).toEqual({ allowance: 0.5, least: -1, passes: true });
    expect(verdict({ mean: -1.001, error: 0.25 }, 0.5).passes).toBe(false);
    expect(verdict({ mean: 3, error: 0 }, 0.5).passes).toBe(true);
    expect(verdict({ mean: Number.NaN, error: 0 }, 0.5).passes).toBe(false);
  });

  it("names the recipes that fail it, and has no criterion for bf16", () => {
    const run = (rightAnswers: readonly number[]) => ({
      right: rightAnswers,
      losses: [2, 1],
      seconds: 3,
      cpuSeconds: 2,
    });
    const goodRuns = [run(new Array(100).fill(1))];
    const worseRuns = [run(Array.from({ length: 100 }, (_, i) => Number(i >= 10)))];
    const rows = [
      rowOf({ name: "bf16", allowance: undefined }, goodRuns, goodRuns, 1),
      rowOf({ name: "same", allowance: 0.5 }, goodRuns, goodRuns, 1),
      rowOf({ name: "worse", allowance: 0.5 }, worseRuns, goodRuns, 1),
    ];
    expect(rows.map(({ accuracy, loss }) => [accuracy, loss])).toEqual([
      [100, 1],
      [100, 1],
      [90, 1],
    ]);
    const error = 100 * Math.sqrt((10 - 1) / 99 / 100);
    expect(failuresOf(rows)).toEqual([
      `worse is 10.00 points worse than bf16; 0.5 + 2 x ${error.toFixed(2)} are allowed`,
    ]);
  });
});

describe("npm run demo:train", () => {
  const place = mkdtempSync(join(tmpdir(), "demo-train-"));

  beforeAll(() => {
    if (!existsSync(BUILT)) throw new Error("the package is not built: npm run build");
  });

  afterAll(() => rmSync(place, { recursive: true, force: true }));

  interface Outcome {
    readonly code: number;
    readonly stdout: string;
    readonly stderr: string;
  }

  /** Runs the demo; returns its exit code and output. */
  function demo(...flags: string[]): Promise<Outcome> {
    return new Promise((resolve) => {
      const child = execFile(process.execPath, [MAIN, "--out", place, ...flags], (_, stdout, stderr) =>
        resolve({ code: child.exitCode ?? -1, stdout, stderr }),
      );
    });
  }

  const digestOf = ({ stdout }: Outcome) => /SHA-256: ([0-9a-f]{16})/.exec(stdout)?.[1];
  /** The names and numbers in the table, without times. */
  const tableOf = ({ stdout }: Outcome) =>
    stdout
      .split("\n")
      .filter((line) => /^(bf16|\w+Scaling) /.test(line))
      .map((line) => line.split(/\s+/).slice(0, -2));

  it.each(sampleCases(["1", "2"], 1))(
    "gives the recorded losses and answers on %s processes",
    async (threads) => {
      const run = await demo("--steps", "2", "--digits", "512", "--seeds", "1", "--threads", threads);
      expect(run.code).toBe(0);
      expect(tableOf(run).map(([name]) => name)).toEqual([
        "bf16",
        "DelayedScaling",
        "Float8CurrentScaling",
        "Float8BlockScaling",
        "MXFP8BlockScaling",
        "NVFP4BlockScaling",
      ]);
      expect(tableOf(run)[0]?.slice(2, 4)).toEqual(["0.00", "0.00"]);
      expect(tableOf(run).at(-1)?.slice(1, 4)).toEqual(["19.34", "−1.95", "1.10"]);
      expect(digestOf(run)).toBe(DIGEST);
      const picture = readFileSync(join(place, "training.html"), "utf8");
      expect(picture.match(/stroke="var\(--series-\d\)"[^>]*><path d="M[^"]*L[^"]*"/g)).toHaveLength(2 * 6);
      expect(picture).toContain(DIGEST);
      expect(picture).not.toMatch(/NaN|undefined/);
    },
  );

  it("exits 1 and names the recipe if a criterion is not met", async () => {
    const { code, stdout, stderr } = await demo(
      "--steps",
      "6",
      "--digits",
      "768",
      "--seeds",
      "1",
      "--threads",
      "1",
    );
    expect(stdout).toMatch(/^NVFP4BlockScaling .* MISSED /m);
    expect(stderr).toMatch(/^demo:train: NVFP4BlockScaling is 3\.39 points worse than bf16/m);
    expect(code).toBe(1);
  });

  it.each(
    sampleCases<readonly [readonly string[], string]>(
      [
        [["--seeds", "0"], "--seeds"],
        [["--threads", "many"], "--threads"],
        [["--digits", "33"], "multiple of 32"],
        [["--write", "--seeds", "2"], "whole run"],
        [["--backend", "abacus"], "abacus"],
        [["--colour"], "--colour"],
      ],
      1,
    ),
  )("refuses %j with code 2", async (flags, word) => {
    const { code, stderr } = await demo(...flags);
    expect(stderr).toContain(word);
    expect(code).toBe(BAD_USAGE);
  });
});
