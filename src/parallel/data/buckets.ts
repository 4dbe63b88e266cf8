/** Buckets: groups of gradients that one operation reduces as one tensor. */
import { DTypeError } from "../../errors.js";
import type { Parameter } from "../../modules/parameter.js";
import { zeros } from "../../ops/create.js";
import { add } from "../../ops/elementwise/operators.gen.js";
import { disown } from "../../tensor/scope.js";
import { byteLength, elementCount, type WideDType } from "../../tensor/shape.js";
import { type Tensor, VIEW_ALIGNMENT, viewOrSlice } from "../../tensor/tensor.js";

/** The default maximum number of bytes of a bucket. A single larger gradient has a bucket of its own. */
export const BUCKET_BYTES = 25 * 2 ** 20;

/** A gradient in a bucket. */
export interface Member {
  readonly parameter: Parameter;
  /**
   * The parts of the gradient, one in each section. `count` is the number of elements, and `first` is the index of the first
   * element in the section.
   */
  readonly parts: readonly { readonly count: number; readonly first: number }[];
}

/** Gradients of one dtype that are reduced together. */
export interface Bucket {
  readonly dtype: WideDType;
  readonly members: readonly Member[];
  /** The number of elements of each section, including the padding. Each section has one part of every gradient. */
  readonly sizes: readonly number[];
}

/** Returns the dtype of the gradient that this library's layers compute for a parameter. */
function gradDtype({ mainGrad, dtype }: Parameter): WideDType {
  return mainGrad?.dtype ?? dtype;
}

/**
 * Returns the gradient of a parameter after a backward pass, or undefined if it has none. A parameter that is used in two ways,
 * such as a tied weight, may have both a `grad` and a `mainGrad`; its `grad` is then added to `mainGrad`, as an optimizer would
 * do, and released.
 */
export function gradientOf(parameter: Parameter): Tensor<WideDType> | undefined {
  const { mainGrad, grad } = parameter;
  if (!mainGrad) return grad;
  if (grad) add(mainGrad, grad, { out: mainGrad });
  parameter.zeroGrad();
  return mainGrad;
}

/** The default of `countsOf` in `bucketsOf`: one section, which has the full gradient. */
const fullSection = (parameter: Parameter): readonly number[] => [elementCount(parameter.shape)];

/**
 * Divides parameters into buckets. A bucket has one dtype and at most `bytes` bytes, or one larger gradient. The last parameter
 * is in the first bucket, because a backward pass computes its gradient first. `countsOf` returns the number of elements of a
 * gradient in each section; by default there is one section.
 */
export function bucketsOf(
  parameters: readonly Parameter[],
  bytes: number,
  countsOf: (parameter: Parameter) => readonly number[] = fullSection,
): readonly Bucket[] {
  const buckets: Bucket[] = [];
  for (const parameter of [...parameters].reverse()) {
    const dtype = gradDtype(parameter);
    const step = VIEW_ALIGNMENT / byteLength(dtype, []);
    const last = buckets.at(-1);
    const parts = countsOf(parameter).map((count, i) => ({
      count,
      first: Math.ceil((last?.sizes[i] ?? 0) / step) * step,
    }));
    const sizes = parts.map(({ count, first }) => first + count);
    const size = sizes.reduce((total, each) => total + each, 0);
    if (last && last.dtype === dtype && byteLength(dtype, [size]) <= bytes) {
      buckets[buckets.length - 1] = { dtype, members: [...last.members, { parameter, parts }], sizes };
    } else {
      const firstParts = parts.map(({ count }) => ({ count, first: 0 }));
      const counts = parts.map(({ count }) => count);
      buckets.push({ dtype, members: [{ parameter, parts: firstParts }], sizes: counts });
    }
  }
  return buckets;
}

/**
 * Concatenates the gradients of a bucket, section by section, with zeros as padding. Also returns whether the tensor may be
 * overwritten. A single gradient is not copied. A single `grad` may not be overwritten, because the `grad` of another parameter
 * may share its memory. `gradOf` returns the gradient of a parameter.
 */
export function packBucket(
  caller: string,
  { members, sizes, dtype }: Bucket,
  gradOf: (parameter: Parameter) => Tensor<WideDType> | undefined = gradientOf,
): { flat: Tensor<WideDType>; isWritable: boolean } {
  const grads = members.flatMap(({ parameter }) => gradOf(parameter) ?? []);
  for (const grad of grads)
    if (grad.dtype !== dtype)
      throw new DTypeError(
        `${caller}: a gradient is ${grad.dtype}; the gradient of a ${dtype} parameter must be ${dtype}, as on other ranks; return one from the custom operation`,
      );
  const [firstGrad, secondGrad] = grads;
  const size = sizes.reduce((total, each) => total + each, 0);
  if (firstGrad && !secondGrad)
    return { flat: firstGrad.reshape([size]), isWritable: members[0]?.parameter.mainGrad !== undefined };
  const flat = zeros((firstGrad as Tensor).backend, dtype, [size]);
  for (const [i, { parts }] of members.entries()) {
    const grad = grads[i] as Tensor<WideDType>;
    let [from, section] = [0, 0];
    for (const [j, { count, first }] of parts.entries()) {
      flat.paste(viewOrSlice(grad, from, [count]), section + first);
      from += count;
      section += sizes[j] as number;
    }
  }
  return { flat, isWritable: true };
}

/**
 * Sets the gradient of each parameter of a bucket to its part of `flat`. A `grad` becomes a view that no scope owns; a
 * `mainGrad` is overwritten in place.
 */
export function unpack({ members }: Bucket, flat: Tensor<WideDType>): void {
  for (const { parameter, parts } of members) {
    const part = flat.view(parts[0]?.first ?? 0, parameter.shape);
    if (parameter.mainGrad) {
      // the reduction of a single mainGrad was written in place
      if (members.length > 1) parameter.mainGrad.paste(part as Tensor<"f32">, 0);
    } else {
      parameter.zeroGrad();
      parameter.grad = part;
      disown(part);
    }
  }
}
