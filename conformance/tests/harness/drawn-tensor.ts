/** Tensors of random numbers, and comparisons of tensors. */
import type { Backend } from "../../../src/backends/backend.js";
import { castTo } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { DIRECTIONS, QuantizedTensor } from "../../../src/tensor/quantized.js";
import type { Shape, WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import type { QuantizedModel } from "../../oracle/training/quantized.js";
import { assertSame } from "../../values/difference.js";
import { download } from "../../values/plain.js";
import { gridValues } from "./gradients.js";

/** A tensor of random numbers with magnitudes around `scale`. */
export function drawnTensor(
  backend: Backend,
  seed: number,
  shape: Shape,
  dtype: WideDType,
  scale = 2,
): Tensor<WideDType> {
  const count = shape.reduce((a, b) => a * b, 1);
  return castTo(tensor(backend, gridValues(seed, count, scale), shape), dtype);
}

/** Throws unless both have the same type, shape and bits; quantized tensors are compared copy by copy. */
export function expectSame(
  name: string,
  actual: Tensor | QuantizedTensor | undefined,
  expected: Tensor | QuantizedTensor | undefined,
): void {
  const [ours, theirs] = [partsOf(actual), partsOf(expected)];
  if (ours.length !== theirs.length)
    throw new Error(`${name}: ${ours.length} parts; there have to be ${theirs.length}`);
  ours.forEach((part, i) => {
    assertSame(`${name}[${i}]`, download(part), download(theirs[i] as Tensor));
  });
}

function partsOf(x: Tensor | QuantizedTensor | undefined): readonly Tensor[] {
  if (x === undefined) return [];
  return x instanceof QuantizedTensor ? x.members : [x];
}

/** Throws unless both copies of the tensor have the model's codes and scales. */
export function expectModelled(name: string, actual: QuantizedTensor, expected: QuantizedModel): void {
  for (const usage of DIRECTIONS) {
    const [ours, theirs] = [actual.copy(usage), expected.copy(usage)];
    const parts = [
      ["codes", download(ours.data).codes, theirs.codes],
      ["scales", download(ours.scaleInv).codes, theirs.scale],
    ] as const;
    for (const [part, actualPart, expectedPart] of parts) {
      const at = Array.from(expectedPart).findIndex((code, i) => code !== actualPart[i]);
      if (at < 0 && actualPart.length === expectedPart.length) continue;
      throw new Error(
        `${name}: of ${usage} ${part}, ${actualPart.length} and not ${expectedPart.length}, [${at}] is ${actualPart[at]} and not ${expectedPart[at]}`,
      );
    }
  }
}
