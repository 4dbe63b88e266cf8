/** Quantizing several tensors, or parts of one, is equal to quantizing each separately. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import {
  ArgumentError,
  encode,
  Float8CurrentScalingQuantizer,
  MXFP8Quantizer,
  multiQuantize,
  NVFP4Quantizer,
  normal,
  type QuantizedTensor,
  type Quantizer,
  RandomState,
  Scope,
  ShapeError,
  splitQuantize,
  type Tensor,
  tensor,
} from "../../../src/index.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();
const COLUMNS = 64;
const MAKERS: readonly (() => Quantizer)[] = [
  () => new MXFP8Quantizer({ columnwise: true }),
  () => new Float8CurrentScalingQuantizer(),
  () => new NVFP4Quantizer({ stochastic: true, random: new RandomState(3n) }),
];
const bitsOf = (quantizedTensor: QuantizedTensor): unknown => [
  quantizedTensor.shape,
  quantizedTensor.spec,
  ...quantizedTensor.members.map((member) => String(member.dataSync())),
];
const values = (rows: number): Float32Array => normal({ seed: 1n, offset: BigInt(rows) }, rows * COLUMNS, 1);
const matrix = (rows: number): Tensor =>
  encode(tensor(backend(), values(rows), [rows, COLUMNS]), { format: "bf16" });

const groups = fc.array(fc.tuple(fc.integer({ min: 0, max: 40 }), fc.constantFrom(...MAKERS)), {
  maxLength: 5,
});

it("multiQuantize has the results of each quantizer", () => {
  fc.assert(
    fc.property(groups, (choices) => {
      using _ = new Scope();
      const tensors = choices.map(([rows]) => matrix(rows));
      const results = multiQuantize(
        tensors,
        choices.map(([, make]) => make()),
      );
      expect(results.map(bitsOf)).toEqual(
        choices.map(([, make], i) => bitsOf(make().quantize(tensors[i] as Tensor))),
      );
    }),
    { numRuns: draws(40) },
  );
});

it("splitQuantize has the results of a copy of each part", () => {
  fc.assert(
    fc.property(groups, fc.boolean(), (choices, isDeep) => {
      using _ = new Scope();
      const rows = choices.reduce((sum, [count]) => sum + count, 0);
      const x = isDeep ? matrix(rows).reshape([rows, 1, COLUMNS]) : matrix(rows);
      const results = splitQuantize(
        x,
        choices.map(([count]) => count),
        choices.map(([, make]) => make()),
      );
      let begin = 0;
      const expected = choices.map(([count, make]) => {
        const groupRows = x.slice(begin * COLUMNS, [count, COLUMNS]);
        begin += count;
        return bitsOf(make().quantize(groupRows));
      });
      expect(results.map(bitsOf)).toEqual(expected);
    }),
    { numRuns: draws(40) },
  );
});

it("lists that do not fit are refused, and nothing is left", () => {
  using _ = new Scope();
  const [x, q] = [matrix(8), new MXFP8Quantizer()];
  expect(() => multiQuantize([x, x], [q])).toThrow(
    "multiQuantize: there are 1 quantizers for 2 tensors; give one for each",
  );
  expect(() => splitQuantize(x, [4, 4], [q])).toThrow(ArgumentError);
  expect(() => splitQuantize(x, [4, 5], [q, q])).toThrow(ShapeError);
  expect(() => splitQuantize(x, [4, 5], [q, q])).toThrow(
    "splitQuantize: splits add up to 9, and x [8,64] has 8 rows",
  );
  const liveBefore = backend().memoryUse().live;
  const narrow = tensor(backend(), new Float32Array(16), [1, 16]);
  const createdBytes = backend().memoryUse().live;
  expect(() => multiQuantize([x, narrow], [q, q])).toThrow(ShapeError);
  expect(backend().memoryUse().live).toBe(createdBytes);
  expect(createdBytes).toBeGreaterThan(liveBefore);
});
