/** Tensors of random numbers, and comparisons of tensors. */
import { createHash } from "node:crypto";
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

/** The SHA-256 of a tensor's bytes; that of "none" for no tensor. */
export const hashOf = (x: Tensor | undefined): string =>
  createHash("sha256")
    .update(x ? new Uint8Array(x.dataSync().buffer as ArrayBuffer) : "none")
    .digest("hex");

/** Throws unless both tensors have the same type, shape and bits. All members of quantized tensors are compared. */
export function expectSame(
  name: string,
  actual: Tensor | QuantizedTensor | undefined,
  expected: Tensor | QuantizedTensor | undefined,
): void {
  const [actualMembers, expectedMembers] = [members(actual), members(expected)];
  if (actualMembers.length !== expectedMembers.length)
    throw new Error(`${name}: ${actualMembers.length} parts; there have to be ${expectedMembers.length}`);
  actualMembers.forEach((member, i) => {
    assertSame(`${name}[${i}]`, download(member), download(expectedMembers[i] as Tensor));
  });
}

function members(x: Tensor | QuantizedTensor | undefined): readonly Tensor[] {
  if (x === undefined) return [];
  return x instanceof QuantizedTensor ? x.members : [x];
}

/** Throws unless both copies of the tensor have the model's codes and scales. */
export function expectModelCodes(name: string, actual: QuantizedTensor, expected: QuantizedModel): void {
  for (const usage of DIRECTIONS) {
    const [actualCopy, expectedCopy] = [actual.copy(usage), expected.copy(usage)];
    const arrays = [
      ["codes", download(actualCopy.data).codes, expectedCopy.codes],
      ["scales", download(actualCopy.scaleInv).codes, expectedCopy.scale],
    ] as const;
    for (const [arrayName, actualCodes, expectedCodes] of arrays) {
      const index = Array.from(expectedCodes).findIndex((code, i) => code !== actualCodes[i]);
      if (index < 0 && actualCodes.length === expectedCodes.length) continue;
      throw new Error(
        `${name}: of ${usage} ${arrayName}, ${actualCodes.length} and not ${expectedCodes.length}, [${index}] is ${actualCodes[index]} and not ${expectedCodes[index]}`,
      );
    }
  }
}
