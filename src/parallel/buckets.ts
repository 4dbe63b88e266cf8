/** Gradients that are reduced together, in one piece of memory. */
import { DTypeError } from "../errors.js";
import type { Parameter } from "../modules/parameter.js";
import { zeros } from "../ops/create.js";
import { add } from "../ops/elementwise/add.js";
import { disown } from "../tensor/scope.js";
import { byteLength, elementCount, type WideDType } from "../tensor/shape.js";
import { type Tensor, VIEW_ALIGNMENT } from "../tensor/tensor.js";

/** One gradient of a bucket. */
export interface Member {
  readonly parameter: Parameter;
  /** Where the gradient begins, in elements. */
  readonly first: number;
}

/** Some gradients of one element type. */
export interface Bucket {
  readonly dtype: WideDType;
  readonly members: readonly Member[];
  /** The elements of the bucket, with those between gradients. */
  readonly size: number;
}

/** The element type of a parameter's gradient, where layers of this library compute it. */
function gradDtype({ mainGrad, value }: Parameter): WideDType {
  return mainGrad?.dtype ?? (value.dtype as WideDType);
}

/**
 * The gradient of a parameter whose pass is over; undefined if it has none. A parameter with both has been used in two ways, as a
 * tied weight is: its `grad` is added to its main gradient, as an optimizer would add it, and released.
 */
export function gradientOf(parameter: Parameter): Tensor<WideDType> | undefined {
  const { mainGrad, grad } = parameter;
  if (!mainGrad) return grad;
  if (grad) add(mainGrad, grad, { out: mainGrad });
  parameter.zeroGrad();
  return mainGrad;
}

/**
 * Divides parameters among buckets of one element type and at most `bytes`, or of one gradient that is larger. The last
 * parameter comes first, because a backward pass computes its gradient first.
 */
export function bucketsOf(parameters: readonly Parameter[], bytes: number): readonly Bucket[] {
  const buckets: Bucket[] = [];
  for (const parameter of [...parameters].reverse()) {
    const dtype = gradDtype(parameter);
    const step = VIEW_ALIGNMENT / byteLength(dtype, []);
    const last = buckets.at(-1);
    const first = last ? Math.ceil(last.size / step) * step : 0;
    const count = elementCount(parameter.value.shape);
    if (last && last.dtype === dtype && byteLength(dtype, [first + count]) <= bytes) {
      const members = [...last.members, { parameter, first }];
      buckets[buckets.length - 1] = { dtype, members, size: first + count };
    } else {
      buckets.push({ dtype, members: [{ parameter, first: 0 }], size: count });
    }
  }
  return buckets;
}

/**
 * The gradients of a bucket side by side, with zeros between them, and whether nothing else has that memory. A single gradient
 * is not copied; a `grad` may share its memory with that of another parameter.
 */
export function packed({ members, size, dtype }: Bucket): { flat: Tensor<WideDType>; owned: boolean } {
  const grads = members.flatMap(({ parameter }) => gradientOf(parameter) ?? []);
  for (const grad of grads)
    if (grad.dtype !== dtype)
      throw new DTypeError(
        `DataParallel: a gradient is ${grad.dtype}; that of a ${dtype} parameter must be ${dtype}, as on other ranks`,
      );
  const [only, another] = grads;
  if (only && !another)
    return { flat: only.reshape([size]), owned: members[0]?.parameter.mainGrad !== undefined };
  const flat = zeros((only as Tensor).backend, dtype, [size]);
  for (const [i, { first }] of members.entries()) flat.paste(grads[i] as Tensor<WideDType>, first);
  return { flat, owned: true };
}

/** Gives each parameter of a bucket its part of `flat`: as `grad`, a view without a scope; a main gradient keeps its memory. */
export function unpack({ members }: Bucket, flat: Tensor<WideDType>): void {
  for (const { parameter, first } of members) {
    const { shape } = parameter.value;
    const part = flat.view(first, shape);
    if (parameter.mainGrad) {
      if (members.length > 1) parameter.mainGrad.paste(part as Tensor<"f32">, 0);
    } else {
      parameter.zeroGrad();
      parameter.grad = part;
      disown(part);
    }
  }
}
