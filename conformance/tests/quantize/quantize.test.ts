/** quantize: its laws, shapes, inputs other than the source, threads and refusals. */
import { describe, expect } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import type { ScalarFormat } from "../../../src/formats/scalar.js";
import { decode, encode } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { Float8CurrentScalingQuantizer, Float8Quantizer } from "../../../src/quantizers/float8.js";
import { Float8BlockQuantizer } from "../../../src/quantizers/float8-block.js";
import { MXFP4Quantizer, MXFP6Quantizer, MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../../src/quantizers/nvfp4.js";
import type { Quantizer, QuantizerOptions } from "../../../src/quantizers/quantizer.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { DIRECTIONS } from "../../../src/tensor/quantized.js";
import type { Shape } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { words } from "../../arbitraries/random.js";
import { assertSameAnswer } from "../../laws/laws.js";
import { downloadQuantized } from "../../operations/quantize/quantized.js";
import { fromCodes, unpack, upload } from "../../values/plain.js";
import { derivedSeed } from "../harness/draws.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();
const otherBackend = useBackend();
const threads = useThreads();
const BOTH = { rowwise: true, columnwise: true } as const;
const oneElement = (value: number, tensorBackend = backend()): Tensor<"f32"> =>
  tensor(tensorBackend, [value]);

/** Elements of all magnitudes from 2^-15 to 2^16. */
function source(tensorBackend: Backend, shape: Shape, seed = 1): Tensor<"bf16"> {
  const count = shape.reduce((product, size) => product * size, 1);
  const codes = words(seed, count).map(
    (bits) => (bits & 0x80ff) | (((112 + ((bits >>> 16) & 31)) << 7) & 0x7f80),
  );
  return upload(tensorBackend, fromCodes("bf16", shape, codes));
}

/** Every quantizer, named after its special property. */
const QUANTIZERS: Readonly<Record<string, (options: QuantizerOptions, tensorBackend: Backend) => Quantizer>> =
  {
    "fp8-delayed": (options, tensorBackend) =>
      new Float8Quantizer({ ...options, scale: oneElement(0.5, tensorBackend) }),
    "fp8-current": (options) => new Float8CurrentScalingQuantizer({ ...options, format: "e5m2" }),
    "fp8-block 1x128": (options) => new Float8BlockQuantizer(options),
    "fp8-block 1x128 compact": (options) => new Float8BlockQuantizer({ ...options, dataLayout: "COMPACT" }),
    "fp8-block 128x128": (options) => new Float8BlockQuantizer({ ...options, tile: "128x128" }),
    mxfp8: (options) => new MXFP8Quantizer(options),
    "mxfp8 32x32": (options) => new MXFP8Quantizer({ ...options, tile: "32x32" }),
    mxfp6: (options) => new MXFP6Quantizer(options),
    mxfp4: (options) => new MXFP4Quantizer(options),
    nvfp4: (options) => new NVFP4Quantizer(options),
    "nvfp4 transformed, stochastic": (options) =>
      new NVFP4Quantizer({ ...options, rht: true, stochastic: true, random: new RandomState(7n) }),
    "nvfp4 16x16, 4over6": (options) => new NVFP4Quantizer({ ...options, tile: "16x16", fourOverSix: "mse" }),
  };
const NAMES = Object.keys(QUANTIZERS);
const make = (name: string, options: QuantizerOptions = BOTH, tensorBackend = backend()): Quantizer =>
  (QUANTIZERS[name] as (typeof QUANTIZERS)[string])(options, tensorBackend);

describeLaws(backend, ["quantize"], { runs: 200, seed: derivedSeed(12) });

describe("results do not depend on the number of threads", () => {
  for (const name of NAMES) {
    testEqualBits(name, threads, (backend) =>
      downloadQuantized(make(name, BOTH, backend).quantize(source(backend, [640, 704]))),
    );
  }
});

describe("shapes", () => {
  for (const name of NAMES) {
    testInScope(`${name}: leading dimensions count as rows`, () => {
      const flat = source(backend(), [64, 32]);
      const expected = downloadQuantized(make(name).quantize(flat));
      for (const shape of [
        [2, 32, 32],
        [4, 1, 16, 32],
      ]) {
        const quantizedTensor = make(name).quantize(flat.reshape(shape));
        expect(quantizedTensor).toMatchObject({ shape, dtype: "bf16" });
        assertSameAnswer(downloadQuantized(quantizedTensor), expected);
      }
    });

    testInScope(`${name}: without elements there are no codes, and both copies still exist`, () => {
      for (const shape of [
        [0, 32],
        [32, 0],
        [2, 0, 32],
      ]) {
        const quantizedTensor = make(name).quantize(source(backend(), shape));
        expect(quantizedTensor.usage).toEqual(BOTH);
        expect([
          quantizedTensor.copy("rowwise").data.byteLength,
          quantizedTensor.copy("columnwise").data.byteLength,
        ]).toEqual([0, 0]);
        expect(quantizedTensor.dequantize()).toMatchObject({ shape, dtype: "bf16" });
      }
    });

    testInScope(`${name}: makeEmpty gives a tensor that quantize_ can fill`, () => {
      const x = source(backend(), [64, 32]);
      const emptyQuantized = make(name).makeEmpty(backend(), [64, 32]);
      make(name).updateQuantized(x, emptyQuantized);
      assertSameAnswer(downloadQuantized(emptyQuantized), downloadQuantized(make(name).quantize(x)));
    });
  }

  testInScope("one dimension is one row", () => {
    const quantizedTensor = new Float8BlockQuantizer(BOTH).quantize(source(backend(), [130]));
    expect(quantizedTensor.copy("rowwise").scaleInv.shape).toEqual([1, 2]);
    expect(quantizedTensor.copy("columnwise").data.shape).toEqual([130, 1]);
    expect(quantizedTensor.copy("columnwise").scaleInv.shape).toEqual([130, 1]);
    const fp4 = new NVFP4Quantizer(BOTH).quantize(source(backend(), [32]));
    expect(fp4.copy("rowwise").data.shape).toEqual([1, 32]);
    expect(fp4.copy("rowwise").scaleInv.shape).toEqual([1, 2]);
    expect(fp4.copy("columnwise").data.shape).toEqual([32, 16]);
    expect(fp4.copy("columnwise").scaleInv.shape).toEqual([32, 1]);
  });

  for (const [name, multiple] of [
    ["mxfp8", 32],
    ["mxfp6", 32],
    ["mxfp4", 32],
    ["nvfp4", 16],
  ] as const) {
    testInScope(
      `${name}: columns that are no multiple of ${multiple} are refused, with the size to pad to`,
      () => {
        for (const usage of [BOTH, { rowwise: true }, { rowwise: false, columnwise: true }]) {
          for (const rows of [1, multiple]) {
            const quantize = () => make(name, usage).quantize(source(backend(), [rows, multiple + 1]));
            expect(quantize).toThrow(ShapeError);
            expect(quantize).toThrow(
              `last dimension ${multiple + 1} is not a multiple of the block width ${multiple}, as ${name} needs; pad to ${2 * multiple}`,
            );
          }
        }
      },
    );
  }
});

describe("fp8 per tensor", () => {
  testInScope("delayed scaling uses the given scale and stores its reciprocal", () => {
    const quantizedTensor = new Float8Quantizer({ scale: oneElement(4) }).quantize(
      tensor(backend(), [1, -0, 1000], [3]),
    );
    expect(quantizedTensor.copy("rowwise").data.dataSync()).toEqual(Uint8Array.of(0x48, 0x80, 0x7e));
    expect(quantizedTensor.copy("rowwise").scaleInv.dataSync()).toEqual(Float32Array.of(0.25));
  });

  testInScope("delayed scaling raises the amax record, never lowers it, and ignores NaN", () => {
    const amax = oneElement(2);
    const quantizer = new Float8Quantizer({ scale: oneElement(1), amax });
    const record = (...values: number[]): number | undefined => {
      quantizer.quantize(tensor(backend(), values));
      return amax.dataSync()[0];
    };
    expect(record(1, -1.5)).toBe(2);
    expect(record(-3, 1)).toBe(3);
    expect(record(Number.NaN, 2)).toBe(3);
    expect(record(-Infinity)).toBe(Infinity);
  });

  testInScope("a given amax replaces the tensor's own", () => {
    const x = tensor(backend(), [1, 2]);
    const { scaleInv, data } = new Float8CurrentScalingQuantizer({ amax: oneElement(448) })
      .quantize(x)
      .copy("rowwise");
    expect(scaleInv.dataSync()).toEqual(Float32Array.of(1));
    expect(decode(data).dataSync()).toEqual(Float32Array.of(1, 2));
  });

  testInScope("an amax of zero, infinity or NaN scales by one", () => {
    for (const amax of [0, Infinity, Number.NaN]) {
      const quantizedTensor = new Float8CurrentScalingQuantizer({ amax: oneElement(amax) }).quantize(
        tensor(backend(), [1]),
      );
      expect(quantizedTensor.copy("rowwise").scaleInv.dataSync()).toEqual(Float32Array.of(1));
    }
  });

  testInScope("amaxEpsilon is a lower bound of the amax, not of anything larger", () => {
    const scaleOf = (value: number): number | undefined =>
      new Float8CurrentScalingQuantizer({ amaxEpsilon: 448 * 2 ** -10 })
        .quantize(tensor(backend(), [value]))
        .copy("rowwise")
        .scaleInv.dataSync()[0];
    expect(scaleOf(2 ** -20)).toBe(2 ** -10);
    expect(scaleOf(0)).toBe(2 ** -10);
    expect(scaleOf(448)).toBe(1);
  });

  for (const format of ["e4m3", "e5m2"] as const satisfies ScalarFormat[]) {
    testInScope(`power-of-two scales are the largest power not above the scale, ${format}`, () => {
      const scaleInv = (pow2Scales: boolean): number =>
        new Float8CurrentScalingQuantizer({ format, pow2Scales })
          .quantize(tensor(backend(), [3]))
          .copy("rowwise")
          .scaleInv.dataSync()[0] as number;
      const exponent = Math.log2(scaleInv(true));
      expect(exponent).toBe(Math.ceil(Math.log2(scaleInv(false))));
    });
  }
});

describe("fp8 per block", () => {
  testInScope(
    "COMPACT stores columnwise data untransposed, GEMM_READY transposed; the codes are the same",
    () => {
      const x = source(backend(), [200, 140]);
      const columnwise = (dataLayout: "COMPACT" | "GEMM_READY") =>
        new Float8BlockQuantizer({ ...BOTH, dataLayout }).quantize(x).copy("columnwise");
      const [compact, ready] = [columnwise("COMPACT"), columnwise("GEMM_READY")];
      expect([compact.data.shape, compact.scaleInv.shape]).toEqual([
        [200, 140],
        [2, 140],
      ]);
      expect([ready.data.shape, ready.scaleInv.shape]).toEqual([
        [140, 200],
        [140, 2],
      ]);
      const [compactCodes, readyCodes] = [compact.data.dataSync(), ready.data.dataSync()];
      compactCodes.forEach((code, i) => {
        if (code !== readyCodes[(i % 140) * 200 + Math.floor(i / 140)])
          throw new Error(`element ${i} differs`);
      });
    },
  );

  testInScope("scales are powers of two by default", () => {
    const scaleOf = (pow2Scales?: boolean) =>
      new Float8BlockQuantizer(pow2Scales === undefined ? {} : { pow2Scales })
        .quantize(tensor(backend(), [3]))
        .copy("rowwise")
        .scaleInv.dataSync();
    expect(scaleOf()).toEqual(Float32Array.of(2 ** -7));
    expect(scaleOf(true)).toEqual(scaleOf());
    expect(scaleOf(false)).not.toEqual(scaleOf());
  });
});

describe("nvfp4", () => {
  testInScope(
    "each stochastic quantization takes the next offset of its random state, and no other does",
    () => {
      const random = new RandomState(5n, 40n);
      const x = source(backend(), [16, 64]);
      const draw = (offset?: bigint) =>
        new NVFP4Quantizer({
          stochastic: true,
          random: offset === undefined ? random : new RandomState(5n, offset),
        })
          .quantize(x)
          .copy("rowwise")
          .data.dataSync();
      const [firstDraw, secondDraw] = [draw(), draw()];
      expect(random.offset).toBe(42n);
      expect(firstDraw).not.toEqual(secondDraw);
      expect([firstDraw, secondDraw]).toEqual([draw(40n), draw(41n)]);
      new NVFP4Quantizer({ random }).quantize(x);
      expect(random.offset).toBe(42n);
    },
  );

  testInScope(
    "stochastic rounding rounds each position of a block up with the probability that its 8 random bits give, within five standard errors",
    () => {
      const size = 256;
      // 2.3 lies 0.3 of the way from 2 (code 4) to 3 (code 5), so it is rounded up for floor(0.3 * 256) = 76 of the 256
      // random bytes; every block of either copy contains a 6, the tensor's amax, so elements are multiplied by 1
      const values = Float32Array.from({ length: size * size }, (_, i) =>
        (Math.floor(i / size) + i) % 16 === 0 ? 6 : 2.3,
      );
      const quantizedTensor = new NVFP4Quantizer({
        ...BOTH,
        stochastic: true,
        random: new RandomState(11n),
      }).quantize(tensor(backend(), values, [size, size]));
      const deviation = 5 * Math.sqrt((size * size * (15 / 16) * (76 / 256) * (180 / 256)) / 16);
      for (const usage of DIRECTIONS) {
        const codes = unpack(quantizedTensor.copy(usage).data.dataSync() as Uint8Array);
        expect(new Set(codes)).toEqual(new Set([4, 5, 7]));
        for (let position = 0; position < 16; position++) {
          const positionCodes = codes.filter((code, i) => i % 16 === position && code !== 7);
          const upCount = positionCodes.filter((code) => code === 5).length;
          expect(positionCodes.length).toBe((size * size * 15) / 256);
          expect(Math.abs(upCount - positionCodes.length * (76 / 256)), `${usage} ${position}`).toBeLessThan(
            deviation,
          );
        }
      }
    },
  );

  testInScope("given amaxes replace both copies' own", () => {
    const x = source(backend(), [16, 16]);
    const quantizedTensor = new NVFP4Quantizer({
      ...BOTH,
      amax: oneElement(2 ** 20),
      amaxColumnwise: oneElement(2 ** 21),
    }).quantize(x);
    expect(quantizedTensor.copy("rowwise").amax?.dataSync()).toEqual(Float32Array.of(2 ** 20));
    expect(quantizedTensor.copy("columnwise").amax?.dataSync()).toEqual(Float32Array.of(2 ** 21));
  });

  testInScope("the amax of a transformed copy is that of the transformed values", () => {
    const onesArray = new Float32Array(16 * 16).fill(1);
    const x = encode(tensor(backend(), onesArray, [16, 16]), { format: "bf16" });
    const quantizedTensor = new NVFP4Quantizer({ ...BOTH, rht: true, randomSigns: false }).quantize(x);
    expect(quantizedTensor.copy("rowwise").amax?.dataSync()).toEqual(Float32Array.of(1));
    expect(quantizedTensor.copy("columnwise").amax?.dataSync()).toEqual(Float32Array.of(4));
  });

  testInScope(
    "a transform of anything but bf16 is refused, if there is a columnwise copy to transform",
    () => {
      const x = tensor(backend(), new Float32Array(256), [16, 16]);
      expect(() => new NVFP4Quantizer({ ...BOTH, rht: true }).quantize(x)).toThrow(ArgumentError);
      expect(() => new NVFP4Quantizer({ ...BOTH, rht: true }).quantize(x)).toThrow(
        /bf16 input; x is f32; cast/,
      );
      expect(new NVFP4Quantizer({ rht: true }).quantize(x).usage).toEqual({
        rowwise: true,
        columnwise: false,
      });
    },
  );

  for (const [description, options] of [
    ["4over6 with the transform", { fourOverSix: "mse", rht: true }],
    ["4over6 with stochastic rounding", { fourOverSix: "mae", stochastic: true }],
    ["the transform of square tiles", { rht: true, tile: "16x16" }],
    ["a block scale of at most 256 without 4over6", { e4m3Max: 256 }],
  ] as const) {
    testInScope(`${description} is refused`, () =>
      expect(() => new NVFP4Quantizer(options)).toThrow(ArgumentError),
    );
  }
});

describe("a tensor or option that quantize does not support is refused", () => {
  testInScope("with neither rowwise nor columnwise usage", () => {
    const quantize = () => new MXFP8Quantizer({ rowwise: false }).quantize(source(backend(), [32, 32]));
    expect(quantize).toThrow(ArgumentError);
    expect(quantize).toThrow(/neither rowwise nor columnwise/);
  });

  testInScope("a swizzled layout of f32 scales", () => {
    for (const name of ["fp8-current", "fp8-block 1x128", "fp8-block 128x128"]) {
      const quantize = () => make(name, { scaleLayout: "swizzled" }).quantize(source(backend(), [32, 32]));
      expect(quantize).toThrow(ArgumentError);
      expect(quantize).toThrow(/no swizzled layout.*logical or padded/);
    }
  });

  testInScope("codes", () => {
    const x = encode(source(backend(), [32, 32]), { format: "e4m3" });
    expect(() => make("mxfp8").quantize(x)).toThrow(DTypeError);
  });

  testInScope(
    "element formats and tiles that the quantizer does not have, and a negative amaxEpsilon",
    () => {
      const makeWith = (fields: object) => () => new Float8BlockQuantizer(fields);
      expect(makeWith({ format: "e2m1" })).toThrow(/format e2m1 is not one of e4m3, e5m2/);
      expect(makeWith({ format: "e9m9" })).toThrow(ArgumentError);
      expect(makeWith({ tile: "1x32" })).toThrow(/tile 1x32 is not one of 1x128, 128x128/);
      for (const amaxEpsilon of [-1, Number.NaN]) expect(makeWith({ amaxEpsilon })).toThrow(ArgumentError);
    },
  );

  testInScope("scales, amaxes and flags that are not one f32", () => {
    const x = source(backend(), [2]);
    expect(() => new Float8Quantizer({ scale: tensor(backend(), [1, 2]) }).quantize(x)).toThrow(ShapeError);
    expect(() => new Float8Quantizer({ scale: tensor(backend(), [], [0]) }).quantize(x)).toThrow(
      /scale is \[0\]/,
    );
    const integer = tensor(backend(), Uint32Array.of(1), [1], "u32") as Tensor as Tensor<"f32">;
    expect(() => new Float8Quantizer({ scale: oneElement(1), amax: integer }).quantize(x)).toThrow(
      DTypeError,
    );
  });

  testInScope("tensors of another backend", () => {
    const x = source(backend(), [32, 32]);
    const foreign = oneElement(1, otherBackend());
    const quantizer = new Float8CurrentScalingQuantizer();
    expect(() => new Float8Quantizer({ scale: foreign }).quantize(x)).toThrow(ArgumentError);
    expect(() => new Float8Quantizer({ scale: foreign }).quantize(x)).toThrow(/different backends.*data\(\)/);
    expect(() => new Float8CurrentScalingQuantizer({ amax: foreign }).quantize(x)).toThrow(ArgumentError);
    const target = quantizer.makeEmpty(otherBackend(), [32, 32]);
    expect(() => quantizer.updateQuantized(x, target)).toThrow(ArgumentError);
    const emptyTensor = quantizer.makeEmpty(backend(), [32, 32]);
    expect(() => quantizer.updateQuantized(x, emptyTensor, { noop: foreign })).toThrow(ArgumentError);
  });
});
