/** encode, decode and amax on the reference. */
import { OVERFLOW, ROUNDING, WIDE } from "../../../formats/contract.gen.js";
import type { WideDType } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import type { AmaxArgs, DecodeArgs, EncodeArgs } from "../../ops.js";
import { halves, type Lowering, type LoweringContext } from "../lowering.js";

/** Ranges start at multiples of this: whole bytes of packed codes, whole draws of random words. */
const GRAIN = 64;

export const encode: Lowering<"encode"> = {
  run({ pool }, { x, word, rounding, overflow, random, scale, out }: EncodeArgs) {
    const policy = [
      ROUNDING[rounding],
      OVERFLOW[overflow],
      scale,
      ...halves(random.seed),
      ...halves(random.offset),
      0,
    ];
    const head = [x.address, WIDE[x.dtype], out.address, word, ...policy];
    pool.run("encode", { total: x.size, grain: GRAIN }, (scratch) => [...head, scratch]);
  },
};

export const decode: Lowering<"decode"> = {
  run({ pool }, { x, word, out }: DecodeArgs) {
    const head = [x.address, word, out.address, WIDE[out.dtype], 1];
    pool.run("decode", { total: out.size, grain: GRAIN }, (scratch) => [...head, scratch]);
  },
};

export const amax: Lowering<"amax"> = {
  run(context, { x, out }: AmaxArgs) {
    out.write(Float32Array.of(amaxOf(context, x)));
  },
};

/** max |x|, NaN ignored; 0 for an empty tensor. */
export function amaxOf({ pool }: LoweringContext, x: Tensor<WideDType>): number {
  const parts = pool.run("amax", { total: x.size, grain: GRAIN }, (scratch) => [
    x.address,
    WIDE[x.dtype],
    scratch,
  ]);
  return Math.max(0, ...parts);
}
