/** The interface by which operations are lowered to calls of the CUDA addon. */
import { WIDE } from "../../formats/contract.gen.js";
import type { RandomSource } from "../../random.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import type { Support } from "../backend.js";
import type { OpArgs, OpName } from "../ops.js";
import type { Addon, DeviceFacts, DeviceHandle, NativeArgs } from "./addon.js";

export interface LoweringContext {
  readonly addon: Addon;
  readonly device: DeviceHandle;
  readonly facts: DeviceFacts;
  /** Calls `body` with temporary device memory for the work that it enqueues. The memory is reused after that work. */
  withTemporary<T>(bytes: number, body: (address: number) => T): T;
}

/**
 * The implementation of one operation on a GPU. Without `supports`, all valid arguments are supported and results are bitwise
 * equal to the reference.
 */
export interface Lowering<K extends OpName> {
  readonly supports?: (args: OpArgs[K], context: LoweringContext) => Support;
  readonly run: (context: LoweringContext, args: OpArgs[K]) => void;
  /** Runs the operation for each element of a list that is not empty. Without it, elements are run one by one. */
  readonly runEach?: (context: LoweringContext, list: readonly OpArgs[K][]) => void;
}

/** Returns the lowering of an operation whose calls take lists. */
export function listLowering<K extends OpName>(runEach: NonNullable<Lowering<K>["runEach"]>): Lowering<K> {
  return { run: (context, args) => runEach(context, [args]), runEach };
}

export type Lowerings = { readonly [K in OpName]: Lowering<K> };

/** Returns the address of a tensor, or undefined if the tensor is absent. */
export function addressOf(tensor: Tensor | undefined): number | undefined {
  return tensor?.address;
}

/** Returns the number by which kernels identify a wide dtype (assembly/contract.ts). */
export function wideOf(tensor: Tensor<WideDType>): (typeof WIDE)[WideDType] {
  return WIDE[tensor.dtype];
}

/** Returns a random source as four 32-bit words, as native/ takes it. */
export function randomWords({ seed, offset }: RandomSource): NativeArgs<"sweep">["random"] {
  wholes[0] = seed;
  wholes[1] = offset;
  const [seedLow = 0, seedHigh = 0, offsetLow = 0, offsetHigh = 0] = halves;
  return { seedLow, seedHigh, offsetLow, offsetHigh };
}

/**
 * A buffer of two 64-bit integers, and a view of it as four 32-bit words with the low word first. All hosts with an NVIDIA GPU
 * are little-endian.
 */
const wholes = new BigUint64Array(2);
const halves = new Uint32Array(wholes.buffer);
