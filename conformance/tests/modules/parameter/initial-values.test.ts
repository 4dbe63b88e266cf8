/** Parameters have the initial values that the module's documentation describes, drawn in a fixed order, in every dtype. */
import fc from "fast-check";
import { expect } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import {
  Embedding,
  type InitMethod,
  LayerNorm,
  LayerNormLinear,
  LayerNormMLP,
  Linear,
  type Module,
  normal,
  RandomState,
  RMSNorm,
  type Shape,
  tensor,
} from "../../../../src/index.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { elementCount, WIDE_DTYPES } from "../../../../src/tensor/shape.js";
import { expectSame } from "../../harness/drawn-tensor.js";
import { draws } from "../../harness/draws.js";
import { scoped, useBackend } from "../../harness/suite.js";

const backend = useBackend();
const [K, N] = [16, 24];

/** A constant, or the standard deviation of the next draw, which the option `method` replaces if it is set. */
type Begin =
  | { readonly constant: number }
  | { readonly std: number; readonly method: "initMethod" | "outputLayerInitMethod" };
type Begins = Readonly<Record<string, readonly [Shape, Begin]>>;

interface Drawn {
  readonly dtype: (typeof WIDE_DTYPES)[number];
  readonly zeroCenteredGamma: boolean | undefined;
  readonly normalization: "LayerNorm" | "RMSNorm" | undefined;
  readonly bias: boolean | undefined;
  readonly activation: "gelu" | "swiglu" | undefined;
  readonly initMethod: InitMethod | undefined;
  readonly outputLayerInitMethod: InitMethod | undefined;
  readonly random: RandomState;
}

const ZERO: Begin = { constant: 0 };
const WEIGHT: Begin = { std: 0.023, method: "initMethod" };
const OUTPUT_WEIGHT: Begin = { std: 0.023, method: "outputLayerInitMethod" };
const gamma = ({ zeroCenteredGamma }: Drawn): Begin => ({ constant: zeroCenteredGamma ? 0 : 1 });

/** The norm at the beginning of a module. */
function normed(drawn: Drawn): Begins {
  const beta: Begins = drawn.normalization === "RMSNorm" ? {} : { layerNormBias: [[K], ZERO] };
  return { layerNormWeight: [[K], gamma(drawn)], ...beta };
}

function linear(
  name: string,
  bias: string,
  [out, inward]: readonly [number, number],
  drawn: Drawn,
  weight = WEIGHT,
): Begins {
  return { [name]: [[out, inward], weight], ...(drawn.bias === false ? {} : { [bias]: [[out], ZERO] }) };
}

/** Each module, and its parameters in the order in which they are drawn. */
const MODULES: Readonly<
  Record<string, readonly [make: (on: Backend, drawn: Drawn) => Module, begins: (drawn: Drawn) => Begins]>
> = {
  Linear: [
    (on, { dtype, bias, initMethod, random }) => new Linear(on, K, N, { dtype, bias, initMethod, random }),
    (drawn) => linear("weight", "bias", [N, K], drawn),
  ],
  Embedding: [
    (on, { dtype, initMethod, random }) => new Embedding(on, N, K, { dtype, initMethod, random }),
    () => ({ weight: [[N, K], { std: 0.02, method: "initMethod" }] }),
  ],
  LayerNorm: [
    (on, { dtype, zeroCenteredGamma, random }) => new LayerNorm(on, K, { dtype, zeroCenteredGamma, random }),
    (drawn) => ({ weight: [[K], gamma(drawn)], bias: [[K], ZERO] }),
  ],
  RMSNorm: [
    (on, { dtype, zeroCenteredGamma, random }) => new RMSNorm(on, K, { dtype, zeroCenteredGamma, random }),
    (drawn) => ({ weight: [[K], gamma(drawn)] }),
  ],
  LayerNormLinear: [
    (on, { activation: _, outputLayerInitMethod: __, ...options }) => new LayerNormLinear(on, K, N, options),
    (drawn) => ({ ...linear("weight", "bias", [N, K], drawn), ...normed(drawn) }),
  ],
  LayerNormMLP: [
    (on, options) => new LayerNormMLP(on, K, N, options),
    (drawn) => ({
      ...linear("fc1Weight", "fc1Bias", [drawn.activation === "swiglu" ? 2 * N : N, K], drawn),
      ...linear("fc2Weight", "fc2Bias", [K, N], drawn, OUTPUT_WEIGHT),
      ...normed(drawn),
    }),
  ],
};

const maybe = <T>(each: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => fc.option(each, { nil: undefined });
const eighthsFrom =
  (first: number): InitMethod =>
  (random, shape) => {
    const { offset } = random.next();
    return Float32Array.from({ length: elementCount(shape) }, (_, i) => first + Number(offset) + i / 8);
  };
const drawn = fc
  .record({
    dtype: fc.constantFrom(...WIDE_DTYPES),
    zeroCenteredGamma: maybe(fc.boolean()),
    normalization: maybe(fc.constantFrom("LayerNorm" as const, "RMSNorm" as const)),
    bias: maybe(fc.boolean()),
    activation: maybe(fc.constantFrom("gelu" as const, "swiglu" as const)),
    initMethod: maybe(fc.constant(eighthsFrom(0))),
    outputLayerInitMethod: maybe(fc.constant(eighthsFrom(0.5))),
    seed: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
  })
  .map(({ seed, ...rest }): Drawn => ({ ...rest, random: new RandomState(seed, 3n) }));

for (const [name, [make, begins]] of Object.entries(MODULES)) {
  scoped(`the parameters of ${name} have the documented initial values`, () => {
    fc.assert(
      fc.property(drawn, (each) => {
        const { seed } = each.random;
        using module = make(backend(), each);
        const expected = begins(each);
        expect([...module.namedParameters().keys()].sort()).toEqual(Object.keys(expected).sort());
        let offset = 3n;
        for (const [parameter, [shape, begin]] of Object.entries(expected)) {
          const count = elementCount(shape);
          const method = "std" in begin ? each[begin.method] : undefined;
          const values =
            "constant" in begin
              ? new Float32Array(count).fill(begin.constant)
              : method
                ? method(new RandomState(seed, offset), shape)
                : normal({ seed, offset }, count, begin.std);
          if ("std" in begin) offset++;
          const wide = tensor(backend(), values, shape);
          expectSame(parameter, module.namedParameters().get(parameter)?.value, castTo(wide, each.dtype));
        }
        expect(each.random.offset).toBe(offset);
      }),
      { numRuns: draws(40) },
    );
  });
}
