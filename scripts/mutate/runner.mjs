/**
 * Runs each test once without mutants to record its coverage, then once for every covered mutant that is still alive.
 * All runs share one process: modules are loaded once, and a switch activates a mutant. After a failure the test runs
 * once more without a mutant. If it still fails, the mutant has left a changed state behind, and the file continues in
 * a new process.
 */
import { appendFileSync, openSync, readFileSync, writeSync } from "node:fs";
import { relative } from "node:path";
import { TestRunner } from "vitest";
import { readState, versionOf } from "./state.mjs";

const { folder, longest, budget, only, loaded, unchanged } = JSON.parse(
  readFileSync(process.env.LOCKSTEP_MUTATION ?? "", "utf8"),
);
globalThis.__stryker__ ??= {};
const switches = globalThis.__stryker__;
switches.mutantCoverage ??= { static: {}, perTest: {} };
// instrumented files keep a reference to this object
const coverage = switches.mutantCoverage;
const LOG = `${folder}/log.jsonl`;
const log = (entry) => appendFileSync(LOG, `${JSON.stringify(entry)}\n`);

/** The maximum number of loop iterations under a mutant, from the number without it. A loop that exceeds it is ended. */
const MAX_TURNS = (hits) => 1000 + 100 * hits;

/** A file that names the running test and mutant, for the process that has to end a hanging run. */
const current = openSync(`${folder}/current`, "w");
function say(words) {
  writeSync(current, `${JSON.stringify(words)}\n`.padEnd(400), 0);
}

const suitesOf = (suite) =>
  suite ? [...suitesOf(suite.suite ?? (suite.file === suite ? undefined : suite.file)), suite] : [];

export default class MutationRunner extends TestRunner {
  #state = readState(folder);
  #hooks = new Map();
  #restart = false;
  #fresh = true;

  onBeforeRunSuite(suite) {
    if (loaded !== undefined || unchanged) return super.onBeforeRunSuite(suite);
    const { beforeEach, afterEach } = TestRunner.getSuiteHooks(suite);
    this.#hooks.set(suite, { beforeEach: beforeEach.splice(0), afterEach: afterEach.splice(0) });
    return super.onBeforeRunSuite(suite);
  }

  /** Runs the test with its hooks; returns the error that any of them throws. */
  async #attempt(test, mutant, hits = 0) {
    Object.assign(switches, { activeMutant: mutant, hitCount: mutant && 0, hitLimit: MAX_TURNS(hits) });
    const suites = suitesOf(test.suite ?? test.file);
    const failures = [];
    const last = [];
    const run = async (body) => {
      try {
        return await body();
      } catch (error) {
        failures.push(error);
      }
    };
    await run(async () => {
      for (const suite of suites)
        for (const hook of this.#hooks.get(suite)?.beforeEach ?? []) {
          const cleanup = await hook(test.context, suite);
          if (typeof cleanup === "function") last.unshift(cleanup);
        }
      await TestRunner.getTestFn(test)();
    });
    for (const suite of suites.toReversed())
      for (const hook of [...(this.#hooks.get(suite)?.afterEach ?? [])].reverse())
        await run(() => hook(test.context, suite));
    for (const cleanup of last) await run(cleanup);
    switches.activeMutant = undefined;
    return failures;
  }

  async runTask(test) {
    if (this.#restart) return;
    const file = relative(process.cwd(), test.file.filepath);
    const name = suitesOf(test.suite)
      .flatMap((suite) => (suite === test.file ? [] : [suite.name]))
      .concat(test.name)
      .join(" > ");
    const id = `${file} > ${name}`;
    const { killed, refused, tests, spent, unfit } = this.#state;
    const earlier = tests.get(id);
    if (loaded !== undefined || unchanged) {
      const key = `${id} ${longest}`;
      if (!earlier || earlier.broken || earlier.ms > longest || unfit.has(key)) return;
      say({ id });
      switches.activeMutant = loaded;
      try {
        await TestRunner.getTestFn(test)();
      } catch (error) {
        if (!unchanged) throw error;
        // a test that depends on earlier tests fails if those are left out
        log({ unfit: key });
      }
      return;
    }
    const alive = (covered) =>
      Object.keys(covered).filter(
        (m) =>
          !killed.has(m) &&
          !refused.has(m) &&
          !earlier?.survived.has(m) &&
          !((spent.get(m) ?? 0) > budget) &&
          (!only || only.includes(m)),
      );
    if (earlier && (earlier.broken || earlier.ms > longest || alive(earlier.covered).length === 0)) return;
    if (this.#fresh) log({ file, static: coverage.static });
    coverage.perTest = {};
    switches.currentTestId = id;
    say({ id });
    const start = performance.now();
    const [failure] = await this.#attempt(test);
    const ms = performance.now() - start;
    switches.currentTestId = "again";
    if (failure) {
      if (this.#fresh) {
        log({ test: id, broken: String(failure).slice(0, 300) });
        throw failure;
      }
      this.#again(file);
      return;
    }
    const covered = coverage.perTest[id] ?? {};
    if (!earlier) log({ test: id, ms, covered });
    if (ms <= longest) await this.#mutants(test, { id, file, ms, covered, left: alive(covered) });
  }

  async #mutants(test, { id, file, ms, covered, left }) {
    const survived = [];
    this.#fresh = this.#fresh && left.length === 0;
    // True if the last run of the test was without a mutant and passed. False after a mutant has survived, because the
    // survivor may have left changed state behind.
    let clean = true;
    const queue = [...left];
    for (let mutant = queue.shift(); mutant !== undefined; mutant = queue.shift()) {
      say({ id, mutant });
      const [failure] = await this.#attempt(test, mutant, covered[mutant]);
      if (!failure) {
        survived.push(mutant);
        this.#state.spent.set(mutant, (this.#state.spent.get(mutant) ?? 0) + ms);
        clean = false;
        continue;
      }
      const [still] = await this.#attempt(test);
      if (!still || clean) {
        this.#state.killed.add(mutant);
        log({ killed: mutant, by: id, error: String(failure.message ?? failure).slice(0, 160) });
      } else queue.unshift(mutant);
      clean = true;
      if (still && !(await this.#renewed(test))) {
        this.#again(file);
        break;
      }
    }
    if (survived.length > 0) log({ test: id, survived, version: versionOf(file) });
  }

  /** Whether the test passes after its surroundings, such as a backend with leaked tensors, have been created again. */
  async #renewed(test) {
    const suites = suitesOf(test.suite ?? test.file);
    try {
      for (const suite of suites.toReversed())
        for (const hook of [...TestRunner.getSuiteHooks(suite).afterAll].reverse()) await hook(suite);
      for (const suite of suites)
        for (const hook of TestRunner.getSuiteHooks(suite).beforeAll) await hook(suite);
    } catch {
      return false;
    }
    return (await this.#attempt(test)).length === 0;
  }

  #again(file) {
    this.#restart = true;
    log({ again: file });
  }
}
