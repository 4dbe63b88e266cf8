/** Parameters have the initial values that the documentation of each module describes, drawn in a fixed order, in every dtype. */
import fc from "fast-check";
import { expect } from "vitest";
import { type InitMethod, normal, RandomState, type Shape, tensor } from "../../../../src/index.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { elementCount, WIDE_DTYPES } from "../../../../src/tensor/shape.js";
import { expectSame } from "../../harness/drawn-tensor.js";
import { draws } from "../../harness/draws.js";
import { rowsWhere } from "../../harness/modules/calls.js";
import type { ModuleRow, ModuleSettings } from "../../harness/modules/row.js";
import { testInScope, useBackend } from "../../harness/suite.js";

const backend = useBackend();
const SIZES = { rows: 8, from: 16, to: 24, middle: 40 };
const STD = 0.023;

type Drawn = ModuleSettings & { readonly random: RandomState };

/** Weights whose values come from the option `outputLayerInitMethod`. */
const OUTPUT = /^(.*\.)?(fc2Weight|proj\.weight)$/;

/** The initial value of all elements of a parameter, or the method that draws them. */
function initial(row: ModuleRow, name: string, shape: Shape, options: Drawn): number | InitMethod {
  if (/bias\d*$|softmaxOffset$/i.test(name)) return 0;
  // gamma of a norm; all other weights have two dimensions
  if (shape.length === 1) return options.zeroCenteredGamma && row.takes.includes("zeroCenteredGamma") ? 0 : 1;
  const setting = OUTPUT.test(name) ? "outputLayerInitMethod" : "initMethod";
  const standard: InitMethod = ({ seed, offset }) =>
    normal({ seed, offset }, elementCount(shape), row.std ?? STD);
  return (row.takes.includes(setting) && options[setting]) || standard;
}

const optional = <T>(arbitrary: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.option(arbitrary, { nil: undefined });
const eighthsFrom =
  (firstEntry: number): InitMethod =>
  (random, shape) => {
    const { offset } = random.next();
    return Float32Array.from({ length: elementCount(shape) }, (_, i) => firstEntry + Number(offset) + i / 8);
  };
const optionSets = fc
  .record({
    dtype: fc.constantFrom(...WIDE_DTYPES),
    zeroCenteredGamma: optional(fc.boolean()),
    normalization: optional(fc.constantFrom("LayerNorm" as const, "RMSNorm" as const)),
    bias: optional(fc.boolean()),
    activation: optional(fc.constantFrom("gelu" as const, "swiglu" as const)),
    initMethod: optional(fc.constant(eighthsFrom(0))),
    outputLayerInitMethod: optional(fc.constant(eighthsFrom(0.5))),
    seed: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
  })
  .map(({ seed, ...rest }): Drawn => ({ ...rest, random: new RandomState(seed, 3n) }));

for (const [name, row] of rowsWhere())
  testInScope(`the parameters of ${name} have the documented initial values`, () => {
    fc.assert(
      fc.property(optionSets, (options) => {
        const { seed } = options.random;
        using builtModule = row.build(backend(), SIZES, options);
        const parameters = [...builtModule.module.namedParameters()];
        const shapes = parameters.map(([parameter, { shape }]) => [parameter, shape]);
        if (row.parameters) expect(Object.fromEntries(shapes)).toEqual(row.parameters(SIZES, options));
        let offset = 3n;
        for (const [parameter, { value, shape, dtype }] of parameters) {
          const initialValue = initial(row, parameter, shape, options);
          const count = elementCount(shape);
          const isDrawn = typeof initialValue !== "number";
          const values = isDrawn
            ? initialValue(new RandomState(seed, offset), shape)
            : new Float32Array(count).fill(initialValue);
          if (isDrawn) offset++;
          expect(dtype).toBe(parameter.endsWith("softmaxOffset") ? "f32" : options.dtype);
          expectSame(parameter, value, castTo(tensor(backend(), values, shape), dtype));
        }
        expect(options.random.offset).toBe(offset);
      }),
      { numRuns: row.composed ? draws(8) : draws(40) },
    );
  });
