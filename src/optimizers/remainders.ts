/**
 * f32 masters of which a bf16 parameter holds the upper 16 bits, and a u16 tensor the lower 16 (numerics.md §9.7). The bits are
 * joined and divided by operations that every backend has: 16 bits are read as an integer, which f32 represents.
 */
import type { ScalarLayout } from "../formats/scalar.js";
import { decode, encode } from "../ops/cast/cast.js";
import { add, scaled, where } from "../ops/elementwise/operators.gen.js";
import { concatenate, slice } from "../ops/layout/copy-slice.js";
import { Scope } from "../tensor/scope.js";
import type { DType, Shape } from "../tensor/shape.js";
import { memoryOfTensor, Tensor } from "../tensor/tensor.js";

/** Signed integers of 16 bits. */
const INT16: ScalarLayout = {
  ...{ signed: true, exponentBits: 1, mantissaBits: 14, bias: -13 },
  ...{ subnormals: true, specials: "integer" },
};

/** Returns the master as a new tensor. A parameter that was rounded up is one above the upper 16 bits of the master. */
export function joinMaster(parameter: Tensor<"bf16">, remainder: Tensor<"u16">): Tensor<"f32"> {
  using scope = new Scope();
  const lower = decode(remainder, { format: INT16 });
  // -1 for remainders from 2^15 on, which are negative as integers, else 0
  const borrow = encode(lower, { format: "int8", scale: 2 ** -16, rounding: "towardNegative" });
  const upper = encode(add(decode(parameter, { format: INT16 }), decode(borrow)), { format: INT16 });
  const column = [parameter.size, 1];
  const halves = concatenate([remainder.reshape(column), upper.reshape(column) as Tensor<"u16">], 1);
  return scope.keep(bitsAs(halves, "f32", parameter.shape));
}

/** Writes a master: the parameter is the nearest value of bf16, ties away from zero. */
export function splitMaster(
  master: Tensor<"f32">,
  parameter: Tensor<"bf16">,
  remainder: Tensor<"u16">,
): void {
  using _ = new Scope();
  const halves = bitsAs(master, "u16", [master.size, 2]);
  const lower = decode(slice(halves, 1, 0, 1).reshape(master.shape), { format: INT16 });
  // 0 for finite numbers, NaN for others, whose remainder becomes 0: the bits of an f32 NaN are not defined
  const notFinite = add(master, scaled(master, -1));
  const finiteLower = where(notFinite, scaled(lower, 0), lower);
  remainder.paste(encode(finiteLower, { format: INT16 }) as Tensor<"u16">, 0);
  const options = { format: "bf16", rounding: "tiesToAway", overflow: "nonfinite" } as const;
  parameter.paste(encode(master, options) as Tensor<"bf16">, 0);
}

/** Returns a copy of the bytes of x as elements of another dtype. */
function bitsAs<D extends DType>(x: Tensor, dtype: D, shape: Shape): Tensor<D> {
  const copy = new Tensor(x.backend, dtype, shape);
  if (x.byteLength > 0) memoryOfTensor(x).copy(copy.address, x.address, x.byteLength);
  return copy;
}
