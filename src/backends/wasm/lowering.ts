/** How operations are lowered to the reference: the pool, and temporary memory. */
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
  /** Calls `body` with `bytes` of uninitialized memory, freed when it returns. */
  withTemporary<T>(bytes: number, body: (address: number) => T): T;
}

/** How the reference runs one operation. Without `supports`, all valid arguments are supported, exactly. */
export interface Lowering<K extends OpName> {
  readonly supports?: (args: OpArgs[K]) => Support;
  readonly run: (context: LoweringContext, args: OpArgs[K]) => void;
}

export type Lowerings = { readonly [K in OpName]: Lowering<K> };

/** A random source in the words that kernels take. */
export function randomWords({ seed, offset }: RandomSource) {
  return { seedLo: low(seed), seedHi: low(seed >> 32n), offsetLo: low(offset), offsetHi: low(offset >> 32n) };
}

function low(value: bigint): number {
  return Number(value & 0xffffffffn);
}

/** The number of a wide type in the contract. */
export function wideOf(x: Tensor<WideDType>): number {
  return WIDE[x.dtype];
}

/** The arguments for a kernel's only input. */
export function sourceOf(x: Tensor<WideDType>) {
  return { src: x.address, srcType: WIDE[x.dtype] };
}

/** The arguments for a kernel's only output. */
export function targetOf(out: Tensor<WideDType>) {
  return { dst: out.address, dstType: WIDE[out.dtype] };
}
