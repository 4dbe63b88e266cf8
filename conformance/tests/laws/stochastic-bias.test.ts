/**
 * The bias of stochastic rounding with 8 random bits: over all 256 bytes, the mean result is closer to zero than the element, by
 * less than 1/256 of the distance between the neighbouring codes (numerics.md, choice 6).
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { tensor } from "../../../src/ops/create.js";
import { MXFP4Quantizer, MXFP6Quantizer, MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../../src/quantizers/nvfp4.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { Scope } from "../../../src/tensor/scope.js";
import { share } from "../arbitraries/share.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();

const BYTES = 256;
const BLOCK = 32;

/** A quantizer by name, the largest value of a block whose scale is 1, and the step of the smallest codes. */
const FORMATS = {
  nvfp4: {
    make: (random: RandomState) => new NVFP4Quantizer({ stochastic: true, random }),
    top: 6,
    step: 0.5,
  },
  mxfp4: {
    make: (random: RandomState) => new MXFP4Quantizer({ stochastic: true, random }),
    top: 6,
    step: 0.5,
  },
  mxfp6: {
    make: (random: RandomState) => new MXFP6Quantizer({ stochastic: true, random }),
    top: 7.5,
    step: 0.125,
  },
  mxfp8: {
    make: (random: RandomState) => new MXFP8Quantizer({ stochastic: true, random }),
    top: 448,
    step: 2 ** -9,
  },
} as const;
type Name = keyof typeof FORMATS;
const NAMES = Object.keys(FORMATS) as Name[];

/** The result for `x` under each of the 256 bytes, in a block that starts with the largest value. */
function roundStochastically(name: Name, x: number): Float32Array {
  using _scope = new Scope();
  const { make, top } = FORMATS[name];
  const values = Float32Array.from({ length: BYTES * BLOCK }, (_, i) => (i % BLOCK === 0 ? top : x));
  const randomWords = Uint32Array.from(values, (_, i) => Math.floor(i / BLOCK) << 24);
  const randomBits = tensor(backend(), randomWords, [BYTES, BLOCK], "u32");
  const quantizedTensor = make(new RandomState(0n)).quantize(tensor(backend(), values, [BYTES, BLOCK]), {
    randomBits,
  });
  const roundedValues = quantizedTensor.dequantize("f32").dataSync() as Float32Array;
  return Float32Array.from({ length: BYTES }, (_, i) => roundedValues[i * BLOCK + 1] as number);
}

describe.each(NAMES)("%s", (name) => {
  const { step } = FORMATS[name];

  it("the mean over all random bytes is too small by less than 1/256 of a step, and never too large", () => {
    fc.assert(
      fc.property(share, fc.boolean(), (part, negative) => {
        const x = Math.fround((negative ? -2 : 2) * part * step);
        const mean = roundStochastically(name, x).reduce((sum, value) => sum + value / BYTES, 0);
        const distance = Math.abs(x) - Math.abs(mean);
        expect(distance).toBeGreaterThanOrEqual(0);
        expect(distance).toBeLessThan(step / BYTES);
      }),
      { numRuns: draws(30), examples: [[0.001 / 2 / step, false]] },
    );
  });

  it("less than 1/256 of a step above a code is always that code, and 1/256 is rounded up by one byte", () => {
    const smallestStep = step / BYTES;
    expect(new Set(roundStochastically(name, Math.fround(smallestStep * (1 - 2 ** -20))))).toEqual(
      new Set([0]),
    );
    const ups = roundStochastically(name, smallestStep).filter((value) => value !== 0);
    expect([...ups]).toEqual([step]);
  });
});

it("0.001 under a block maximum of 6 is always 0 in nvfp4, whatever the seed", () => {
  using _scope = new Scope();
  const values = Float32Array.from({ length: 512 * 16 }, (_, i) => (i % 16 === 0 ? 6 : 0.001));
  for (const seed of [0n, 1n, 2n ** 63n]) {
    const random = new RandomState(seed);
    const quantizedTensor = new NVFP4Quantizer({ stochastic: true, random }).quantize(
      tensor(backend(), values, [512, 16]),
    );
    expect(new Set(quantizedTensor.dequantize("f32").dataSync())).toEqual(new Set([6, 0]));
  }
});

it("32 random bits round it up as often as they should", () => {
  using _scope = new Scope();
  const values = Float32Array.from({ length: 32 }, (_, i) => (i % 16 === 0 ? 6 : 0.001));
  const threshold = Math.floor((1 - 0.001 / 0.5) * 2 ** 32);
  const randomWords = Uint32Array.from(values, (_, i) =>
    i < 16 ? threshold - 2 ** 10 : threshold + 2 ** 10,
  );
  const randomBits = tensor(backend(), randomWords, [2, 16], "u32");
  const quantizedTensor = new NVFP4Quantizer({ stochastic: true }).quantize(
    tensor(backend(), values, [2, 16]),
    {
      randomBits,
    },
  );
  const roundedValues = [...quantizedTensor.dequantize("f32").dataSync()];
  expect(roundedValues).toEqual([6, ...Array(15).fill(0), 6, ...Array(15).fill(0.5)]);
});
