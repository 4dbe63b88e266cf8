/** The sizes of drawn products: few lines, and sizes one off a step, a block or a tile. */
import * as fc from "fast-check";

/** The sizes in a dimension: multiples of a step up to `maximum`, and multiples among `edgeSizes`. */
interface Sizes {
  readonly step: number;
  readonly maximum: number;
  readonly edgeSizes: readonly number[];
}

const linesOf = (step: number): Sizes => ({
  step,
  maximum: Math.max(step, 20),
  edgeSizes: step < 16 ? [0, 2, 3, 4, 6, 8, 10, 16, 17, 18, 32, 130] : [0, 16, 32, 64],
});

const depthsOf = (step: number): Sizes => ({
  step,
  maximum: 96,
  edgeSizes: [0, 1, 31, 32, 33, 64, 65, 127, 128, 129, 160, 192, 255, 256, 257, 288],
});
/** The lengths of K that need a second chain. */
const LONG = { min: 129, max: 300 };

function fewOf({ step, maximum }: Sizes): { readonly min: number; readonly max: number } {
  return { min: 1, max: Math.max(1, Math.floor(maximum / step)) };
}

/** All sizes that may be drawn in a dimension. */
function allOf(sizes: Sizes): readonly number[] {
  const { step, edgeSizes } = sizes;
  const few = Array.from({ length: fewOf(sizes).max }, (_, i) => (i + 1) * step);
  return [...few, ...edgeSizes].filter((size) => size % step === 0);
}

/** All numbers of lines that may be drawn. */
export function allLines(step: number): readonly number[] {
  return allOf(linesOf(step));
}

/** All lengths of K that may be drawn. */
export function allDepths(step: number): readonly number[] {
  const long = Array.from({ length: LONG.max - LONG.min + 1 }, (_, i) => LONG.min + i);
  return [...allOf(depthsOf(step)), ...long.filter((depth) => depth % step === 0)];
}

/** Numbers of lines: the least, few, or one past a tile. */
export function anyLines(step: number): fc.Arbitrary<number> {
  const sizes = { weight: 3, arbitrary: sizesOf(linesOf(step)) };
  return fc.oneof(sizes, { weight: 1, arbitrary: fc.constant(step) });
}

function sizesOf(sizes: Sizes): fc.Arbitrary<number> {
  const { step, edgeSizes } = sizes;
  const few = fc.integer(fewOf(sizes)).map((n) => n * step);
  return fc.oneof(few, fc.constantFrom(...edgeSizes.filter((edge) => edge % step === 0)));
}

/** Lengths of K: short; one past a step, a block or a tile; or long enough for a second chain. */
export function anyDepth(step: number): fc.Arbitrary<number> {
  return fc.oneof(
    sizesOf(depthsOf(step)),
    fc.integer(LONG).map((depth) => depth - (depth % step)),
  );
}
