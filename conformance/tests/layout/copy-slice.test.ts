/** slice, concatenate and expand: their laws, threads and refusals. */
import { describe, expect, it } from "vitest";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import { empty } from "../../../src/ops/create.js";
import { concatenate, expand, slice } from "../../../src/ops/layout/copy-slice.js";
import { elementCount } from "../../../src/tensor/shape.js";
import { words } from "../../arbitraries/random.js";
import { assertSame } from "../../values/difference.js";
import { download, fromCodes, upload } from "../../values/plain.js";
import { derivedSeed } from "../harness/draws.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();
const threads = useThreads();

describeLaws(backend, ["copySlice"], { runs: 600, seed: derivedSeed(141) });

describe("results do not depend on the number of threads", () => {
  const shape = [70, 201, 33];
  const x = fromCodes("bf16", shape, words(4, elementCount(shape)));
  const column = fromCodes("bf16", [70, 1, 33], words(5, 70 * 33));
  testEqualBits("slice", threads, (backend) => ({ out: download(slice(upload(backend, x), 1, 3, 200)) }));
  testEqualBits("concatenate", threads, (backend) => ({
    out: download(concatenate([upload(backend, x), upload(backend, x)], 1)),
  }));
  testEqualBits("expand", threads, (backend) => ({ out: download(expand(upload(backend, column), shape)) }));
});

testInScope("slices that are concatenated are the tensor", () => {
  const x = upload(backend(), fromCodes("f32", [3, 10, 7], words(6, 210)));
  for (const [dim, size] of x.shape.entries())
    for (let cut = 0; cut <= size; cut++) {
      const halves = [slice(x, dim, 0, cut), slice(x, dim, cut)];
      assertSame("the tensor", download(concatenate(halves, dim)), download(x));
    }
});

describe("invalid arguments are refused", () => {
  const refusals: Record<string, readonly [() => unknown, Error]> = {
    "a slice beyond the end": [
      () => slice(empty(backend(), "f32", [2, 3]), 1, 1, 4),
      new ArgumentError("slice: end is 4; dimension 1 of x [2,3] has 3 slices; give an integer from -3 to 3"),
    ],
    "a slice that ends before its start": [
      () => slice(empty(backend(), "f32", [2, 3]), 1, 2, 1),
      new ArgumentError("slice: start 2 is after end 1; a slice has an end at or after its start"),
    ],
    "a slice of FP4": [
      () => slice(empty(backend(), "e2m1", [2, 4]), 1, 0, 2),
      new DTypeError("slice: x is e2m1, whose codes share bytes; dequantize it"),
    ],
    "no tensors": [
      () => concatenate([]),
      new ArgumentError("concatenate: tensors is an empty array; give at least one tensor"),
    ],
    "tensors of two dtypes": [
      () => concatenate([empty(backend(), "f32", [2]), empty(backend(), "u8", [2])] as never),
      new DTypeError("concatenate: tensors[1] is u8 and the first f32; convert one of them"),
    ],
    "tensors whose other dimensions differ": [
      () => concatenate([empty(backend(), "f32", [2, 3]), empty(backend(), "f32", [3, 3])], 1),
      new ShapeError(
        "concatenate: tensors[1] is [3,3] and the first [2,3]; they may differ only in dimension 1",
      ),
    ],
    "an expansion of a dimension that is not 1": [
      () => expand(empty(backend(), "f32", [2, 3]), [4, 3]),
      new ShapeError(
        "expand: x is [2,3], which cannot become [4,3]; dimensions of size 1 are repeated, and the others must be equal",
      ),
    ],
  };
  for (const [name, [call, error]] of Object.entries(refusals))
    testInScope(name, () => expect(call).toThrow(error));
});

it("a scalar has no dimension to slice", () => {
  using x = empty(backend(), "f32", []);
  expect(() => slice(x, 0, 0)).toThrow(ArgumentError);
});
