/**
 * The Hadamard transform of operands. It leaves a product unchanged only if both operands were transformed with the same signs
 * along the dimension that is summed over (numerics.md §6.1).
 */
import { ArgumentError } from "../../errors.js";
import { type Direction, QuantizedTensor } from "../../tensor/quantized.js";
import { transformOf } from "../../tensor/spec.js";
import type { GemmInput } from "./operand.js";

/** @shared An operand by its name in messages, and the signs of its transform; undefined if it is not transformed. */
export type Transformed = readonly [name: string, signs: number | undefined];

/**
 * @shared Returns why the product of two operands differs from the product of the untransformed tensors; undefined if it does
 * not.
 */
export function transformFault(one: Transformed, other: Transformed): string | undefined {
  if (one[1] === other[1]) return undefined;
  return `${described(one)} and ${described(other)}, so their product is not the product of the tensors; quantize both with the same Hadamard transform (rht and its signs), or both without`;
}

function described([name, signs]: Transformed): string {
  if (signs === undefined) return `${name} is not transformed`;
  const by = signs === 0 ? "without signs" : `with the signs 0x${signs.toString(16)}`;
  return `${name} has passed through the Hadamard transform ${by}`;
}

/**
 * Returns an operand and its transform along `direction`. Tensors that are not quantized count as not transformed.
 *
 * @shared
 */
export function transformed(name: string, input: GemmInput, direction: Direction): Transformed {
  return [name, input instanceof QuantizedTensor ? transformOf(input.spec, direction) : undefined];
}

/** @shared Throws `ArgumentError` unless both operands of a product were transformed in the same way. */
export function requireSameTransform(op: string, one: Transformed, other: Transformed): void {
  const fault = transformFault(one, other);
  if (fault) throw new ArgumentError(`${op}: ${fault}`);
}
