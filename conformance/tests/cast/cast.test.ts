/** encode, decode and amax: their laws, and the documented behaviour of their interfaces. */
import fc from "fast-check";
import { describe, expect } from "vitest";
import { ArgumentError, DisposedError, DTypeError, ShapeError } from "../../../src/errors.js";
import { factsOf, SCALAR_FORMAT_NAMES } from "../../../src/formats/derive.js";
import { castTo, decode, encode, OVERFLOWS, ROUNDINGS } from "../../../src/ops/cast/cast.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { execute } from "../../../src/ops/execute.js";
import { Scope } from "../../../src/tensor/scope.js";
import { WIDE_DTYPES } from "../../../src/tensor/shape.js";
import { words } from "../../arbitraries/random.js";
import { random16 } from "../../oracle/core/philox.js";
import * as oracle from "../../oracle/core/scalar.js";
import { download, fromCodes, upload } from "../../values/plain.js";
import { layoutOf } from "../../values/values.js";
import { derivedSeed, draws } from "../harness/draws.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();
const threads = useThreads();
/** Enough elements that three threads take part. The number is not a multiple of their shares. */
const LONG = 3 * 2 ** 17 + 70;

describeLaws(backend, ["encode", "decode", "amax"], { runs: 400, seed: derivedSeed(11) });

describe("stochastic rounding draws by an element's index", () => {
  /** more than 2^16 draws of eight elements; the number is not a multiple of any block */
  const count = 2 ** 19 + 77;
  const windows = [0, 2 ** 16 - 40, 2 ** 18 + 3, 2 ** 19 - 40, count - 60];

  for (const format of ["e4m3", "bf16"] as const) {
    testInScope(`of a long tensor: ${format}`, () => {
      const x = fromCodes(
        "f32",
        [count],
        words(3, count).map((word) => (word & 0x807fffff) | 0x3f800000),
      );
      const random = { seed: 0x1234_5678_9abc_def0n, offset: 2n ** 40n + 1n };
      const options = { format, rounding: "stochastic", overflow: "saturate", ...random } as const;
      const { codes } = download(encode(upload(backend(), x), options));
      for (const firstPattern of windows)
        for (let i = firstPattern; i < firstPattern + 60; i++) {
          const word = random16(random.seed, random.offset, 0, BigInt(i));
          const pattern = x.codes[i] as number;
          const code = oracle.encode(pattern, layoutOf(format), "stochastic", "saturate", word);
          expect([i, codes[i]]).toEqual([i, code]);
        }
    });
  }
});

describe("results do not depend on the number of threads", () => {
  const bits = fromCodes("f32", [LONG], words(1, LONG));
  for (const format of ["e4m3", "e2m1", "bf16", "tf32"]) {
    for (const rounding of ROUNDINGS) {
      testEqualBits(`encode to ${format}, ${rounding}`, threads, (testBackend) => ({
        codes: download(encode(upload(testBackend, bits), { format, rounding, seed: 5n, offset: 9n })),
      }));
    }
  }

  testEqualBits("decode", threads, (testBackend) => ({
    values: download(decode(upload(testBackend, fromCodes("e4m3", [LONG], bits.codes)), { dtype: "bf16" })),
  }));

  testInScope("amax, the largest element last", () => {
    const values = new Float32Array(LONG).fill(-1);
    values[LONG - 1] = -3;
    for (const thread of threads()) {
      const out = empty(thread, "f32", [1]);
      execute(thread, "amax", { x: tensor(thread, values, [LONG], "f32"), out });
      expect(out.dataSync()).toEqual(Float32Array.of(3));
    }
  });
});

describe("stochastic rounding", () => {
  const halfway = new Float32Array(4096).fill(1.0625);
  const draw = (options: { seed?: bigint; offset?: bigint }) =>
    download(encode(tensor(backend(), halfway), { format: "e4m3", rounding: "stochastic", ...options }))
      .codes;

  testInScope("uses the same random words for the same seed and offset", () => {
    expect(draw({ seed: 3n, offset: 4n })).toEqual(draw({ seed: 3n, offset: 4n }));
  });

  testInScope("uses other random words for another seed, and for another offset", () => {
    const firstBits = draw({ seed: 3n, offset: 4n });
    expect(draw({ seed: 4n, offset: 4n })).not.toEqual(firstBits);
    expect(draw({ seed: 3n, offset: 5n })).not.toEqual(firstBits);
    expect(draw({ seed: 3n + 2n ** 32n, offset: 4n })).not.toEqual(firstBits);
    expect(draw({ seed: 3n, offset: 4n + 2n ** 32n })).not.toEqual(firstBits);
  });

  testInScope("rounds a value halfway between two up in about half of the cases", () => {
    const ups = draw({ seed: 3n }).filter((code) => code === 0x39).length;
    expect(Math.abs(ups - 2048)).toBeLessThan(5 * 32);
  });

  testInScope("does not depend on the shape, only on the element's index", () => {
    const x = fromCodes("f32", [4096], words(6, 4096));
    const options = { format: "e5m2", rounding: "stochastic", seed: 1n } as const;
    const uploadedTensor = upload(backend(), x);
    expect(encode(uploadedTensor.reshape([4, 16, 64]), options).dataSync()).toEqual(
      encode(uploadedTensor, options).dataSync(),
    );
  });
});

