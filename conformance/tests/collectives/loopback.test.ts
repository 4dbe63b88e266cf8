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
import { derivedSeed, draws } from "../harness/draws.js";
import { useBackends } from "../harness/ranks/backends.js";
import { type Case, distributedCase } from "../harness/ranks/case.js";
import { assertCase } from "../harness/ranks/jobs.js";
import { runCalls } from "../harness/ranks/program.mjs";

const MOST = 8;
const backends = useBackends(MOST);

/** Runs all programs, one call at a time; `turns` says which rank is next. */
async function run(groups: readonly ProcessGroup[], { programs }: Case, turns: readonly number[]) {
  const pendingCalls = groups.map((group, rank) => {
    const program = programs[rank];
    if (!program) throw new Error(`rank ${rank} has no program`);
    return runCalls({ empty, add, onSideStream }, group, program);
  });
  const results: (Promise<(string | undefined)[]> | undefined)[] = pendingCalls.map(() => undefined);
  for (let iteration = 0; results.includes(undefined); iteration++) {
    // programs that the drawn order leaves unfinished run at the end
    const rank = (turns[iteration] ?? iteration) % pendingCalls.length;
    const next = results[rank] ? undefined : pendingCalls[rank]?.next();
    if (next?.done) results[rank] = next.value;
  }
  return Promise.all(results as Promise<(string | undefined)[]>[]);
}

describe("ranks of one process", () => {
  it("equal the oracle to the bit for any operation, size, dtype, shards, plan, mesh and order of turns", async () => {
    const turns = fc.array(fc.nat(MOST - 1), { minLength: 1, maxLength: 16 });
    await fc.assert(
      fc.asyncProperty(distributedCase(MOST), turns, async (drawnCase, order) => {
        const groups = loopbackOver(backends.slice(0, drawnCase.programs.length), 5000);
        assertCase(drawnCase, await run(groups, drawnCase, order), "a drawn case");
      }),
      { numRuns: draws(600), seed: derivedSeed(1) },
    );
  });

  it("run pending operations on the memory and bytes of the call, even if these change later", async () => {
    const [rank0, rank1] = loopbackOver(backends.slice(0, 2), 5000) as [ProcessGroup, ProcessGroup];
    const x = empty(rank0.backend, "u8", [512]).write(new Uint8Array(512).fill(3));
    const clone = x.clone();
    const gatheredTensor = rank0.allGather(x);
    const copy = clone.clone();
    const data = new Uint8Array(512).fill(5);
    const writtenTensor = empty(rank0.backend, "u8", [512]).write(data);
    const pendingRead = x.data();
    x.dispose();
    clone.dispose();
    data.fill(6);
    // new memory is filled with poison at once; if it reuses a freed block, it would change these tensors
    const unusedTensor = empty(rank0.backend, "u8", [512]);
    expect(rank0.backend.memoryUse().blocks).toBe(6);
    const y = empty(rank1.backend, "u8", [512]).write(new Uint8Array(512).fill(4));
    const lastGather = rank1.allGather(y);
    expect((await pendingRead).every((byte) => byte === 3)).toBe(true);
    expect((await copy.data()).every((byte) => byte === 3)).toBe(true);
    expect((await writtenTensor.data()).every((byte) => byte === 5)).toBe(true);
    const gatheredValues = await gatheredTensor.data();
    expect(gatheredValues.every((byte, i) => byte === (i < 512 ? 3 : 4))).toBe(true);
    expect(await lastGather.data()).toEqual(gatheredValues);
    for (const tensorToFree of [gatheredTensor, copy, writtenTensor, unusedTensor, y, lastGather])
      tensorToFree.dispose();
  });

  it("copy a tensor whose last other user frees it before the copy runs", async () => {
    const [rank0, rank1] = loopbackOver(backends.slice(0, 2), 5000) as [ProcessGroup, ProcessGroup];
    const filledTensor = ({ backend }: ProcessGroup, value: number) =>
      empty(backend, "f32", [512]).write(new Float32Array(512).fill(value));
    const [x, y] = [filledTensor(rank0, 3), filledTensor(rank0, 5)];
    const sums = [rank0.allReduce(x), rank0.allReduce(y)];
    const copy = x.clone();
    x.dispose();
    const otherInputs = [filledTensor(rank1, 1), filledTensor(rank1, 2)];
    const expected = otherInputs.map((input) => rank1.allReduce(input));
    expect((await copy.data()).every((value) => value === 3)).toBe(true);
    for (const tensorToFree of [y, copy, ...sums, ...otherInputs, ...expected]) tensorToFree.dispose();
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
      const awaitedOutput = await out.data();
      using _ = new Scope();
      const quantizer = new MXFP8Quantizer();
      const repeatedOutput = gemm({
        x: quantizer.quantize(sum),
        w: quantizer.quantize(x),
        outDtype: "f32",
      }).out;
      expect(awaitedOutput).toEqual(repeatedOutput.dataSync());
      expect(awaitedOutput.some((value) => value !== 0)).toBe(true);
      for (const tensorToFree of [out, sum, x]) tensorToFree.dispose();
    }
  });
});
