/**
 * `zeros` sets every byte of a new tensor to zero, whatever the memory held before and whatever its size, and writes
 * nothing else.
 */
import fc from "fast-check";
import { expect, it } from "vitest";
import { zeros } from "../../../src/ops/create.js";
import { Scope } from "../../../src/tensor/scope.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();

/** The number of bytes that the host writes at once. Larger tensors are filled by copies on the backend. */
const PIECE = 2 ** 16;
const sizes = fc.oneof(
  fc.integer({ min: 0, max: 300 }),
  fc
    .record({ pieces: fc.integer({ min: 1, max: 9 }), more: fc.integer({ min: -2, max: 2 }) })
    .map(({ pieces, more: remainder }) => pieces * PIECE + remainder),
  fc.integer({ min: 0, max: 9 * PIECE }),
);

it("zeros of any size and type are zero bytes in memory that held others", () => {
  fc.assert(
    fc.property(sizes, fc.constantFrom("u8", "bf16", "f32", "e4m3"), (size, dtype) => {
      using _scope = new Scope();
      const tensor = zeros(backend(), dtype, [size]);
      const { address, byteLength } = tensor;
      backend().memory.write(address, new Uint8Array(byteLength).fill(0xa5));
      tensor.dispose();
      const createdTensor = zeros(backend(), dtype, [size]);
      const data = createdTensor.dataSync();
      const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
      expect(bytes.length).toBe(byteLength);
      expect(bytes.every((byte) => byte === 0)).toBe(true);
    }),
    { numRuns: draws(100) },
  );
});
