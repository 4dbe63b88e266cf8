/** permute: every order of dimensions, by indices of elements. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { ArgumentError } from "../../../src/errors.js";
import { empty } from "../../../src/ops/create.js";
import { permute } from "../../../src/ops/layout/permute.js";
import { Scope } from "../../../src/tensor/scope.js";
import { elementCount } from "../../../src/tensor/shape.js";
import { words } from "../../arbitraries/random.js";
import { assertSame } from "../../values/difference.js";
import { download, fromCodes, upload } from "../../values/plain.js";
import { derivedSeed, drawsOr } from "../harness/draws.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend();

const cases = fc
  .array(fc.oneof(fc.integer({ min: 1, max: 5 }), fc.constantFrom(0, 1, 1, 9)), { maxLength: 5 })
  .chain((shape) =>
    fc.record({
      shape: fc.constant(shape),
      dims: fc.shuffledSubarray([...shape.keys()], { minLength: shape.length }),
      dtype: fc.constantFrom("u8", "bf16", "f32"),
      seed: fc.nat(),
    }),
  );

it("element i of the result is the element of x whose index has the dimensions in their order", () => {
  fc.assert(
    fc.property(cases, ({ shape, dims, dtype, seed }) => {
      using _scope = new Scope();
      const x = fromCodes(dtype, shape, words(seed, elementCount(shape)));
      const permutedShape = dims.map((dim) => shape[dim] as number);
      const strides = shape.map((_, axis) => elementCount(shape.slice(axis + 1)));
      const codes = Array.from({ length: elementCount(shape) }, (_, position) => {
        let rest = position;
        let source = 0;
        for (let axis = permutedShape.length - 1; axis >= 0; axis--) {
          const size = permutedShape[axis] as number;
          source += (rest % size) * (strides[dims[axis] as number] as number);
          rest = Math.floor(rest / size);
        }
        return x.codes[source] as number;
      });
      const negative = dims.map((dim, i) => (i % 2 === 0 ? dim : dim - shape.length));
      const result = permute(upload(backend(), x), negative);
      assertSame("the permutation", download(result), fromCodes(dtype, permutedShape, codes));
    }),
    { numRuns: drawsOr(500), seed: derivedSeed(142) },
  );
});

testInScope("the result has its own memory, also where no dimension of more than one element moves", () => {
  const x = upload(backend(), fromCodes("f32", [1, 3, 1], words(1, 3)));
  for (const dims of [
    [0, 1, 2],
    [1, 2, 0],
  ]) {
    const result = permute(x, dims);
    result.write(new Float32Array(3));
    assertSame("x", download(x), fromCodes("f32", [1, 3, 1], words(1, 3)));
  }
});

testInScope("orders that do not have each dimension once are refused", () => {
  const x = empty(backend(), "f32", [2, 3]);
  for (const dims of [[0], [0, 0], [0, 1, 2], [0, 2], []])
    expect(() => permute(x, dims)).toThrow(ArgumentError);
});
