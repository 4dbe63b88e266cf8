/** A reporter that prints the progress of a run, an estimate of the remaining time, and the parts that a short run leaves out. */
import type { Reporter, TestModule, TestSpecification } from "vitest/node";
import type {} from "./draws.js";

const INTERVAL_MS = 15_000;

export class Progress implements Reporter {
  #files = 0;
  #finishedFiles = 0;
  #tests = 0;
  #failedTests = 0;
  #sampledCases = 0;
  #cases = 0;
  #startTime = 0;
  #lastPrint = 0;
  readonly #skippedFiles: number;

  /** `skippedFiles` is the number of test files that this run does not load, because they need the addon. */
  constructor(skippedFiles = 0) {
    this.#skippedFiles = skippedFiles;
  }

  onTestRunStart(specifications: readonly TestSpecification[]): void {
    this.#files = specifications.length;
    this.#startTime = this.#lastPrint = Date.now();
    if (this.#files < 100) return;
    const isFull = process.env.LOCKSTEP_TESTS === "full";
    const scope = isFull
      ? "all draws and cases"
      : "one of 32 draws and one of 64 cases, about 7 minutes on two cores; LOCKSTEP_TESTS=full runs all";
    process.stdout.write(`tests: ${this.#files} files, ${scope}\n`);
    if (this.#skippedFiles > 0)
      process.stdout.write(
        `tests: ${this.#skippedFiles} files of GPUs and of the addon skipped: the addon is not built; \`npx lockstep build-cuda\` builds it where a CUDA 13 toolkit is\n`,
      );
  }

  onTestModuleEnd(module: TestModule): void {
    this.#finishedFiles++;
    const { testedCases = 0, allCases = 0 } = module.meta().sampling ?? {};
    this.#sampledCases += testedCases;
    this.#cases += allCases;
    for (const test of module.children.allTests()) {
      this.#tests++;
      if (test.result().state === "failed") this.#failedTests++;
    }
    const now = Date.now();
    if (now - this.#lastPrint < INTERVAL_MS) return;
    this.#lastPrint = now;
    const seconds = Math.round((now - this.#startTime) / 1000);
    const secondsLeft =
      Math.ceil(((seconds / this.#finishedFiles) * (this.#files - this.#finishedFiles)) / 10) * 10;
    process.stdout.write(
      `tests: ${this.#finishedFiles} of ${this.#files} files, ${this.#tests} tests, ${this.#failedTests} failed, after ${seconds} s; about ${secondsLeft} s left\n`,
    );
  }

  onTestRunEnd(): void {
    if (this.#sampledCases === this.#cases) return;
    const [sampled, cases] = [this.#sampledCases, this.#cases].map((count) => count.toLocaleString("en"));
    const seed = process.env.SEED ?? 1;
    process.stdout.write(
      `tests: ${sampled} of ${cases} cases of tables, SEED=${seed}; LOCKSTEP_TESTS=full runs all\n`,
    );
  }
}
