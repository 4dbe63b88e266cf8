/**
 * A worker dies, in any way and in any job. The call that waits for it ends soon with a typed error, the backend
 * refuses later calls, and no memory, thread or process is left.
 */
import { execFile } from "node:child_process";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { draws, sampleCases } from "../../../harness/draws.js";

/** The time limits for a call and for a whole process. */
const CALL_MS = 5_000;
const PROCESS_MS = 25_000;

/**
 * An empty text instead of a statement: the main thread terminates the worker between two calls, without returning to the event
 * loop.
 */
const TERMINATED = "";

/** Statements that the worker runs in place of a job. */
const DEATHS: Readonly<Record<string, string>> = {
  exits: "process.exit(0)",
  "exits with a nonzero code": "process.exit(7)",
  "throws an error that nothing catches": "Atomics.store = () => { throw new Error('broken') }",
  "throws and cannot report it":
    "Atomics.store = Atomics.notify = () => { throw new Error('broken') }; throw new Error('first')",
  "finishes the job and exits before it waits":
    "const { store } = Atomics; Atomics.store = (...args) => { store(...args); process.exit(0) }",
  "is terminated by its owner": TERMINATED,
};

interface Case {
  readonly threads: number;
  readonly worker: number;
  /** The number of jobs that the worker does before it dies; for a terminated worker, the number of calls. */
  readonly jobs: number;
  readonly op: "encode" | "add" | "gemm" | "quantize";
}

const cases: fc.Arbitrary<Case> = fc
  .record({
    threads: fc.integer({ min: 2, max: 4 }),
    worker: fc.nat(2),
    jobs: fc.nat(2),
    op: fc.constantFrom("encode", "add", "gemm", "quantize"),
  })
  .map((testCase) => ({ ...testCase, worker: testCase.worker % (testCase.threads - 1) }));

/**
 * The source of a process in which a worker dies in this way. It prints one line for each property that a law checks.
 */
function script(death: string, { threads, worker, jobs, op }: Case, dispose: boolean): string {
  return `
    import { platform } from "#platform";
    import { add, empty, encode, gemm, MXFP8Quantizer, openBackend, Scope, tensor } from "./dist/src/index.js";
    const { spawn } = platform;
    const kill = () => { ${death} };
    const dying = (body) => \`(data) => {
      const { Instance } = WebAssembly;
      let jobs = 0;
      const count = (job) => (...args) => (jobs++ === ${death === TERMINATED ? Number.POSITIVE_INFINITY : jobs} ? (\${kill})() : job(...args));
      WebAssembly.Instance = class {
        constructor(...args) {
          const { exports } = new Instance(...args);
          this.exports = new Proxy({}, { get: (_, name) => count(exports[name]) });
        }
      };
      return (\${body})(data);
    }\`;
    let started = 0;
    let victim;
    platform.spawn = (body, data) => {
      if (started++ !== ${worker}) return spawn.call(platform, body, data);
      victim = spawn.call(platform, dying(body), data);
      return victim;
    };
    const backend = await openBackend("wasm", { threads: ${threads} });
    const ones = (rows, columns, of = backend) => tensor(of, new Float32Array(rows * columns).fill(1), [rows, columns]);
    const codes = (of) => tensor(of, new Uint8Array(2 ** 16).fill(0x38), [256, 256], "e4m3");
    const OPS = {
      encode: (of) => encode(ones(2048, 512, of), { format: "e4m3" }),
      add: (of) => add(ones(2048, 512, of), ones(2048, 512, of)),
      gemm: (of) => gemm({ a: codes(of), b: codes(of), outDtype: "f32" }).out,
      quantize: (of) => new MXFP8Quantizer().quantize(ones(2048, 512, of)).rowwise.data,
    };
    const attempt = (of = backend) => {
      const scope = new Scope();
      try {
        return { first: OPS.${op}(of).dataSync()[0] };
      } catch (error) {
        return { error };
      } finally {
        scope.dispose();
      }
    };
    const guard = tensor(backend, Float32Array.of(1, -2, 3));
    const expected = attempt(await openBackend("wasm", { threads: 1 })).first;
    const before = backend.memoryUse();
    let start;
    let error;
    // one call may consist of several jobs, and the death of a worker between two jobs is noticed at the next one
    for (let call = 0; call < ${jobs} + 2 && !error; call++) {
      ${death === TERMINATED ? `if (call === ${jobs}) victim.terminate();` : ""}
      start = performance.now();
      const answer = attempt();
      error = answer.error;
      if (!error && answer.first !== expected) console.log("a call before is wrong");
    }
    console.log("in time", performance.now() - start < ${CALL_MS});
    console.log(error?.code, error?.message);
    const again = attempt().error;
    console.log("refuses", again?.code === "BACKEND" && again.message === error.message);
    await new Promise((resolve) => setTimeout(resolve, 100));
    console.log("refuses later", attempt().error?.message === error.message);
    const after = backend.memoryUse();
    console.log("keeps nothing", after.live === before.live && after.blocks === before.blocks);
    console.log("reads", guard.dataSync().join());
    guard.dispose();
    ${dispose ? "await backend.dispose();" : ""}
    const next = await openBackend("wasm", { threads: ${threads} });
    console.log("next", attempt(next).first === expected);
    await next.dispose();
  `;
}

/** Runs the module in a process and returns its output. A process that does not end is killed. */
function runScript(source: string): Promise<{ stdout: string; stderr: string; ended: boolean }> {
  const cwd = new URL("../../../../..", import.meta.url);
  return new Promise((resolve) => {
    const args = ["--input-type=module", "--eval", source];
    execFile(process.execPath, args, { cwd, timeout: PROCESS_MS }, (error, stdout, stderr) =>
      resolve({ stdout, stderr, ended: !error }),
    );
  });
}

describe("a worker that during a job", () => {
  for (const [name, death] of sampleCases(Object.entries(DEATHS))) {
    it(`${name}: the call throws an error that names it, and the backend refuses later calls`, async () => {
      await fc.assert(
        fc.asyncProperty(cases, fc.boolean(), async (testCase, dispose) => {
          const { stdout, stderr, ended } = await runScript(script(death, testCase, dispose));
          const [inTime, error, ...rest] = stdout.trimEnd().split("\n");
          expect({ inTime, rest, stderr, ended }).toEqual({
            inTime: "in time true",
            rest: ["refuses true", "refuses later true", "keeps nothing true", "reads 1,-2,3", "next true"],
            stderr: "",
            ended: true,
          });
          expect(error).toMatch(
            new RegExp(`^BACKEND wasm: worker ${testCase.worker + 1} of ${testCase.threads - 1} `),
          );
          expect(error).toMatch(/open another/);
        }),
        { numRuns: draws(4, 1) },
      );
    });
  }
});
