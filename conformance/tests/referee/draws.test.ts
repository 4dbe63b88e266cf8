// Random numbers follow from seed, offset and place as the oracle's Philox gives them; a mask judges dropout without a seed.
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Backend, openBackend } from "../../../src/index.js";
import { type Argument, Call, type GeneratorState } from "../../../src/referee/call.js";
import { bernoulli, dropout, rand } from "../../../src/referee/draws.js";
import type { Value } from "../../../src/referee/value.js";
import { philox4x32 } from "../../oracle/core/philox.js";
import { useWorkspace } from "../harness/cli.js";
import { type LoggedOperation, RecordedRun } from "../harness/referee/recorded-run.js";

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm", { threads: 1 });
});
afterAll(() => backend.dispose());

const callOf = (parameters: string, args: readonly Argument[], generator?: GeneratorState): Call =>
  new Call(backend, parameters.split(" "), args, {}, generator ? { generator } : {});
const floatsOf = (value: Value | undefined): Float32Array =>
  new Float32Array((value as Value).bytes.slice().buffer);
const onesValue = (count: number): Value => ({
  dtype: "F32",
  shape: [count],
  bytes: new Uint8Array(new Float32Array(count).fill(1).buffer),
});

const HALF = 0xffff_ffffn;
const split = (value: bigint): readonly [bigint, bigint] => [value & HALF, value >> 32n];

/** Word `word` of a thread, by the oracle. */
function wordOf({ seed, offset }: GeneratorState, thread: number, index: number): number {
  const counter = [...split(BigInt(offset / 4 + Math.floor(index / 4))), ...split(BigInt(thread))] as const;
  return Number(philox4x32(counter, split(seed))[index % 4]);
}

const uniformOf = (bits: number): number => Math.fround(Math.fround(bits) / 2 ** 32 + 2 ** -33);

const states = fc.record({
  seed: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
  offset: fc.oneof(fc.nat(9), fc.constant(2 ** 40)).map((multiple) => 4 * multiple),
});
const THREADS = 132 * 8 * 256;

describe("the number of an element", () => {
  it("is the word of a thread for each element, as many threads as 1056 blocks have", () => {
    const count = 2 * THREADS + 5;
    const state = { seed: 2n ** 63n + 5n, offset: 8 };
    const values = floatsOf(rand(callOf("size", [[count]], state))[0]);
    const positions = [0, 1, 255, 256, THREADS - 1, THREADS, THREADS + 7, 2 * THREADS, count - 1];
    for (const i of positions)
      expect(values[i]).toBe(uniformOf(wordOf(state, i % THREADS, Math.floor(i / THREADS))));
  });

  it("is the number of few elements for any state", () => {
    fc.assert(
      fc.property(states, fc.integer({ min: 1, max: 600 }), (state, count) => {
        const values = floatsOf(rand(callOf("size", [[count]], state))[0]);
        expect([...values]).toEqual(
          Array.from(values, (_, i) => uniformOf(wordOf(state, i, 0))).map((uniform) =>
            uniform === 1 ? 0 : uniform,
          ),
        );
      }),
    );
  });

  it.each([
    [4, 800],
    [2, 802],
    [1, 801],
    [4, 4 * THREADS + 8],
  ])("of dropout is in vectors of %i where %i elements are dropped", (width, count) => {
    const state = { seed: 99n, offset: 12 };
    const [values, mask] = dropout(callOf("input p train", [onesValue(count), 0.25, true], state));
    const threads = Math.min(256 * Math.ceil(count / 256), THREADS);
    for (let i = count - 300; i < count; i++) {
      const vector = Math.floor(i / width);
      const randomWord = wordOf(state, vector % threads, Math.floor(vector / threads) * width + (i % width));
      expect(mask?.bytes[i]).toBe(Number(uniformOf(randomWord) < 0.75));
    }
    expect([...floatsOf(values).slice(-300)]).toEqual(
      Array.from(mask?.bytes.slice(-300) ?? [], (bit) => bit * Math.fround(1 / 0.75)),
    );
  });

  it("is undefined without the state of the generator, or within a group of four words", () => {
    expect(() => bernoulli(callOf("self p", [onesValue(3), 0.5]))).toThrow("was not recorded");
    expect(() => rand(callOf("size", [[3]], { seed: 0n, offset: 6 }))).toThrow("no multiple of 4");
  });
});

describe("a recorded dropout", () => {
  const w = useWorkspace();

  async function verdictOf(change: (operation: LoggedOperation & { generator?: unknown }) => void) {
    const run = await RecordedRun.read("moves");
    Object.assign(run.contract, { chip: "h200", versions: { torch: "2.11.0" } });
    const x = onesValue(64);
    const state = { seed: 7n, offset: 4 };
    const results = dropout(callOf("input p train", [x, 0.5, true], state));
    const operation = {
      schema: "aten::native_dropout",
      args: [run.add(x), 0.5, true],
      kwargs: {},
      outputs: results.map((result) => run.add(result)),
      generator: { seed: "7", offset: 4 },
    };
    change(operation);
    run.operations.splice(0, run.operations.length, operation);
    await run.write(w.path("run"));
    const { stdout, stderr } = await w.run("replay", "@run", "--json");
    return stderr || JSON.parse(stdout).verdicts[0];
  }

  it("is judged by the state of the generator", async () => {
    expect(await verdictOf(() => {})).toEqual({ index: 0, schema: "aten::native_dropout", verdict: "same" });
    const verdict = await verdictOf((call) => {
      call.generator = { seed: "8", offset: 4 };
    });
    expect(verdict).toMatchObject({ verdict: "differs" });
  });

  it("is judged by its mask without the state, and unverified", async () => {
    const verdict = await verdictOf((call) => {
      delete call.generator;
    });
    expect(verdict).toMatchObject({ verdict: "same", unverified: true });
    const changedVerdict = await verdictOf((call) => {
      delete call.generator;
      call.args[1] = 0.25;
    });
    expect(changedVerdict).toMatchObject({ verdict: "differs" });
    const otherVerdict = await verdictOf((call) => {
      delete call.generator;
      call.outputs[1] = call.outputs[0] as (typeof call.outputs)[0];
    });
    expect(otherVerdict).toMatch(/a mask F32 \[64\] of \[64\]/);
  });

  it.each([
    [{ seed: "x", offset: 4 }],
    [{ seed: String(2n ** 64n), offset: 4 }],
    [{ seed: "7", offset: -4 }],
    [{ seed: 7, offset: 4 }],
    [3],
  ])("is refused with the generator %j", async (generator) => {
    const message = await verdictOf((call) => {
      call.generator = generator;
    });
    expect(message).toMatch(/the generator is .*; it must have a seed as a string of digits, and an offset/);
  });
});
