/** The operations encode, decode and amax on the reference. */
import { OVERFLOW, ROUNDING } from "../../../formats/contract.gen.js";
import type { WideDType } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import type { AmaxArgs, DecodeArgs, EncodeArgs } from "../../ops.js";
import { drawsOf, type Lowering, type LoweringContext, sourceOf, targetOf } from "../lowering.js";

/**
 * Threads share a job in multiples of this many elements, so that none shares a byte of packed codes or a draw of random bits.
 */
const GRAIN = 64;

export const encode: Lowering<"encode"> = {
  run({ pool }, { x, word, rounding, overflow, random, randomBits, scale, out }: EncodeArgs) {
    if (randomBits) {
      const fields = { words: randomBits.address, overflow: OVERFLOW[overflow], scale };
      const job = { total: x.size, grain: GRAIN };
      pool.run("encodeByWords", job, { dst: out.address, word, ...fields, ...sourceOf(x) });
      return;
    }
    pool.run(
      "encode",
      { total: x.size, grain: GRAIN },
      {
        dst: out.address,
        word,
        rounding: ROUNDING[rounding],
        overflow: OVERFLOW[overflow],
        scale,
        draws: drawsOf(random),
        ...sourceOf(x),
      },
    );
  },
};

export const decode: Lowering<"decode"> = {
  run({ pool }, { x, word, out }: DecodeArgs) {
    const job = { total: out.size, grain: GRAIN };
    pool.run("decode", job, { src: x.address, word, ...targetOf(out), scale: 1 });
  },
};

export const amax: Lowering<"amax"> = {
  run(context, { x, out }: AmaxArgs) {
    out.write(Float32Array.of(amaxOf(context, x)));
  },
};

/** Returns max |x|, where NaN is ignored. It is 0 for an empty tensor. */
export function amaxOf({ pool }: LoweringContext, x: Tensor<WideDType>): number {
  const parts = pool.run("amax", { total: x.size, grain: GRAIN }, sourceOf(x));
  return Math.max(0, ...parts);
}