describe("shapes and types", () => {
  for (const format of SCALAR_FORMAT_NAMES) {
    testInScope(
      `${format}: a tensor of that type, of the same shape, whatever the leading dimensions`,
      () => {
        for (const shape of [[], [2], [3, 2], [1, 3, 2], [0, 2], [2, 0]]) {
          if (factsOf(format).storageBits === 4 && shape.length === 0) continue;
          const codes = encode(empty(backend(), "f32", shape), { format });
          expect(codes).toMatchObject({ dtype: format, shape });
          expect(decode(codes)).toMatchObject({ dtype: "f32", shape });
        }
      },
    );
  }

  testInScope("a layout without a name gives untyped codes, 4-bit ones two a byte", () => {
    const x = tensor(backend(), [1, -2], [2]);
    const layout = { exponentBits: 2, mantissaBits: 1, bias: 1, signed: true, subnormals: true } as const;
    const codes = encode(x, { format: { ...layout, specials: "finite" } });
    expect(codes).toMatchObject({ dtype: "u8", shape: [1] });
    expect(codes.dataSync()).toEqual(Uint8Array.of(0xc2));
    expect(decode(codes, { format: { ...layout, specials: "finite" } }).dataSync()).toEqual(
      Float32Array.of(1, -2),
    );
    const wideLayout = { ...layout, exponentBits: 5, bias: 15, specials: "ieee" } as const;
    expect(encode(x, { format: { ...wideLayout, mantissaBits: 4 } })).toMatchObject({
      dtype: "u16",
      shape: [2],
    });
  });

  testInScope("the names of torch, ml_dtypes and safetensors are accepted, in upper or lower case", () => {
    const x = tensor(backend(), [448]);
    for (const format of ["float8_e4m3fn", "torch.float8_e4m3fn", "F8_E4M3", "E4M3"])
      expect(encode(x, { format })).toMatchObject({ dtype: "e4m3" });
  });

  testInScope("the scale is one f32 multiplication before the rounding", () => {
    const codes = encode(tensor(backend(), [1 + 2 ** -23]), { format: "tf32", scale: 1 - 2 ** -24 });
    expect(decode(codes).dataSync()).toEqual(Float32Array.of(1));
  });
});

describe("castTo", () => {
  const types = fc.constantFrom(...WIDE_DTYPES);
  testInScope("is x itself in its own type, else the encoding of its values, whatever the two types", () => {
    fc.assert(
      fc.property(
        types,
        types,
        fc.array(fc.float({ noNaN: true }), { maxLength: 9 }),
        (from, targetType, values) => {
          using _scope = new Scope();
          const wideTensor = tensor(backend(), Float32Array.from(values));
          const x = castTo(wideTensor, from);
          const cast = castTo(x, targetType);
          expect([cast.dtype, ...cast.shape]).toEqual([targetType, values.length]);
          if (from === targetType) expect(cast).toBe(x);
          const exact = from === "f32" ? x : decode(x, { format: from });
          const expected =
            targetType === "f32" ? exact : encode(exact, { format: targetType, overflow: "nonfinite" });
          expect(cast.dataSync()).toEqual(expected.dataSync());
        },
      ),
      { numRuns: draws(100) },
    );
  });
});

describe("tensors that cannot be encoded are refused", () => {
  const x = () => tensor(backend(), [1, 2, 3], [3]);

  testInScope("an unknown format, with a list of the valid names", () => {
    expect(() => encode(x(), { format: "e9m9" })).toThrow(ArgumentError);
    expect(() => encode(x(), { format: "e9m9" })).toThrow(/"e9m9".*e4m3, e5m2/);
  });

  testInScope("an unknown rounding or overflow, with a list of the valid ones", () => {
    const encodeWith = (fields: object) => () => encode(x(), { format: "e4m3", ...fields });
    expect(encodeWith({ rounding: "nearest" })).toThrow(ArgumentError);
    expect(encodeWith({ rounding: "nearest" })).toThrow(ROUNDINGS.join(", "));
    expect(encodeWith({ overflow: "wrap" })).toThrow(ArgumentError);
    expect(encodeWith({ overflow: "wrap" })).toThrow(OVERFLOWS.join(", "));
  });

  testInScope("a seed or offset that is not an unsigned 64-bit integer", () => {
    expect(() => encode(x(), { format: "e4m3", seed: -1n })).toThrow(ArgumentError);
    expect(() => encode(x(), { format: "e4m3", offset: 2n ** 64n })).toThrow(ArgumentError);
  });

  testInScope("a row of odd length in FP4", () => {
    expect(() => encode(x(), { format: "e2m1" })).toThrow(ShapeError);
    expect(() => encode(x(), { format: "e2m1" })).toThrow(/\[3\].*odd.*pad/);
  });

  testInScope("codes: encode accepts f32, bf16 and f16 values only", () => {
    const codes = encode(x(), { format: "e4m3" });
    expect(() => encode(codes, { format: "e5m2" })).toThrow(DTypeError);
    expect(() => encode(codes, { format: "e5m2" })).toThrow(/e4m3.*f32, bf16 or f16.*decode/);
  });

  testInScope("decoding by a format of another width", () => {
    expect(() => decode(encode(x(), { format: "e4m3" }), { format: "bf16" })).toThrow(DTypeError);
  });

  testInScope("u8 bytes decoded by a format's name, and packed elements decoded by a layout", () => {
    const layout = layoutOf("e2m1");
    const [pairs, nibbles] = [empty(backend(), "u8", [3, 4]), empty(backend(), "e2m1", [3, 4])];
    expect(() => decode(pairs, { format: "e2m1" })).toThrow(DTypeError);
    expect(() => decode(nibbles, { format: layout })).toThrow(DTypeError);
    expect(decode(pairs, { format: layout }).shape).toEqual([3, 8]);
    expect(decode(nibbles, { format: "e2m1" }).shape).toEqual([3, 4]);
  });

  testInScope("a disposed tensor", () => {
    const disposedTensor = x();
    disposedTensor.dispose();
    expect(() => encode(disposedTensor, { format: "e4m3" })).toThrow(DisposedError);
  });
});
