// Lanes divide the terms of a product among sums, and are found from its bits; an f32 product in no known order is not judged.
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Call } from "../../../src/referee/call.js";
import { candidateLanes, fusedResult } from "../../../src/referee/fused-products.js";
import { searchLanes } from "../../../src/referee/product-search.js";
import type { Value } from "../../../src/referee/value.js";
import * as exact from "../../oracle/core/rational.js";
import { useWorkspace } from "../harness/cli.js";
import { type LoggedOperation, RecordedRun } from "../harness/referee/recorded-run.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();

function matrix(rows: number, columns: number, seed: number): Value {
  const values = Float32Array.from(
    { length: rows * columns },
    (_, i) => Math.sin(i * (seed + 0.731)) * 2 ** (i % 7),
  );
  return { dtype: "F32", shape: [rows, columns], bytes: new Uint8Array(values.buffer) };
}

const floatsOf = ({ bytes }: Value): Float32Array => new Float32Array(bytes.slice().buffer);
const callOf = (self: Value, mat2: Value): Call => new Call(backend(), ["self", "mat2"], [self, mat2], {});

/** One element by the definition: the sum of each lane by exact fused multiply-adds, then the sum of the lanes in order. */
function element(x: Float32Array, w: Float32Array, count: number, run: number): number {
  const sums = new Array<number>(count).fill(0);
  for (const [k, value] of x.entries()) {
    const lane = Math.floor(k / run) % count;
    sums[lane] = exact.fma(value, w[k] as number, sums[lane] as number);
  }
  return sums.reduce((a, b) => Math.fround(a + b));
}

const shapes = fc.record({
  rows: fc.integer({ min: 2, max: 4 }),
  columns: fc.integer({ min: 1, max: 4 }),
  depth: fc.integer({ min: 1, max: 40 }),
  seed: fc.nat(1000),
});

describe("a product in lanes", () => {
  it("is the sum of its lanes, each by fused multiply-adds", () => {
    fc.assert(
      fc.property(shapes, fc.constantFrom(1, 2, 4), fc.constantFrom(1, 8), (shape, count, run) => {
        const { rows, columns, depth, seed } = shape;
        const [a, b] = [matrix(rows, depth, seed), matrix(depth, columns, seed + 1)];
        const out = floatsOf(fusedResult(callOf(a, b), { count, run, join: "ascending" }));
        const [x, w] = [floatsOf(a), floatsOf(b)];
        for (const [i, value] of out.entries()) {
          const [row, column] = [Math.floor(i / columns), i % columns];
          const factors = w.filter((_, k) => k % columns === column);
          expect(value).toBe(element(x.subarray(row * depth, (row + 1) * depth), factors, count, run));
        }
      }),
    );
  });

  it("adds halves for a vector", () => {
    const [a, b] = [matrix(1, 4, 3), matrix(4, 1, 4)];
    const [[x0, x1, x2, x3], [w0, w1, w2, w3]] = [floatsOf(a), floatsOf(b)] as unknown as number[][] as [
      [number, number, number, number],
      [number, number, number, number],
    ];
    const { fround } = Math;
    const sum = fround(fround(fround(x0 * w0) + fround(x2 * w2)) + fround(fround(x1 * w1) + fround(x3 * w3)));
    expect(floatsOf(fusedResult(callOf(a, b), { count: 4, run: 1, join: "halves" }))[0]).toBe(sum);
  });

  it("is found from its bits, and from no others", () => {
    const [a, b] = [matrix(5, 256, 1), matrix(256, 24, 2)];
    const call = callOf(a, b);
    for (const lanes of [candidateLanes(call)[1], candidateLanes(call)[5], candidateLanes(call).at(-1)]) {
      if (!lanes) throw new Error("there are candidates");
      const recordedProduct = fusedResult(call, lanes);
      expect(searchLanes(call, recordedProduct)).toEqual(lanes);
      const changedBytes = recordedProduct.bytes.slice();
      changedBytes[changedBytes.length - 4] = (changedBytes.at(-4) as number) ^ 1;
      expect(searchLanes(call, { ...recordedProduct, bytes: changedBytes })).toBeUndefined();
    }
  });
});

describe("a recorded f32 product", () => {
  const w = useWorkspace();

  async function record(change: (out: Value) => Value, count: number, run: number) {
    const recordedRun = await RecordedRun.read("moves");
    Object.assign(recordedRun.contract, { chip: "h200", versions: { torch: "2.11.0" } });
    const [a, b] = [matrix(5, 256, 1), matrix(256, 24, 2)];
    const out = change(fusedResult(callOf(a, b), { count, run, join: "ascending" }));
    const operation: LoggedOperation = {
      schema: "aten::mm",
      args: [recordedRun.add(a), recordedRun.add(b)],
      kwargs: {},
      outputs: [recordedRun.add(out)],
    };
    recordedRun.operations.splice(0, recordedRun.operations.length, operation);
    await recordedRun.write(w.path("run"));
  }

  async function verdict(): Promise<unknown> {
    return JSON.parse(await w.succeed("replay", w.path("run"), "--json")).verdicts[0];
  }

  it("is the same in one chain, and with lanes, which are named", async () => {
    const base = { verdict: "same", unverified: true };
    await record((out) => out, 1, 1);
    expect(await verdict()).toMatchObject(base);
    await record((out) => out, 4, 8);
    expect(await verdict()).toMatchObject({ ...base, lanes: { count: 4, run: 8 } });
    expect((await w.run("replay", "@run")).stdout).toContain("same: aten::mm with K in 4 lanes of 8, 1");
  });

  it("is not judged in another order", async () => {
    const changeResult = (out: Value): Value => ({
      ...out,
      bytes: out.bytes.map((byte, i) => (i === 0 ? byte ^ 1 : byte)),
    });
    await record(changeResult, 1, 1);
    const { status, stderr } = await w.run("replay", "@run");
    expect({ status, stderr }).toEqual({
      status: 2,
      stderr: expect.stringMatching(/none of the 1 operations of .* is modelled/),
    });
  });
});
