/** A bf16 parameter and a remainder of 16 bits have all bits of an f32 master (numerics.md §9.7). */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError } from "../../../src/errors.js";
import { Parameter } from "../../../src/modules/parameter.js";
import { castTo } from "../../../src/ops/cast/cast.js";
import { tensor, zeros } from "../../../src/ops/create.js";
import { AdamW } from "../../../src/optimizers/adamw.js";
import { joinMaster, splitMaster } from "../../../src/optimizers/remainders.js";
import { SGD } from "../../../src/optimizers/sgd.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { words } from "../../arbitraries/random.js";
import { bitsOf, fromBits } from "../../oracle/core/rational.js";
import { divided, joined } from "../../oracle/training/stored-state.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();
const BF16_NAN = 0x7fff;

/** Divides the masters with these bits. Returns the bits of parameters, remainders and joined masters. */
function dividedBits(bits: Uint32Array, shape: readonly number[] = [bits.length]) {
  using _ = new Scope();
  const master = tensor(backend(), new Float32Array(bits.slice().buffer), shape);
  const parameter = zeros(backend(), "bf16", shape);
  const remainder = zeros(backend(), "u16", shape);
  splitMaster(master, parameter, remainder);
  const joint = joinMaster(parameter, remainder).dataSync() as Float32Array;
  return {
    parameters: parameter.dataSync() as Uint16Array,
    remainders: remainder.dataSync() as Uint16Array,
    masters: new Uint32Array(joint.slice().buffer),
  };
}

function expectDivided(bits: Uint32Array, shape?: readonly number[]): void {
  const { parameters, remainders, masters } = dividedBits(bits, shape);
  const mismatches = [...bits].filter((code, i) => {
    const value = fromBits(code);
    const [parameter, remainder] = [parameters[i], remainders[i]];
    if (Number.isNaN(value))
      return parameter !== BF16_NAN || remainder !== 0 || !Number.isNaN(fromBits(masters[i] as number));
    const expected = divided(value);
    return (
      parameter !== bitsOf(expected.parameter) >>> 16 ||
      remainder !== expected.remainder ||
      masters[i] !== code
    );
  });
  expect(mismatches.map((code) => code.toString(16))).toEqual([]);
}

describe("a parameter and a remainder", () => {
  it("have the bits of the master, for all upper halves and the lower halves next to a change", () => {
    for (const lower of [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff])
      expectDivided(
        Uint32Array.from({ length: 2 ** 16 }, (_, upperHalf) => ((upperHalf << 16) | lower) >>> 0),
      );
  });

  it("have the bits of any master, in any shape", () => {
    const shapes = fc.constantFrom<number[]>([], [1], [5], [3, 7], [0, 3], [2, 1, 33]);
    fc.assert(
      fc.property(shapes, fc.nat(), (shape, seed) => {
        expectDivided(
          Uint32Array.from(
            words(
              seed,
              shape.reduce((a, b) => a * b, 1),
            ),
          ),
          shape,
        );
      }),
      { numRuns: draws(100, 30) },
    );
  });

  it("round ties away from zero, and carry into the exponent and to infinity", () => {
    const neighborsOf = (bits: number): readonly number[] => {
      const { parameters, remainders } = dividedBits(Uint32Array.of(bits));
      return [parameters[0] as number, remainders[0] as number];
    };
    expect(neighborsOf(0x3f808000)).toEqual([0x3f81, 0x8000]);
    expect(neighborsOf(0xbf808000)).toEqual([0xbf81, 0x8000]);
    expect(neighborsOf(0x3fff8000)).toEqual([0x4000, 0x8000]);
    expect(neighborsOf(0x7f7fffff)).toEqual([0x7f80, 0xffff]);
    expect(joined(Number.POSITIVE_INFINITY, 0xffff)).toBe(fromBits(0x7f7fffff));
  });
});

describe("an optimizer with remainders", () => {
  const SIZE = 512;

  it("has the masters of one with f32 masters, in half their memory", () => {
    const half = (seed: number): Tensor<"bf16"> => {
      const values = Float32Array.from(words(seed, SIZE), (bits) => (bits - 2 ** 31) / 2 ** 31);
      return castTo(tensor(backend(), values), "bf16") as Tensor<"bf16">;
    };
    const kinds = fc.constantFrom(
      (parameter: Parameter, storeParamRemainders: boolean) =>
        new AdamW(new Map([["p", parameter]]), {
          learningRate: 0.01,
          weightDecay: 0.1,
          storeParamRemainders,
        }),
      (parameter: Parameter, storeParamRemainders: boolean) =>
        new SGD(new Map([["p", parameter]]), { learningRate: 0.1, momentum: 0.5, storeParamRemainders }),
    );
    fc.assert(
      fc.property(kinds, fc.nat(), fc.constantFrom(undefined, 0, 1), (make, seed, noop) => {
        using _ = new Scope();
        const bytes: number[] = [];
        const [withRemainders, withoutRemainders] = [true, false].map((stores) => {
          const parameter = new Parameter(half(seed));
          const liveBefore = backend().memoryUse().live;
          const optimizer = make(parameter, stores);
          bytes.push(backend().memoryUse().live - liveBefore);
          return { parameter, optimizer };
        }) as [
          { parameter: Parameter; optimizer: AdamW | SGD },
          { parameter: Parameter; optimizer: AdamW | SGD },
        ];
        expect((bytes[1] as number) - (bytes[0] as number)).toBe(2 * SIZE);
        for (let step = 0; step < 3; step++) {
          const grad = half(seed + step + 1);
          const flag = step === 1 && noop !== undefined ? tensor(backend(), [noop]) : undefined;
          for (const { parameter, optimizer } of [withRemainders, withoutRemainders]) {
            parameter.grad = grad;
            optimizer.step({ noop: flag });
            parameter.grad = undefined;
          }
          const { master } = withRemainders.optimizer.slots.get("p") ?? {};
          const joint = joinMaster(withRemainders.parameter.value as Tensor<"bf16">, master as Tensor<"u16">);
          expect(joint.dataSync()).toEqual(withoutRemainders.optimizer.slots.get("p")?.master.dataSync());
        }
        for (const { parameter, optimizer } of [withRemainders, withoutRemainders]) {
          optimizer.dispose();
          parameter.dispose();
        }
      }),
      { numRuns: draws(30, 8) },
    );
  });

  it("stores them for bf16 parameters only, and refuses masters of f16", () => {
    using _ = new Scope();
    const parameters = new Map(
      (["f32", "bf16", "f16"] as const).map((dtype) => [dtype, new Parameter(zeros(backend(), dtype, [4]))]),
    );
    using optimizer = new AdamW(parameters, { learningRate: 1, storeParamRemainders: true });
    expect([...optimizer.slots.values()].map(({ master }) => master.dtype)).toEqual(["f32", "u16", "f32"]);
    for (const parameter of parameters.values()) parameter.grad = zeros(backend(), parameter.dtype, [4]);
    optimizer.options = { learningRate: 1, storeParamRemainders: false };
    expect(() => optimizer.step()).toThrow(/storeParamRemainders is false and was true/);
    const options = { learningRate: 1, storeParamRemainders: true, masterWeightDtype: "f16" } as const;
    for (const Kind of [AdamW, SGD]) expect(() => new Kind(parameters, options)).toThrow(ArgumentError);
    expect(() => new SGD(parameters, options)).toThrow(/storeParamRemainders needs masters of f32/);
    for (const parameter of parameters.values()) {
      parameter.grad = undefined;
      parameter.dispose();
    }
  });
});
