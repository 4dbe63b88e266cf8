/** Tolerances with which kernels are usually tested. */
import type { WideDType } from "../tensor/shape.js";

/** A tolerance: |actual - expected| ≤ atol + rtol * |expected|. */
interface Tolerance {
  readonly name: string;
  readonly rtol: Readonly<Record<WideDType, number>>;
  readonly atol: Readonly<Record<WideDType, number>>;
}

const everywhere = (size: number): Readonly<Record<WideDType, number>> => ({
  f32: size,
  bf16: size,
  f16: size,
});

/** The compared tolerances, in the order of reports. */
export const TOLERANCES: readonly Tolerance[] = [
  { name: "rtol 1e-2, atol 1e-2", rtol: everywhere(1e-2), atol: everywhere(1e-2) },
  { name: "rtol 1e-3, atol 1e-3", rtol: everywhere(1e-3), atol: everywhere(1e-3) },
  {
    name: "torch.testing.assert_close",
    rtol: { f32: 1.3e-6, bf16: 1.6e-2, f16: 1e-3 },
    atol: everywhere(1e-5),
  },
];

/** The width of the range of values that a tolerance accepts around `expected`. */
export function acceptedWidth({ rtol, atol }: Tolerance, dtype: WideDType, expected: number): number {
  return 2 * (atol[dtype] + rtol[dtype] * Math.abs(expected));
}
