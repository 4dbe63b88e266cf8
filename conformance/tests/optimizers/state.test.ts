/** States of low precision have the bits of their definition (numerics.md §9.6) and the memory of their dtypes. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError } from "../../../src/errors.js";
import { Linear } from "../../../src/modules/linear.js";
import { Parameter } from "../../../src/modules/parameter.js";
import { castTo, decode } from "../../../src/ops/cast/cast.js";
import { tensor, zeros } from "../../../src/ops/create.js";
import { AdamW, type AdamWOptions } from "../../../src/optimizers/adamw.js";
import { SGD } from "../../../src/optimizers/sgd.js";
import { readState, type State, storeState, zeroState } from "../../../src/optimizers/state.js";
import { type Owned, Scope } from "../../../src/tensor/scope.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { bitsOf, fromBits } from "../../oracle/core/rational.js";
import * as oracle from "../../oracle/training/stored-state.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();
const DTYPES = ["f32", "bf16", "f16", "e4m3"] as const;
const SCALED = ["f16", "e4m3"] as const;

const shape = fc.constantFrom<number[]>([], [1], [7], [3, 5], [0, 4], [2, 1, 33]);
/** Bit patterns of f32: of every kind, or near each other in magnitude. */
const patterns = fc.oneof(
  { weight: 4, arbitrary: fc.integer({ min: 0x3f000000, max: 0x40800000 }) },
  fc.nat(0x7f800000),
  fc.nat(0x00800000),
  fc.constantFrom(0, 1, 0x00800000, 0x7f7fffff),
);
const special = fc.constantFrom(0x7f800000, 0x7fc00000);
const list = (maxLength: fc.Arbitrary<number>) =>
  fc.array(fc.tuple(maxLength, fc.boolean()), { minLength: 66, maxLength: 66 });
const lists = fc.oneof(
  { weight: 5, arbitrary: list(patterns) },
  list(fc.oneof({ weight: 9, arbitrary: patterns }, special)),
);

const numbers = (pairs: readonly (readonly [number, boolean])[], size: number): number[] =>
  pairs.slice(0, size).map(([bits, negative]) => fromBits((bits | (negative ? 0x80000000 : 0)) >>> 0));

const hexOf = (values: Iterable<number>): string[] =>
  Array.from(values, (x) => (Number.isNaN(x) ? "NaN" : bitsOf(x).toString(16)));
const valuesOf = (x: Tensor): string[] => {
  const wide = x.dtype === "e4m3" ? decode(x) : castTo(x as Tensor<WideDType>, "f32");
  return hexOf(wide.dataSync() as Float32Array);
};
const valuesOfState = ({ codes, scale }: State) => ({
  codes: valuesOf(codes),
  scale: scale && valuesOf(scale),
});
const expected = ({ codes, scale }: oracle.StoredState) => ({
  codes: hexOf(codes),
  scale: scale === undefined ? undefined : hexOf([scale]),
});

/** Runs `body` with a state of zeros. */
function withState(
  dtype: (typeof DTYPES)[number],
  shape: readonly number[],
  body: (state: State) => void,
): void {
  using _ = new Scope();
  const createdStates: Owned[] = [];
  try {
    body(zeroState(backend(), dtype, shape, createdStates));
  } finally {
    for (const tensor of createdStates) tensor.dispose();
  }
}

const store = (state: State, data: readonly number[], noop?: number): void => {
  const values = tensor(backend(), Float32Array.from(data), state.codes.shape);
  if (state.codes.dtype === "f32") state.codes.write(Float32Array.from(data));
  storeState(state, values, { groups: [], noop: noop === undefined ? undefined : tensor(backend(), [noop]) });
};

