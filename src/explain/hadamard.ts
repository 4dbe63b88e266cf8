/** The random Hadamard transform of 16 values (numerics.md §5.5). */
import { DATAPATHS } from "../formats/datapath.js";
import { floorLog2 } from "./binary.js";
import { dotAdd } from "./dot-add.js";
import { roundedTo } from "./steps.js";

/** The number of values in one transform. */
export const TRANSFORMED = 16;

const BF16_MIN_EXPONENT = -126;
/** The exponent of the factor 1/4. */
const QUARTER = -2;

/** The sign of input r in output c. */
function signOf(r: number, c: number, signs: number): 1 | -1 {
  let bits = r & c;
  bits ^= bits >> 2;
  bits ^= bits >> 1;
  return ((bits & 1) ^ ((signs >> r) & 1)) === 1 ? -1 : 1;
}

/** Computes output c of the transform of 16 bf16 values, as a bf16 value. `signs` is the mask of inputs whose sign is flipped. */
export function transformed(x: readonly number[], c: number, signs: number): number {
  const signed = x.map((value, r) => signOf(r, c, signs) * value);
  if (!signed.every(Number.isFinite)) return signed.reduce((sum, value) => sum + value, 0);
  const terms = signed.map((value) => {
    const exponent =
      Math.max(value === 0 ? BF16_MIN_EXPONENT : floorLog2(value), BF16_MIN_EXPONENT) + QUARTER;
    return value === 0 ? { value: 0 } : { value: value / 4, exponent };
  });
  return roundedTo(dotAdd(DATAPATHS["hopper-half"].dotAdd, 0, terms).result, "bf16");
}
