/** A reporter that prints the progress of a run, an estimate of the remaining time, and the parts that a short run leaves out. */
import type { Reporter, TestModule, TestSpecification } from "vitest/node";
import type {} from "./draws.js";

const INTERVAL_MS = 15_000;

export class Progress implements Reporter {
  #files = 0;
  #done = 0;
  #tests = 0;
  #failed = 0;
  #sampled = 0;
  #cases = 0;
  #start = 0;
  #last = 0;
  readonly #leftOut: number;

  /** `leftOut` is the number of test files that this run does not load, because they need the addon. */
  constructor(leftOut = 0) {
    this.#leftOut = leftOut;
  }

  onTestRunStart(specifications: readonly TestSpecification[]): void {
    this.#files = specifications.length;
    this.#start = this.#last = Date.now();
    if (this.#files < 100) return;
    const isFull = process.env.LOCKSTEP_TESTS === "full";
    const what = isFull
      ? "all draws and cases"
      : "one of 32 draws and one of 64 cases, about 7 minutes on two cores; LOCKSTEP_TESTS=full runs all";
    process.stdout.write(`tests: ${this.#files} files, ${what}\n`);
    if (this.#leftOut > 0)
      process.stdout.write(
        `tests: ${this.#leftOut} files of GPUs and of the addon skipped: the addon is not built; \`npx lockstep build-cuda\` builds it where a CUDA 13 toolkit is\n`,
      );
  }

  onTestModuleEnd(module: TestModule): void {
    this.#done++;
    const { tested = 0, all = 0 } = module.meta().sampling ?? {};
    this.#sampled += tested;
    this.#cases += all;
    for (const test of module.children.allTests()) {
      this.#tests++;
      if (test.result().state === "failed") this.#failed++;
    }
    const now = Date.now();
    if (now - this.#last < INTERVAL_MS) return;
    this.#last = now;
    const seconds = Math.round((now - this.#start) / 1000);
    const left = Math.ceil(((seconds / this.#done) * (this.#files - this.#done)) / 10) * 10;
    process.stdout.write(
      `tests: ${this.#done} of ${this.#files} files, ${this.#tests} tests, ${this.#failed} failed, after ${seconds} s; about ${left} s left\n`,
    );
  }

  onTestRunEnd(): void {
    if (this.#sampled === this.#cases) return;
    const [sampled, cases] = [this.#sampled, this.#cases].map((count) => count.toLocaleString("en"));
    const seed = process.env.SEED ?? 1;
    process.stdout.write(
      `tests: ${sampled} of ${cases} cases of tables, SEED=${seed}; LOCKSTEP_TESTS=full runs all\n`,
    );
  }
}
