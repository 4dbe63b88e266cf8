/** On the exact datapath, products outside of autocast are sums that are rounded once, whatever their dtype. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { Linear } from "../../../src/modules/linear.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import { WIDE_DTYPES } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { words } from "../../arbitraries/random.js";
import { download, upload } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "exact" });
const [ROWS, FROM, TO] = [8, 32, 16];
/** The bits of the drawn integers of each dtype: sums of products are exact in f64, and those of bf16 and f16 in f32. */
const BITS = { f32: 22, bf16: 8, f16: 9 } as const;

/** Integers of both signs and of very different magnitudes. */
function integers(seed: number, count: number, bits: number): number[] {
  return Array.from(words(seed, count), (word) => {
    const magnitude = (word >>> (32 - bits)) >>> (word % bits);
    return word & 64 ? 0 - magnitude : magnitude;
  });
}

/** The product of a [rows, depth] and b [depth, columns], whose elements are functions of their indices. */
function product(
  [rows, depth, columns]: readonly [number, number, number],
  a: (row: number, k: number) => number,
  b: (k: number, column: number) => number,
): number[] {
  return Array.from({ length: rows * columns }, (_, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    let sum = 0;
    for (let k = 0; k < depth; k++) sum += a(row, k) * b(k, column);
    return sum;
  });
}

it.each(WIDE_DTYPES)("a linear layer of %s, forward and backward", (dtype) => {
  const bits = BITS[dtype];
  const seeds = fc.tuple(fc.nat(), fc.nat(), fc.nat());
  fc.assert(
    fc.property(seeds, ([firstSeed, secondSeed, thirdSeed]) => {
      using _ = new Scope();
      const [x, w] = [integers(firstSeed, ROWS * FROM, bits), integers(secondSeed, TO * FROM, bits)];
      // an f16 gradient of magnitude 1 keeps sums finite
      const grad = integers(thirdSeed, ROWS * TO, dtype === "f16" ? 1 : bits);
      using layer = new Linear(backend(), FROM, TO, {
        dtype,
        bias: false,
        initMethod: () => Float32Array.from(w),
      });
      const input = new Variable(upload(backend(), rounded(dtype, [ROWS, FROM], x)), true);
      const y = layer.forward(input);
      y.backward(upload(backend(), rounded(dtype, [ROWS, TO], grad)));
      const elementOf = (values: readonly number[], columns: number) => (row: number, column: number) =>
        values[row * columns + column] as number;
      const [xAt, wAt, gAt] = [elementOf(x, FROM), elementOf(w, FROM), elementOf(grad, TO)];
      expect(download(y.tensor)).toEqual(
        rounded(
          dtype,
          [ROWS, TO],
          product([ROWS, FROM, TO], xAt, (k, column) => wAt(column, k)),
        ),
      );
      expect(download(input.grad as Tensor)).toEqual(
        rounded(dtype, [ROWS, FROM], product([ROWS, TO, FROM], gAt, wAt)),
      );
      expect(download(layer.weight.grad as Tensor)).toEqual(
        rounded(
          dtype,
          [TO, FROM],
          product([TO, ROWS, FROM], (row, k) => gAt(k, row), xAt),
        ),
      );
      input.zeroGrad();
    }),
    { numRuns: draws(40, 10) },
  );
});
