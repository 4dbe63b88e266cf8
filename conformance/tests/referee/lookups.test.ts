// The gradient of an embedding does not add rows with the padding index, and adds all others.
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
    const [all, others] = [gradient(rows, -1), gradient(rows, padding)];
    const row = (values: Float32Array) => values.slice(padding * WIDTH, (padding + 1) * WIDTH);
    expect(row(all).some((value) => value !== 0)).toBe(true);
    expect([...row(others)]).toEqual([0, 0, 0, 0]);
    const expected = all.slice();
    expected.fill(0, padding * WIDTH, (padding + 1) * WIDTH);
    expect(others).toEqual(expected);
  });
});
