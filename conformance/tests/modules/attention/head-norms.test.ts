/** The norm without parameters is bitwise equal to its definition. */
import * as fc from "fast-check";
import { describe, expect } from "vitest";
import { l2Normalize } from "../../../../src/modules/attention/head-norms.js";
import { Variable } from "../../../../src/tape/variable.js";
import { OPERATORS } from "../../../oracle/elementwise/operators.js";
import { cast } from "../../../oracle/training/matrix.js";
import { sums } from "../../../oracle/training/sums.js";
import { PlainTensor, wideValues } from "../../../values/plain.js";
import { draws } from "../../harness/draws.js";
import { testInScope, useBackend } from "../../harness/suite.js";
import { waves } from "./drawn.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const fround = Math.fround;

describe("l2Normalize", () => {
  testInScope("divides each row by its length: an f32 sum of squares, rsqrt, one rounded product", () => {
    fc.assert(
      fc.property(
        fc.constantFrom<"f32" | "bf16" | "f16">("f32", "bf16", "f16"),
        fc.integer({ min: 1, max: 3 }),
        fc.integer({ min: 1, max: 80 }),
        fc.constantFrom(0, 1e-6, 0.5),
        fc.nat(1000),
        (dtype, rows, width, eps, seed) => {
          const x = waves(backend(), seed, [rows, 2, width], dtype);
          const y = l2Normalize(new Variable(x), eps).tensor;
          const data = Float32Array.from(wideValues(new PlainTensor(dtype, x.shape, x.dataSync())));
          const squares = sums(
            data.map((value) => value * value),
            [2 * rows, width],
            [1],
          ).values;
          const factors = squares.map((square) =>
            fround(OPERATORS.rsqrt.value(fround(square + fround(eps)))),
          );
          const expected = data.map((value, i) => value * (factors[Math.floor(i / width)] as number));
          const actual = wideValues(new PlainTensor(dtype, y.shape, y.dataSync()));
          expect([...actual]).toEqual([
            ...cast({ data: expected, shape: [2 * rows, width], dtype: "f32" }, dtype).data,
          ]);
        },
      ),
      { numRuns: draws(100) },
    );
  });
});
