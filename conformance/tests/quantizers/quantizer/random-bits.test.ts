/** Random bits of the caller: their rule, their relation to drawn bits, and refusals. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError, DTypeError, ShapeError } from "../../../../src/errors.js";
import { blockedRows, blockFormat } from "../../../../src/formats/block.js";
import { factsOf } from "../../../../src/formats/derive.js";
import { SCALAR_FORMATS } from "../../../../src/formats/scalar.js";
import { encode } from "../../../../src/ops/cast/cast.js";
import { zeros } from "../../../../src/ops/create.js";
import { MXFP4Quantizer, MXFP8Quantizer } from "../../../../src/quantizers/mx.js";
import { quantizerNamed } from "../../../../src/quantizers/named.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { QUANTIZERS, specsOf } from "../../../arbitraries/specs.js";
import { assertSameAnswer, lawNamed, over } from "../../../laws/laws.js";
import { encodeCase, encodeOperation } from "../../../operations/cast/encode.js";
import type { Answer } from "../../../operations/operation.js";
import { backendSubject, ORACLE } from "../../../operations/operations.js";
import { quantizeCaseBy, quantizeOperation, randomBitsFor } from "../../../operations/quantize/quantize.js";
import { random8, random16 } from "../../../oracle/core/philox.js";
import { fromCodes, upload } from "../../../values/plain.js";
import { derivedSeed, draws } from "../../harness/draws.js";
import { testInScope, useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 2 });
const BOTH = { rowwise: true, columnwise: true } as const;
const STOCHASTIC = QUANTIZERS.flatMap(specsOf).filter(({ stochastic }) => stochastic);

const wordsTensor = (values: readonly number[], shape = [values.length]): Tensor<"u32"> =>
  upload(backend(), fromCodes("u32", shape, values)) as Tensor<"u32">;

describe("random bits that the caller gives", () => {
  it("are what the oracle rounds by, for every quantizer that rounds stochastically", async () => {
    const cases = quantizeCaseBy(fc.constantFrom(...STOCHASTIC)).chain((input) =>
      fc.nat().map((seed) => ({ ...input, noop: undefined, ...randomBitsFor(input, input.x.matrix, seed) })),
    );
    const law = over({ quantize: cases }, lawNamed("quantize agrees with the reference"));
    const result = await law.check(backendSubject(backend()), ORACLE, {
      runs: draws(100),
      seed: derivedSeed(3),
    });
    expect(result).toEqual({ runs: draws(100), declined: [], failure: undefined });
  });

  it("of a quantizer are its 8 drawn bits above zeros, in the order of the codes", () => {
    fc.assert(
      fc.property(quantizeCaseBy(fc.constantFrom(...STOCHASTIC)), (input) => {
        using _scope = new Scope();
        const { spec, usage, random } = input;
        const [rows, columns] = input.x.matrix;
        const drawBits = (count: number, copy: 0 | 1) =>
          Array.from(
            { length: count },
            (_, i) => (random8(random.seed, random.offset, copy, BigInt(i)) << 24) >>> 0,
          );
        const generatedInput = {
          ...input,
          noop: undefined,
          randomBits: undefined,
          randomBitsColumnwise: undefined,
        };
        const suppliedInput = {
          ...generatedInput,
          random: { seed: 0n, offset: 0n },
          ...(usage.rowwise
            ? { randomBits: fromCodes("u32", [rows * columns], drawBits(rows * columns, 0)) }
            : {}),
          ...(usage.columnwise
            ? {
                randomBitsColumnwise: fromCodes(
                  "u32",
                  [blockedRows(spec, rows) * columns],
                  drawBits(blockedRows(spec, rows) * columns, 1),
                ),
              }
            : {}),
        };
        const [actual, expected] = [generatedInput, suppliedInput].map((quantizeInput) =>
          quantizeOperation.run(backend(), quantizeInput),
        );
        assertSameAnswer(actual as Answer, expected as Answer);
      }),
      { numRuns: draws(200), seed: derivedSeed(4) },
    );
  });

  it("of encode are the complement of its 16 drawn bits above zeros", () => {
    fc.assert(
      fc.property(encodeCase(), (input) => {
        using _scope = new Scope();
        const { seed, offset } = input.random;
        const bits = Array.from(
          { length: input.x.codes.length },
          (_, i) => ((0xffff - random16(seed, offset, 0, BigInt(i))) << 16) >>> 0,
        );
        const generatedInput = { ...input, rounding: "stochastic", randomBits: undefined } as const;
        const suppliedInput = { ...generatedInput, randomBits: fromCodes("u32", input.x.shape, bits) };
        const [generatedCodes, suppliedCodes] = [generatedInput, suppliedInput].map((encodeInput) =>
          encodeOperation.run(backend(), encodeInput),
        );
        assertSameAnswer(generatedCodes as Answer, suppliedCodes as Answer);
      }),
      { numRuns: draws(300), seed: derivedSeed(5) },
    );
  });

  testInScope(
    "round up where their sum with the fraction carries out of 32 bits, and not if it is 1 less",
    () => {
      // 1 + k/2^23 has the fraction k/2^16 in bf16; 2^-19 and 2^-31 are 2^-10 and 2^-22 of the smallest e4m3
      const values = [1 + 2 ** -23, 1 + 2 ** -8, 1 + 3 * 2 ** -9];
      const x = upload(backend(), fromCodes("f32", [3], new Uint32Array(Float32Array.from(values).buffer)));
      const codes = (format: string, bits: readonly number[]) => [
        ...encode(x, { format, rounding: "stochastic", randomBits: wordsTensor(bits) }).dataSync(),
      ];
      expect(codes("bf16", [0xffff0000, 0x80000000, 0x40000000])).toEqual([0x3f81, 0x3f81, 0x3f81]);
      expect(codes("bf16", [0xfffeffff, 0x7fffffff, 0x3fffffff])).toEqual([0x3f80, 0x3f80, 0x3f80]);
      const smallValues = upload(backend(), fromCodes("f32", [2], [0x36000000, 0x30000000]));
      const smallestBits = (bits: readonly number[]) => [
        ...encode(smallValues, {
          format: "e4m3",
          rounding: "stochastic",
          randomBits: wordsTensor(bits),
        }).dataSync(),
      ];
      expect(smallestBits([0xffc00000, 0xfffffc00])).toEqual([1, 1]);
      expect(smallestBits([0xffbfffff, 0xfffffbff])).toEqual([0, 0]);
    },
  );

  testInScope("leave the random state as it is", () => {
    const random = new RandomState(1n, 7n);
    const quantizer = new MXFP8Quantizer({ ...BOTH, stochastic: true, random });
    const x = zeros(backend(), "bf16", [32, 64]);
    const bits = { randomBits: wordsTensor([], [0]), randomBitsColumnwise: wordsTensor([], [0]) };
    const zeroBits = zeros(backend(), "u32", [32, 64]);
    const quantizedTensor = quantizer.quantize(x, { randomBits: zeroBits, randomBitsColumnwise: zeroBits });
    expect(random.offset).toBe(7n);
    quantizer.updateQuantized(x, quantizedTensor, { randomBits: zeroBits, randomBitsColumnwise: zeroBits });
    expect(random.offset).toBe(7n);
    expect(() => quantizer.quantize(x, bits)).toThrow(ShapeError);
    quantizer.quantize(x);
    expect(random.offset).toBe(8n);
    for (const usage of [
      { rowwise: true, columnwise: false },
      { rowwise: false, columnwise: true },
    ]) {
      quantizer
        .setUsage(usage)
        .quantize(x, usage.rowwise ? { randomBits: zeroBits } : { randomBitsColumnwise: zeroBits });
      expect(random.offset).toBe(8n);
    }
  });

  testInScope("are refused where nothing rounds by them, of another copy, size or type", () => {
    const x = zeros(backend(), "bf16", [5, 32]);
    const rowwise = zeros(backend(), "u32", [5, 32]);
    const columnwise = zeros(backend(), "u32", [32, 32]);
    const stochastic = new MXFP4Quantizer({ ...BOTH, stochastic: true });
    stochastic.quantize(x, { randomBits: rowwise, randomBitsColumnwise: columnwise });
    const expectRefusal = (
      call: () => unknown,
      type: typeof ArgumentError | typeof ShapeError,
      text: RegExp,
    ) => {
      expect(call).toThrow(type);
      expect(call).toThrow(text);
    };
    expectRefusal(
      () => new MXFP4Quantizer().quantize(x, { randomBits: rowwise }),
      ArgumentError,
      /rounds to nearest/,
    );
    expectRefusal(
      () => stochastic.quantize(x, { randomBits: rowwise }),
      ArgumentError,
      /randomBitsColumnwise are missing, and a columnwise copy is made/,
    );
    expectRefusal(
      () =>
        new MXFP4Quantizer({ stochastic: true }).quantize(x, {
          randomBits: rowwise,
          randomBitsColumnwise: columnwise,
        }),
      ArgumentError,
      /randomBitsColumnwise are given, and no columnwise copy is made/,
    );
    expectRefusal(
      () => stochastic.quantize(x, { randomBits: rowwise, randomBitsColumnwise: rowwise }),
      ShapeError,
      /the columnwise copy has 1024 elements/,
    );
    expectRefusal(
      () => encode(x, { format: "e4m3", randomBits: rowwise }),
      ArgumentError,
      /the rounding is tiesToEven/,
    );
    expect(() =>
      stochastic.quantize(x, { randomBits: x as never, randomBitsColumnwise: columnwise }),
    ).toThrow(DTypeError);
  });
});

describe("stochastic rounding of MX formats", () => {
  it("is among the specs that are drawn, of each format and tile, by each rule", () => {
    for (const name of ["mxfp8", "mxfp6", "mxfp4"] as const) {
      const { elements, tiles, rules } = blockFormat(name);
      const names = STOCHASTIC.filter(
        ({ quantizer, elementScaling }) => quantizer === name && elementScaling === "multiply",
      );
      expect(names).toHaveLength(elements.length * tiles.length * rules.length);
    }
  });

  it("goes with every tile, format and rule, except scalings that decide ties", () => {
    for (const name of ["mxfp8", "mxfp6", "mxfp4"] as const) {
      expect(quantizerNamed(name, { stochastic: true }).spec.stochastic).toBe(true);
    }
    expect(() => quantizerNamed("mxfp4", { stochastic: true, elementScaling: "multiplyHalfDown" })).toThrow(
      /multiplyHalfDown defines the rounding of ties/,
    );
  });

  it("rounds a block up as often as its 8 random bits say, within five standard errors", () => {
    using _scope = new Scope();
    const [rows, columns] = [64, 2048];
    const share = 51 / 256;
    for (const [name, format] of [
      ["mxfp8", "e4m3"],
      ["mxfp8", "e5m2"],
      ["mxfp6", "e2m3"],
      ["mxfp6", "e3m2"],
      ["mxfp4", "e2m1"],
    ] as const) {
      const { max } = factsOf(format);
      const { mantissaBits } = SCALAR_FORMATS[format];
      // the first element of each block sets the scale to 1; the others lie between 1 and the next value
      const value = 1 + share * 2 ** -mantissaBits;
      const values = Float32Array.from({ length: rows * columns }, (_, i) => (i % 32 === 0 ? max : value));
      const x = upload(backend(), fromCodes("f32", [rows, columns], new Uint32Array(values.buffer)));
      const quantizedTensor = quantizerNamed(name, {
        format,
        stochastic: true,
        random: new RandomState(11n),
      }).quantize(x);
      const decodedValues = quantizedTensor.dequantize("f32").dataSync();
      const ups = decodedValues.filter((element, i) => i % 32 !== 0 && element > value).length;
      const count = (rows * columns * 31) / 32;
      const error = Math.sqrt(share * (1 - share) * count);
      expect(Math.abs(ups - share * count)).toBeLessThan(5 * error);
      expect(
        decodedValues.every(
          (element, i) => i % 32 === 0 || element === 1 || element === 1 + 2 ** -mantissaBits,
        ),
      ).toBe(true);
    }
  });
});