describe("a state", () => {
  it("has the codes, the scale and the values of the definition, and keeps its bits under a flag of 1", () => {
    const flag = fc.constantFrom(undefined, 0, 1, 1 + 2 ** -23, 2, Number.NaN, Number.POSITIVE_INFINITY);
    fc.assert(
      fc.property(
        fc.constantFrom(...DTYPES),
        shape,
        lists,
        lists,
        flag,
        (dtype, stateDtype, firstPairs, secondPairs, noop) => {
          withState(dtype, stateDtype, (state) => {
            const { size } = state.codes;
            expect(valuesOfState(state)).toEqual(expected(oracle.zeroState(dtype, size)));
            const [expectedBefore, expectedAfter] = [firstPairs, secondPairs].map((pairs) =>
              oracle.stored(numbers(pairs, size), dtype),
            );
            store(state, numbers(firstPairs, size));
            expect(valuesOfState(state)).toEqual(expected(expectedBefore as oracle.StoredState));
            expect(valuesOf(readState(state))).toEqual(
              hexOf(oracle.valuesOf(expectedBefore as oracle.StoredState)),
            );
            if (dtype === "f32") return;
            store(state, numbers(secondPairs, size), noop);
            expect(valuesOfState(state)).toEqual(
              expected((noop === 1 ? expectedBefore : expectedAfter) as oracle.StoredState),
            );
          });
        },
      ),
      { numRuns: draws(400, 150) },
    );
  });

  it.each(SCALED)(
    "of %s scales the largest element to the maximum of its codes, and decodes zeros and NaN",
    (dtype) => {
      const max = dtype === "f16" ? 32752 : 448;
      const stateOf = (data: readonly number[], check: (state: State) => void): void =>
        withState(dtype, [data.length], (state) => {
          store(state, data);
          check(state);
        });
      stateOf([-3, 0, 1.5, Number.NaN], (state) => {
        expect(valuesOfState(state)).toEqual({
          codes: hexOf([-max, 0, max / 2, Number.NaN]),
          scale: hexOf([Math.fround(3 / max)]),
        });
      });
      stateOf([0, -0], (state) => {
        expect(valuesOfState(state)).toEqual({ codes: hexOf([0, -0]), scale: hexOf([2 ** -126]) });
        expect(valuesOf(readState(state))).toEqual(hexOf([0, -0]));
      });
      stateOf([2 ** -149, 0], (state) => expect(valuesOfState(state).scale).toEqual(hexOf([2 ** -126])));
      stateOf([Number.POSITIVE_INFINITY, 1], (state) =>
        expect(valuesOf(readState(state))).toEqual(["NaN", "NaN"]),
      );
    },
  );
});

describe("an optimizer", () => {
  const SIZE = 4096;
  const BYTES = { f32: 4, bf16: 2, f16: 2, e4m3: 1 } as const;
  /** Memory of small blocks, such as scales. */
  const SLACK = 4096;

  it("takes the memory of the dtypes of its states, and a step keeps none", () => {
    const dtypes = fc.constantFrom(...DTYPES);
    const masters = fc.constantFrom("f32" as const, "f16" as const);
    fc.assert(
      fc.property(dtypes, dtypes, masters, (expAvgDtype, expAvgSqDtype, masterWeightDtype) => {
        using _ = new Scope();
        const parameter = new Parameter(zeros(backend(), "bf16", [SIZE]));
        parameter.grad = zeros(backend(), "bf16", [SIZE]);
        const liveBefore = backend().memoryUse().live;
        using optimizer = new AdamW(new Map([["p", parameter]]), {
          ...{ learningRate: 1, expAvgDtype, expAvgSqDtype, masterWeightDtype },
        });
        const takenBytes = backend().memoryUse().live - liveBefore;
        const bytes = SIZE * (BYTES[expAvgDtype] + BYTES[expAvgSqDtype] + BYTES[masterWeightDtype]);
        expect(takenBytes).toBeGreaterThanOrEqual(bytes);
        expect(takenBytes).toBeLessThan(bytes + SLACK);
        optimizer.step();
        expect(backend().memoryUse().live - liveBefore).toBe(takenBytes);
        parameter.dispose();
      }),
      { numRuns: draws(32, 12) },
    );
  });

  it("refuses other dtypes of states after it was created, and dtypes in groups", () => {
    using layer = new Linear(backend(), 4, 4);
    using adamw = new AdamW(layer, { learningRate: 1, expAvgDtype: "bf16" });
    for (const parameter of layer.parameters()) parameter.grad = zeros(backend(), "bf16", parameter.shape);
    adamw.options = { learningRate: 0.5 };
    adamw.step();
    adamw.options = { learningRate: 0.5, expAvgDtype: "bf16", expAvgSqDtype: "f32" };
    adamw.step();
    for (const options of [
      { expAvgDtype: "f16" },
      { expAvgSqDtype: "e4m3" },
      { masterWeightDtype: "f16" },
    ] as const) {
      adamw.options = { learningRate: 0.5, ...options };
      expect(() => adamw.step()).toThrow(/keep their form/);
    }
    using sgd = new SGD(layer, { learningRate: 1, momentum: 0.5, momentumDtype: "e4m3" });
    sgd.options = { learningRate: 1, momentum: 0.5, momentumDtype: "f16" };
    expect(() => sgd.step()).toThrow(/momentumDtype .*create another optimizer/);
    const groups = [{ parameters: "*", expAvgDtype: "bf16" }] as unknown as NonNullable<
      AdamWOptions["groups"]
    >;
    expect(() => new AdamW(layer, { learningRate: 1, groups })).toThrow(ArgumentError);
  });
});
