/**
 * Jobs on threads and their scratch memory: when a job's error is thrown, the job has ended on all threads, and other
 * jobs are unaffected.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import { openBackend } from "../../../../src/backends/open.js";
import { Heap } from "../../../../src/backends/wasm/heap.js";
import { openInstance } from "../../../../src/backends/wasm/instance.js";
import { Pool } from "../../../../src/backends/wasm/pool.js";
import { BackendError, OutOfMemoryError } from "../../../../src/errors.js";
import { WIDE } from "../../../../src/formats/contract.gen.js";
import { encode } from "../../../../src/ops/cast/cast.js";
import { empty, tensor } from "../../../../src/ops/create.js";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { testInScope } from "../../harness/suite.js";

const THREADS = 3;

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm", { threads: THREADS });
});
afterAll(() => backend.dispose());

/** Allocates all remaining memory in pieces of 256 and 16 MiB; returns the number of bytes. */
function fill(): number {
  let takenTasks = 0;
  for (const bytes of [2 ** 28, 2 ** 24]) {
    try {
      for (;;) takenTasks += empty(backend, "u8", [bytes]).byteLength;
    } catch (error) {
      expect(error).toBeInstanceOf(OutOfMemoryError);
    }
  }
  return takenTasks;
}

/** The error that `body` throws. */
function thrownBy(body: () => unknown): unknown {
  try {
    body();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
}

const onesTensor = (rows: number, depth: number): Tensor<"e4m3"> =>
  tensor(backend, new Uint8Array(rows * depth).fill(0x38), [rows, depth], "e4m3");

/** The index of an f32 beyond the memory that these tests allocate. */
const OUTSIDE = 2 ** 29;

describe("a job", () => {
  it("with a part that traps has ended when it throws, and the next job is right", async () => {
    const instance = await openInstance();
    const heap = new Heap(instance);
    const pool = await Pool.open(instance, heap, THREADS);
    const rows = THREADS << 18;
    const [grad, next, heads, out] = [4, 4, rows * 4, rows * 4].map((bytes) => heap.allocate(bytes)) as [
      number,
      number,
      number,
      number,
    ];
    const target = new Float32Array(instance.memory.buffer, out, rows);
    const firsts = new Uint32Array(instance.memory.buffer, heads, rows);
    heap.write(grad, new Uint8Array(Float32Array.of(2).buffer));
    heap.write(next, new Uint8Array(4).fill(0xff));
    const tensors = { grad, gradType: WIDE.f32, heads, next, out, outType: WIDE.f32, columns: 1 };
    /** All rows have the same gradient. For part `faultyThread`, the first row points outside of memory. */
    const gather = (faultyThread?: number): number[] => {
      firsts.fill(0);
      if (faultyThread !== undefined) firsts[(faultyThread * rows) / THREADS] = OUTSIDE;
      return pool.run("embeddingBackward", { total: rows }, tensors);
    };
    for (let faultyThread = 0; faultyThread < THREADS; faultyThread++) {
      target.fill(0);
      expect(thrownBy(() => gather(faultyThread))).toBeInstanceOf(BackendError);
      const results = Array.from(
        { length: THREADS },
        (_, thread) => target[((thread + 1) * rows) / THREADS - 1],
      );
      expect(results).toEqual(
        Array.from({ length: THREADS }, (_, thread) => (thread === faultyThread ? 0 : 2)),
      );
      gather();
      expect(target.every((value) => value === 2)).toBe(true);
    }
    await pool.close();
  });
});

describe("the workspace of an operation", () => {
  const DEPTH = 1_000_000;
  const codes = (x: Tensor): number[] => [
    ...new Set(encode(x as Tensor<"f32">, { format: "bf16" }).dataSync()),
  ];

  testInScope("is freed: a product leaves the memory in use as it was", () => {
    const room = (): number => {
      using _scope = new Scope();
      return fill();
    };
    const freeBytes = room();
    const x = onesTensor(16 * THREADS, DEPTH);
    gemm({ a: x, b: onesTensor(1, DEPTH), outDtype: "f32" });
    x.dispose();
    expect(room()).toBe(freeBytes);
  });

  testInScope(
    "serves fewer threads if memory does not suffice for all, and an error names its size if it suffices for none",
    () => {
      const x = onesTensor(16 * THREADS, DEPTH);
      const y = onesTensor(1, DEPTH);
      const input = tensor(backend, new Float32Array(1 << 19).fill(1));
      expect(codes(input)).toEqual([0x3f80]);
      const multiply = () => gemm({ a: x, b: y, datapath: "exact", outDtype: "f32" }).out.dataSync();
      const depths = new Float32Array(16 * THREADS).fill(DEPTH);
      const hole = empty(backend, "u8", [200_000_000]);
      const result = fill();
      const useBefore = backend.memoryUse();

      const error = thrownBy(multiply);
      expect(error).toBeInstanceOf(OutOfMemoryError);
      const { wanted, live } = error as OutOfMemoryError;
      expect(wanted).toBeGreaterThan(DEPTH * 16);
      expect(live).toBeGreaterThan(result);
      expect(backend.memoryUse()).toEqual(useBefore);
      expect(codes(input)).toEqual([0x3f80]);
      expect([x, y].every((x) => x.dataSync().every((code) => code === 0x38))).toBe(true);

      hole.dispose();
      expect(multiply()).toEqual(depths);
    },
  );

  for (const [format, depth, datapath] of [
    ["e4m3", 20_000_000, "hopper"],
    ["bf16", 15_000_000, "hopper"],
    ["f32", 30_000_000, "exact"],
    ["e4m3", 37_100_000, "hopper"],
    ["e4m3", 150_000_000, "exact"],
    ["e4m3", 2 ** 29, "exact"],
  ] as const) {
    testInScope(
      `is refused if it exceeds the address space: ${depth} of ${format} on datapath ${datapath}`,
      () => {
        const guard = tensor(backend, new Float32Array(1000).fill(7));
        const x = empty(backend, format, [1, depth]);
        const useBefore = backend.memoryUse();
        const error = thrownBy(() => gemm({ a: x, b: x, datapath, outDtype: "f32" }));
        expect(error).toBeInstanceOf(OutOfMemoryError);
        expect((error as OutOfMemoryError).wanted).toBeGreaterThan(2 ** 30);
        expect((error as OutOfMemoryError).live).toBeGreaterThanOrEqual(useBefore.live);
        expect(backend.memoryUse()).toEqual({ ...useBefore, reserved: expect.any(Number) });
        expect(guard.dataSync().every((value) => value === 7)).toBe(true);
      },
    );
  }
});

describe("tensors of half a GiB and more", () => {
  const MIB = 2 ** 20;
  for (const size of [512, 513, 600, 960]) {
    it(`do not overlap other tensors: one a little larger than a freed one of ${size} MiB`, async () => {
      const newBackend = await openBackend("wasm", { threads: 1 });
      const former = empty(newBackend, "u8", [size * MIB]);
      const guard = empty(newBackend, "u8", [MIB]);
      former.dispose();
      const x = empty(newBackend, "u8", [(size + 8) * MIB]);
      expect(x.address >= guard.address + MIB || x.address + x.byteLength <= guard.address).toBe(true);
      await newBackend.dispose();
    });
  }
});
