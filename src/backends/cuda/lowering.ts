/** How operations are lowered to a GPU. */
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
  /** Calls `body` with memory for the work that it enqueues; the memory is reused once that work is done. */
  withTemporary<T>(bytes: number, body: (address: number) => T): T;
}

/** How a GPU runs one operation. Without `supports`, all valid arguments are supported, bitwise equal to the reference. */
export interface Lowering<K extends OpName> {
  readonly supports?: (args: OpArgs[K], context: LoweringContext) => Support;
  readonly run: (context: LoweringContext, args: OpArgs[K]) => void;
}

export type Lowerings = { readonly [K in OpName]: Lowering<K> };

/** The address of a tensor that may be absent. */
export function addressOf(tensor: Tensor | undefined): number | undefined {
  return tensor?.address;
}

/** The number of a wide type in the contract. */
export function wideOf(tensor: Tensor<WideDType>): (typeof WIDE)[WideDType] {
  return WIDE[tensor.dtype];
}

/** A random source as native/ reads it. */
export function randomWords({ seed, offset }: RandomSource): NativeArgs<"sweep">["random"] {
  wholes[0] = seed;
  wholes[1] = offset;
  const [seedLow = 0, seedHigh = 0, offsetLow = 0, offsetHigh = 0] = halves;
  return { seedLow, seedHigh, offsetLow, offsetHigh };
}

/** Two 64-bit words viewed as four 32-bit ones, lower half first: all hosts with a GPU are little-endian. */
const wholes = new BigUint64Array(2);
const halves = new Uint32Array(wholes.buffer);
