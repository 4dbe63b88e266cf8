// The number of splits of K is found from the bits of a product, and a product with one wrong bit has none.
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { encode, gemm, normal, Scope, tensor } from "../../../src/index.js";
import { SPLIT_PRODUCTS, searchProduct } from "../../../src/referee/product-search.js";
import type { ProductOptions } from "../../../src/referee/products.js";
import { toValue } from "../../../src/referee/value.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();

/** The options of a product of drawn operands: in bf16, or in FP8 with scales of tensors, rows or blocks. */
function drawnProduct(
  kind: string,
  rows: number,
  columns: number,
  depth: number,
  seed: number,
): ProductOptions {
  const values = (offset: bigint, count: number): Float32Array =>
    normal({ seed: BigInt(seed), offset }, count, 1);
  const codes = (offset: bigint, count: number) =>
    encode(tensor(backend(), values(offset, count * depth), [count, depth]), {
      format: kind === "bf16" ? "bf16" : "e4m3",
    });
  const scales = (...shape: readonly number[]) => {
    const count = shape.reduce((a, b) => a * b, 1);
    const values = normal({ seed: BigInt(seed), offset: 1n << 30n }, count, 1);
    return tensor(
      backend(),
      values.map((value) => Math.abs(value) + 0.5),
      shape,
    );
  };
  const [x, w] = [codes(0n, rows), codes(1n << 20n, columns)];
  const settings = { datapath: "hopper", splitK: 1, outDtype: "f32" } as const;
  const blocks = Math.ceil(depth / 128);
  if (kind === "bf16") return { x, w, ...settings };
  const tiles = {
    tensor: [scales(1), scales(1)],
    "1xK": [scales(rows, 1), scales(columns, 1)],
    "1x128": [scales(rows, blocks), scales(columns, blocks)],
  }[kind] as [never, never];
  const tile = kind as "tensor" | "1xK" | "1x128";
  return { x: { data: x, scaleInv: tiles[0], tile }, w: { data: w, scaleInv: tiles[1], tile }, ...settings };
}

const product = fc.record({
  kind: fc.constantFrom("bf16", "tensor", "1xK", "1x128"),
  rows: fc.integer({ min: 1, max: 24 }),
  columns: fc.integer({ min: 1, max: 20 }).map((count) => 8 * count),
  depth: fc.integer({ min: 4, max: 16 }).map((count) => 128 * count),
  splits: fc.integer({ min: 2, max: 4 }),
  seed: fc.nat({ max: 1e6 }),
});

describe("the number of splits", () => {
  it("is found, and gives all recorded bits", () => {
    fc.assert(
      fc.property(product, ({ kind, rows, columns, depth, splits, seed }) => {
        using _ = new Scope();
        const options = drawnProduct(kind, rows, columns, depth, seed);
        const recordedProduct = toValue(gemm({ ...options, splitK: splits }).out);
        const splitK = searchProduct(options, recordedProduct, SPLIT_PRODUCTS)?.settings.splitK;
        expect(splitK).toBeGreaterThanOrEqual(2);
        expect(splitK).toBeLessThanOrEqual(splits);
        expect(toValue(gemm({ ...options, splitK: splitK as number }).out).bytes).toEqual(
          recordedProduct.bytes,
        );
      }),
      { numRuns: draws(60) },
    );
  });

  it("is not found if one bit is wrong, wherever it is", () => {
    fc.assert(
      fc.property(product, fc.nat(), ({ kind, rows, columns, depth, splits, seed }, position) => {
        using _ = new Scope();
        const options = drawnProduct(kind, rows, columns, depth, seed);
        const recordedProduct = toValue(gemm({ ...options, splitK: splits }).out);
        const bytes = recordedProduct.bytes.slice();
        const offset = 4 * (position % (bytes.length / 4));
        bytes[offset] = (bytes[offset] as number) ^ 1;
        // another number of splits may give this very bit
        const splitK = searchProduct(options, { ...recordedProduct, bytes }, SPLIT_PRODUCTS)?.settings.splitK;
        if (splitK !== undefined) expect(toValue(gemm({ ...options, splitK }).out).bytes).toEqual(bytes);
      }),
      { numRuns: draws(30) },
    );
  });
});
