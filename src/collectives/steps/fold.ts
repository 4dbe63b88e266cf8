/** Reductions of the ranks' inputs: sums and means by a plan, and maxima. Operations of the backend compute sums and means. */

import { add, scaled } from "../../ops/elementwise/operators.gen.js";
import { memoryOf } from "../../tensor/memory.js";
import { Scope } from "../../tensor/scope.js";
import { storageBits, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import type { Communicator, Reduction } from "../communicator.js";
import { orderOf, type SumPlan } from "../plan.js";

/** Reduces the elements of rank `owner`. `contributions` has the bytes of these elements from every rank. */
export function combine(
  { backend }: Pick<Communicator, "backend">,
  dtype: WideDType,
  contributions: readonly Uint8Array[],
  reduction: Reduction,
  owner: number,
): Uint8Array {
  if (reduction.reduction === "max") return maximum(dtype, contributions);
  using _ = new Scope();
  const elements = ((contributions[0] as Uint8Array).byteLength * 8) / storageBits(dtype);
  const tensors = contributions.map((bytes) => new Tensor(backend, dtype, [elements]).write(bytes));
  const total = sum(tensors, reduction.plan, owner);
  const { address, byteLength } =
    reduction.reduction === "mean" ? scaled(total, 1 / contributions.length) : total;
  return memoryOf(backend).readSync(address, byteLength);
}

/**
 * Adds the inputs in the plan's order. Partial sums are rounded to the plan's type, and the final sum to the type of the inputs.
 */
function sum(contributions: readonly Tensor<WideDType>[], plan: SumPlan, owner: number): Tensor<WideDType> {
  const [first, ...addends] = orderOf(plan, owner).map((rank) => contributions[rank] as Tensor<WideDType>);
  return addends.reduce(
    (total, part, i) => add(total, part, { outDtype: i < addends.length - 1 ? plan.sum : part.dtype }),
    first as Tensor<WideDType>,
  );
}

/** The bit patterns of infinity; larger magnitudes are NaN. */
const INFINITY: Readonly<Record<WideDType, number>> = { f32: 0x7f800000, bf16: 0x7f80, f16: 0x7c00 };

/** The elementwise maximum. NaN is ignored unless all elements are NaN, and +0 is larger than -0. */
function maximum(dtype: WideDType, contributions: readonly Uint8Array[]): Uint8Array {
  const bits = storageBits(dtype);
  const [infinity, sign] = [INFINITY[dtype], 2 ** (bits - 1)];
  const quietNaN = infinity + (sign - infinity) / 2;
  const views = contributions.map((bytes) => codesOf(bits, bytes.slice()));
  const out = codesOf(bits, new Uint8Array((contributions[0] as Uint8Array).length)).fill(quietNaN);
  for (const codes of views) {
    for (let i = 0; i < out.length; i++) {
      const [x, y] = [codes[i] as number, out[i] as number];
      const [isNaNX, isNaNY] = [x % sign > infinity, y % sign > infinity];
      if (!isNaNX && (isNaNY || orderKey(x, sign) > orderKey(y, sign))) out[i] = x;
    }
  }
  return new Uint8Array(out.buffer);
}

/** Maps bit patterns to integers in the order of their values; -0 is below +0. */
function orderKey(code: number, sign: number): number {
  return code < sign ? code : sign - code - 1;
}

function codesOf(bits: number, { buffer }: Uint8Array): Uint16Array | Uint32Array {
  return bits === 16 ? new Uint16Array(buffer) : new Uint32Array(buffer);
}
