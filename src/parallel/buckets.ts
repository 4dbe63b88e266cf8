/** Buckets: gradients that are reduced together, as one tensor. */
import { DTypeError } from "../errors.js";
import type { Parameter } from "../modules/parameter.js";
import { zeros } from "../ops/create.js";
import { add } from "../ops/elementwise/add.js";
import { disown } from "../tensor/scope.js";
import { byteLength, elementCount, type WideDType } from "../tensor/shape.js";
import { type Tensor, VIEW_ALIGNMENT } from "../tensor/tensor.js";

/** A gradient in a bucket. */
export interface Member {
  readonly parameter: Parameter;
  /** The index of the gradient's first element in the bucket. */
  readonly first: number;
}

/** Gradients of one dtype that are reduced together. */
export interface Bucket {
  readonly dtype: WideDType;
  readonly members: readonly Member[];
  /** The number of elements, including the padding between gradients. */
  readonly size: number;
}

/** Returns the dtype in which this library's layers compute a parameter's gradient. */
function gradDtype({ mainGrad, value }: Parameter): WideDType {
  return mainGrad?.dtype ?? (value.dtype as WideDType);
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

/**
 * Divides parameters into buckets. A bucket has one dtype and at most `bytes` bytes, or a single larger gradient. The last
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
 * Returns the gradients of a bucket as one tensor, with zeros as padding, and whether the tensor is a new copy. A single gradient
 * is not copied, and its memory may be shared with the `grad` of another parameter.
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

/**
 * Gives each parameter of a bucket its part of `flat`. A `grad` becomes a view that no scope owns; a `mainGrad` is overwritten in
 * place.
 */
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
