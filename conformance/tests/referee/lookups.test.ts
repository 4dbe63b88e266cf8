// The gradient of an embedding has the order of PyTorch's kernels, and does not add rows with the padding index.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Backend, openBackend } from "../../../src/index.js";
import { Call } from "../../../src/referee/call.js";
import { embeddingBackward } from "../../../src/referee/lookups.js";

describe("the gradient of an embedding", () => {
  let backend: Backend;
  beforeAll(async () => {
    backend = await openBackend("wasm", { threads: 1 });
  });
  afterAll(() => backend.dispose());

  const WIDTH = 4;
  const WEIGHTS = 1000;

  function gradient(rows: number, padding: number): Float32Array {
    const values = Float32Array.from({ length: rows * WIDTH }, (_, i) => Math.sin(i) * 2 ** (i % 9));
    const indices = BigInt64Array.from({ length: rows }, (_, i) => BigInt((i * 7919) % WEIGHTS));
    const grad = { dtype: "F32", shape: [rows, WIDTH], bytes: new Uint8Array(values.buffer) } as const;
    const index = { dtype: "I64", shape: [rows], bytes: new Uint8Array(indices.buffer) } as const;
    const names = ["grad_output", "indices", "num_weights", "padding_idx", "scale_grad_by_freq"];
    const call = new Call(backend, names, [grad, index, WEIGHTS, padding, false], {});
    const [result] = embeddingBackward(call);
    return new Float32Array((result as typeof grad).bytes.slice().buffer);
  }

  // up to 3072 rows, the kernel for unsorted indices; above, the kernel for sorted indices
  it.each([100, 3072, 3073, 5000])("of %i rows", (rows) => {
    const padding = 919;
    const [plainGradient, paddedGradient] = [gradient(rows, -1), gradient(rows, padding)];
    const row = (values: Float32Array) => values.slice(padding * WIDTH, (padding + 1) * WIDTH);
    expect(row(plainGradient).some((value) => value !== 0)).toBe(true);
    expect([...row(paddedGradient)]).toEqual([0, 0, 0, 0]);
    const expected = plainGradient.slice();
    expected.fill(0, padding * WIDTH, (padding + 1) * WIDTH);
    expect(paddedGradient).toEqual(expected);
  });

  /** The bf16 number nearest to an f32 number. Of two neighbours, it is the even one. */
  function bf16(value: number): number {
    const bits = new Uint32Array(Float32Array.of(value).buffer)[0] as number;
    const isOdd = (bits >>> 16) & 1;
    return new Float32Array(Uint32Array.of((bits + 0x7fff + isOdd) & 0xffff0000).buffer)[0] as number;
  }

  const INDICES = 250;
  /** The index of a row: two rows of a block have the same one. */
  const indexOf = (row: number): number => (row >> 1) % INDICES;

  /** The rows of an index in order, part by part. A part has rows of one block of 32, or 10 rows of the index. */
  function partsOf(rows: number, index: number): readonly (readonly number[])[] {
    const parts: number[][] = [];
    let last = -1;
    let count = 0;
    for (let row = 0; row < rows; row++) {
      if (indexOf(row) !== index) continue;
      const partIndex = Math.floor(rows > 3072 ? count / 10 : row / 32);
      if (partIndex !== last) parts.push([]);
      parts.at(-1)?.push(row);
      last = partIndex;
      count++;
    }
    return parts;
  }

  it.each([3071, 3072, 3073, 4096])("of %i rows in bf16 is rounded after each block, or once", (rows) => {
    const values = Float32Array.from({ length: rows }, (_, i) => bf16(Math.sin(i) * 2 ** (i % 5)));
    const halves = Uint16Array.from(new Uint32Array(values.buffer), (bits) => bits >>> 16);
    const indices = BigInt64Array.from({ length: rows }, (_, i) => BigInt(indexOf(i)));
    const grad = { dtype: "BF16", shape: [rows, 1], bytes: new Uint8Array(halves.buffer) } as const;
    const index = { dtype: "I64", shape: [rows], bytes: new Uint8Array(indices.buffer) } as const;
    const names = ["grad_output", "indices", "num_weights", "padding_idx", "scale_grad_by_freq"];
    const [result] = embeddingBackward(new Call(backend, names, [grad, index, INDICES, -1, false], {}));
    const narrow = rows > 3072 ? Math.fround : bf16;
    const expected = Array.from({ length: INDICES }, (_, index) =>
      bf16(
        partsOf(rows, index).reduce((total, part) => {
          const sum = part.reduce((partial, row) => Math.fround(partial + (values[row] as number)), 0);
          return narrow(narrow(sum) + total);
        }, 0),
      ),
    );
    const resultWords = Uint32Array.from(
      new Uint16Array((result as typeof grad).bytes.slice().buffer),
      (half) => half << 16,
    );
    expect([...new Float32Array(resultWords.buffer)]).toEqual(expected);
  });
});
