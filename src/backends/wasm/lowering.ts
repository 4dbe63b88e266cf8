/** The interface by which operations are lowered to exports of the reference. */
import { WIDE } from "../../formats/contract.gen.js";
import type { RandomSource } from "../../random.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import type { Support } from "../backend.js";
import type { OpArgs, OpName } from "../ops.js";
import type { Heap } from "./heap.js";
import type { Pool } from "./pool.js";

export interface LoweringContext {
  readonly pool: Pool;
  readonly heap: Heap;
  /** Calls `body` with the address of `bytes` bytes of uninitialized memory, which are freed after it returns. */
  withTemporary<T>(bytes: number, body: (address: number) => T): T;
}

/**
 * The implementation of one operation on the reference. Without `supports`, all valid arguments are supported, and the result
 * is exact.
 */
export interface Lowering<K extends OpName> {
  readonly supports?: (args: OpArgs[K]) => Support;
  readonly run: (context: LoweringContext, args: OpArgs[K]) => void;
}

export type Lowerings = { readonly [K in OpName]: Lowering<K> };

/** The random source of kernels that do not use random bits. */
const NO_RANDOM: RandomSource = { seed: 0n, offset: 0n };

/** Returns the arguments of kernels that select random bits. `copy` is 0 for the rowwise copy and 1 for the columnwise copy. */
export function drawsOf({ seed, offset }: RandomSource = NO_RANDOM, copy = 0) {
  return {
    seedLo: low(seed),
    seedHi: low(seed >> 32n),
    offsetLo: low(offset),
    offsetHi: low(offset >> 32n),
    copy,
  };
}

function low(value: bigint): number {
  return Number(value & 0xffffffffn);
}

/** Returns the number by which kernels identify a wide dtype (assembly/contract.ts). */
export function wideOf(x: Tensor<WideDType>): number {
  return WIDE[x.dtype];
}

/** Returns the address and the dtype of a kernel's only input. */
export function sourceOf(x: Tensor<WideDType>) {
  return { src: x.address, srcType: WIDE[x.dtype] };
}

/** Returns the address and the dtype of a kernel's only output. */
export function targetOf(out: Tensor<WideDType>) {
  return { dst: out.address, dstType: WIDE[out.dtype] };
}
