/** Ranks of one process give the oracle's results, in whatever order they run. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { ProcessGroup } from "../../../src/collectives/group.js";
import { loopbackOver } from "../../../src/collectives/loopback/loopback.js";
import { empty } from "../../../src/ops/create.js";
import { add } from "../../../src/ops/elementwise/operators.gen.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { onSideStream } from "../../../src/ops/side-stream.js";
import { MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import { Scope } from "../../../src/tensor/scope.js";
import { differenceOf } from "../../values/difference.js";
import { derivedSeed, draws } from "../harness/draws.js";
import { useBackends } from "../harness/ranks/backends.js";
import { type Case, distributedCase, parseResult } from "../harness/ranks/case.js";
import { runCalls } from "../harness/ranks/program.mjs";

const MOST = 8;
const backends = useBackends(MOST);

/** Runs all programs, one call at a time; `turns` says which rank is next. */
async function run(groups: readonly ProcessGroup[], { programs }: Case, turns: readonly number[]) {
  const running = groups.map((group, rank) => {
    const program = programs[rank];
    if (!program) throw new Error(`rank ${rank} has no program`);
    return runCalls({ empty, add, onSideStream }, group, program);
  });
  const results: (Promise<(string | undefined)[]> | undefined)[] = running.map(() => undefined);
  for (let turn = 0; results.includes(undefined); turn++) {
    // programs that the drawn order leaves unfinished run at the end
    const rank = (turns[turn] ?? turn) % running.length;
    const next = results[rank] ? undefined : running[rank]?.next();
    if (next?.done) results[rank] = next.value;
  }
  return Promise.all(results as Promise<(string | undefined)[]>[]);
}

function assertExpected({ expected }: Case, results: readonly (readonly (string | undefined)[])[]): void {
  for (const [rank, told] of results.entries()) {
    for (const [i, text] of told.entries()) {
      const [got, wanted] = [parseResult(text), expected[rank]?.[i]];
      expect([got?.dtype, got?.shape], `rank ${rank}, call ${i}`).toEqual([wanted?.dtype, wanted?.shape]);
      if (got && wanted) expect(differenceOf(got, wanted), `rank ${rank}, call ${i}`).toBeUndefined();
    }
  }
}

describe("ranks of one process", () => {
  it("equal the oracle to the bit for any operation, size, dtype, shards, plan, mesh and order of turns", async () => {
    const turns = fc.array(fc.nat(MOST - 1), { minLength: 1, maxLength: 16 });
    await fc.assert(
      fc.asyncProperty(distributedCase(MOST), turns, async (drawn, order) => {
        const groups = loopbackOver(backends.slice(0, drawn.programs.length), 5000);
        assertExpected(drawn, await run(groups, drawn, order));
      }),
      { numRuns: draws(600), seed: derivedSeed(1) },
    );
  });

  it("run pending operations on the memory and bytes of the call, even if these change later", async () => {
    const [zero, one] = loopbackOver(backends.slice(0, 2), 5000) as [ProcessGroup, ProcessGroup];
    const x = empty(zero.backend, "u8", [512]).write(new Uint8Array(512).fill(3));
    const lone = x.clone();
    const gathered = zero.allGather(x);
    const copied = lone.clone();
    const data = new Uint8Array(512).fill(5);
    const written = empty(zero.backend, "u8", [512]).write(data);
    const read = x.data();
    x.dispose();
    lone.dispose();
    data.fill(6);
    // new memory is filled with poison at once; if it reuses a freed block, it would change these tensors
    const fresh = empty(zero.backend, "u8", [512]);
    expect(zero.backend.memoryUse().blocks).toBe(6);
    const y = empty(one.backend, "u8", [512]).write(new Uint8Array(512).fill(4));
    const last = one.allGather(y);
    expect((await read).every((byte) => byte === 3)).toBe(true);
    expect((await copied.data()).every((byte) => byte === 3)).toBe(true);
    expect((await written.data()).every((byte) => byte === 5)).toBe(true);
    const both = await gathered.data();
    expect(both.every((byte, i) => byte === (i < 512 ? 3 : 4))).toBe(true);
    expect(await last.data()).toEqual(both);
    for (const each of [gathered, copied, written, fresh, y, last]) each.dispose();
  });

  it("copy a tensor whose last other user frees it before the copy runs", async () => {
    const [zero, one] = loopbackOver(backends.slice(0, 2), 5000) as [ProcessGroup, ProcessGroup];
    const filled = ({ backend }: ProcessGroup, value: number) =>
      empty(backend, "f32", [512]).write(new Float32Array(512).fill(value));
    const [x, y] = [filled(zero, 3), filled(zero, 5)];
    const sums = [zero.allReduce(x), zero.allReduce(y)];
    const copied = x.clone();
    x.dispose();
    const others = [filled(one, 1), filled(one, 2)];
    const expected = others.map((each) => one.allReduce(each));
    expect((await copied.data()).every((value) => value === 3)).toBe(true);
    for (const each of [y, copied, ...sums, ...others, ...expected]) each.dispose();
  });

  it("quantize and multiply pending results", async () => {
    const groups = loopbackOver(backends.slice(0, 2), 5000);
    const results = groups.map((group) => {
      using scope = new Scope();
      const x = empty(group.backend, "bf16", [32, 128]).write(
        Uint16Array.from({ length: 4096 }, (_, i) => 0x3c00 + ((i * 37 + group.rank) % 1024)),
      );
      const sum = group.allReduce(x);
      const quantizer = new MXFP8Quantizer();
      const { out } = gemm({ x: quantizer.quantize(sum), w: quantizer.quantize(x), outDtype: "f32" });
      return [scope.keep(out), scope.keep(sum), scope.keep(x)] as const;
    });
    for (const [out, sum, x] of results) {
      const waited = await out.data();
      using _ = new Scope();
      const quantizer = new MXFP8Quantizer();
      const again = gemm({ x: quantizer.quantize(sum), w: quantizer.quantize(x), outDtype: "f32" }).out;
      expect(waited).toEqual(again.dataSync());
      expect(waited.some((value) => value !== 0)).toBe(true);
      for (const each of [out, sum, x]) each.dispose();
    }
  });
});
