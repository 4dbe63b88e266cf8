/** What lowering an operation to the reference takes: the pool, and a place for temporaries. */
import { WIDE } from "../../formats/contract.gen.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import type { Support } from "../backend.js";
import type { OpArgs, OpName } from "../ops.js";
import type { Heap } from "./heap.js";
import type { Exports } from "./instance.js";
import type { Pool } from "./pool.js";

export interface LoweringContext {
  /** The main thread's instance, for what is too small to share out. */
  readonly exports: Exports;
  readonly pool: Pool;
  readonly heap: Heap;
  /** Calls `body` with `bytes` of zeroed or stale memory that is freed when it returns. */
  withTemporary<T>(bytes: number, body: (address: number) => T): T;
}

/** How the reference runs one operation. Without `supports`, it runs whatever validates, exactly. */
export interface Lowering<K extends OpName> {
  readonly supports?: (args: OpArgs[K]) => Support;
  readonly run: (context: LoweringContext, args: OpArgs[K]) => void;
}

export type Lowerings = { readonly [K in OpName]: Lowering<K> };

/** A u64 as the two u32 that kernels take. */
export function halves(value: bigint): [low: number, high: number] {
  return [Number(value & 0xffffffffn), Number((value >> 32n) & 0xffffffffn)];
}

/** A tensor as kernels take it: address and type. */
export function operand(x: Tensor<WideDType>): readonly [address: number, type: number] {
  return [x.address, WIDE[x.dtype]];
}
