/**
 * The quantizer oracle equals published vectors, the command line's table of shapes, and edge cases computed by hand.
 */
import { describe, expect, it } from "vitest";
import { SCALAR_FORMATS } from "../../../src/formats/scalar.js";
import { DIRECTIONS } from "../../../src/tensor/quantized.js";
import { bitsOf, FLT_MAX, fromBits } from "../../oracle/core/rational.js";
import { decode } from "../../oracle/core/scalar.js";
import { packNibbles, padScales, type Shape } from "../../oracle/layout/layout.js";
import { dequantize } from "../../oracle/quantize/dequantize.js";
import { rht16 } from "../../oracle/quantize/hadamard.js";
import {
  type Quantized,
  type QuantizeSpec,
  quantize,
  type WideName,
} from "../../oracle/quantize/quantize.js";

const { POSITIVE_INFINITY: INF, NaN: NAN } = Number;
const { e2m1, e4m3 } = SCALAR_FORMATS;

/** Nonzero values of varied size and sign that bf16 represents exactly. */
function variedValues([m, k]: Shape): number[] {
  return Array.from({ length: m * k }, (_, i) => (((i * 37) % 101) - 50.5) * 2 ** ((i % 7) - 3));
}

function run(
  values: readonly number[],
  shape: Shape,
  spec: QuantizeSpec,
  dtype: WideName = "f32",
): Quantized {
  return quantize({ data: Float32Array.from(values), shape, dtype }, spec);
}

function rowwise(values: readonly number[], spec: QuantizeSpec, dtype: WideName = "f32") {
  const copy = run(values, [1, values.length], spec, dtype).rowwise;
  if (!copy) throw new Error("no rowwise copy");
  return copy;
}

function hex(values: Iterable<number>): string {
  return [...values].map((value) => value.toString(16).toUpperCase().padStart(2, "0")).join(" ");
}

function transposeValues<T>(values: ArrayLike<T>, [m, k]: Shape): (T | undefined)[] {
  return Array.from(
    { length: m * k },
    (_, position) => values[(position % m) * k + Math.floor(position / m)],
  );
}

describe("every quantizer", () => {
  const expected = (m: number, k: number): [QuantizeSpec, number[], number[], number[], number[]][] => [
    [{ quantizer: "fp8-current" }, [m, k], [1], [k, m], [1]],
    [{ quantizer: "fp8-delayed" }, [m, k], [1], [k, m], [1]],
    [{ quantizer: "fp8-block" }, [m, k], [m, Math.ceil(k / 128)], [k, m], [k, Math.ceil(m / 128)]],
    [
      { quantizer: "fp8-block", tile: "128x128" },
      [m, k],
      [Math.ceil(m / 128), Math.ceil(k / 128)],
      [k, m],
      [Math.ceil(k / 128), Math.ceil(m / 128)],
    ],
    [
      { quantizer: "fp8-block", compact: true },
      [m, k],
      [m, Math.ceil(k / 128)],
      [m, k],
      [Math.ceil(m / 128), k],
    ],
    [{ quantizer: "fp8-row" }, [m, k], [m, Math.min(k, 1)], [k, m], [k, Math.min(m, 1)]],
    [{ quantizer: "mxfp8" }, [m, k], [m, k / 32], [m, k], [m / 32, k]],
    [{ quantizer: "mxfp8", tile: "32x32" }, [m, k], [m, k / 32], [m, k], [m / 32, k]],
    [{ quantizer: "mxfp6" }, [m, k], [m, k / 32], [m, k], [m / 32, k]],
    [{ quantizer: "mxfp4" }, [m, k], [m, k / 32], [k, m], [m / 32, k]],
    [{ quantizer: "nvfp4" }, [m, k], [m, k / 16], [k, m], [k, m / 16]],
    [{ quantizer: "nvfp4", tile: "16x16" }, [m, k], [m, k / 16], [k, m], [k, m / 16]],
  ];

  it.each([
    [32, 160],
    [0, 32],
    [32, 0],
  ] as const)("has the shapes of the command line's table at [%i, %i]", (m, k) => {
    for (const [spec, ...shapes] of expected(m, k)) {
      const { rowwise, columnwise } = run(variedValues([m, k]), [m, k], { ...spec, usage: DIRECTIONS });
      expect(
        [rowwise?.shape, rowwise?.scaleShape, columnwise?.shape, columnwise?.scaleShape],
        spec.quantizer,
      ).toEqual(shapes);
      for (const copy of [rowwise, columnwise]) {
        expect(copy?.codes).toHaveLength(m * k);
        expect(copy?.scale).toHaveLength(copy?.scaleShape.reduce((a, b) => a * b, 1) ?? -1);
      }
    }
  });

  it("dequantizes to within a quarter of the largest element, from either copy", () => {
    const shape: Shape = [32, 160];
    const values = variedValues(shape);
    for (const [spec] of expected(...shape)) {
      const quantizedCopies = run(values, shape, { ...spec, usage: DIRECTIONS });
      for (const usage of spec.quantizer === "nvfp4" ? (["rowwise"] as const) : DIRECTIONS) {
        const copy = quantizedCopies[usage];
        if (!copy) throw new Error(`no ${usage} copy`);
        const restoredValues = [...dequantize(copy, usage, spec)].map(fromBits);
        const worst = Math.max(...restoredValues.map((value, i) => Math.abs(value - (values[i] ?? 0))));
        expect(worst, `${spec.quantizer} ${usage}`).toBeLessThanOrEqual(404 / 4);
        expect(worst).toBeGreaterThan(0);
      }
    }
  });

  it("refuses options that do not go together", () => {
    const invalidSpecs: QuantizeSpec[] = [
      { quantizer: "mxfp8", rht: true },
      { quantizer: "nvfp4", rht: true, tile: "16x16" },
      { quantizer: "nvfp4", fourOverSix: "mae", stochastic: true },
    ];
    for (const spec of invalidSpecs) expect(() => run([1], [1, 1], spec, "bf16")).toThrow(RangeError);
    expect(() => run([1], [1, 1], { quantizer: "nvfp4", rht: true }, "f32")).toThrow("bf16");
  });
});

describe("per-tensor FP8", () => {
  it("scales by 448 / amax and stores the rounded reciprocal; columns hold the same bytes", () => {
    const { rowwise, columnwise, amax } = run([1, -3, -0, NAN], [2, 2], {
      quantizer: "fp8-current",
      usage: DIRECTIONS,
    });
    expect(hex(rowwise?.scale ?? [])).toBe("3BDB6DB7");
    expect(hex(rowwise?.codes ?? [])).toBe("71 FE 80 7F");
    expect(hex(columnwise?.codes ?? [])).toBe("71 80 FE 7F");
    expect(columnwise?.scale).toEqual(rowwise?.scale);
    expect(amax).toBeUndefined();
  });

  it("has a scale for each row, or each column, and one of an amax at most the limit", () => {
    // 448 / 1, 448 / 3, and columns 448 / 1 and 448 / 3
    const quantizedCopies = run([1, 0.5, -3, -1.5], [2, 2], { quantizer: "fp8-row", usage: DIRECTIONS });
    expect(hex(quantizedCopies.rowwise?.scale ?? [])).toBe("3B124925 3BDB6DB7");
    expect(hex(quantizedCopies.rowwise?.codes ?? [])).toBe("7E 76 FE F6");
    expect(hex(quantizedCopies.columnwise?.scale ?? [])).toBe("3BDB6DB7 3B5B6DB7");
    expect(hex(quantizedCopies.columnwise?.codes ?? [])).toBe("71 FE 71 FE");
    const { rowwise: limitedCopy } = run([500, 250], [1, 2], { quantizer: "fp8-row", amaxLimit: 448 });
    expect([hex(limitedCopy?.scale ?? []), hex(limitedCopy?.codes ?? [])]).toEqual(["3F800000", "7E 78"]);
  });

  it("gives fnuz codes: half the largest value of e4m3's bits, one zero, NaN at 0x80", () => {
    // 240 / 3 = 80: -3 is 240, 1 is 80, -0 is 0
    const fnuz = rowwise([1, -3, -0, NAN], { quantizer: "fp8-current", format: "e4m3fnuz" });
    expect(hex(fnuz.scale)).toBe("3C4CCCCD");
    expect(hex(fnuz.codes)).toBe("72 FF 00 80");
    // 57344 / 7 = 8192
    const wide = rowwise([-7, 1, 2 ** -31], { quantizer: "fp8-row", format: "e5m2fnuz" });
    expect(hex(wide.scale)).toBe("39000000");
    expect(hex(wide.codes)).toBe("FF 74 00");
    const epsilon = rowwise([0], {
      quantizer: "fp8-row",
      format: "e4m3fnuz",
      amaxEpsilon: 1e-12,
      scaleRule: "f32Quotient",
    });
    expect(hex(epsilon.scale)).toBe("27961EB7"); // fl(1e-12) / 240, not 1e-12 / 240
  });

  it("uses scale 1 for amax 0 and infinity, and the epsilon where amax is below it", () => {
    expect(rowwise([INF, 500, -2], { quantizer: "fp8-current" })).toMatchObject({ scale: [0x3f800000] });
    expect(hex(rowwise([INF, 500, -2], { quantizer: "fp8-current" }).codes)).toBe("7E 7E C0");
    expect(rowwise([0, NAN], { quantizer: "fp8-current" }).scale).toEqual([0x3f800000]);
    expect(rowwise([0, NAN], { quantizer: "fp8-current", amaxEpsilon: 448 * 4 }).scale).toEqual([bitsOf(4)]);
  });

  it("takes the given scale and records the amax of the unscaled values", () => {
    const delayedCopy = run([1000, -2, NAN], [1, 3], { quantizer: "fp8-delayed", format: "e5m2", scale: 64 });
    expect(hex(delayedCopy.rowwise?.codes ?? [])).toBe("7B D8 7F");
    expect(delayedCopy.rowwise?.scale).toEqual([bitsOf(1 / 64)]);
    expect(delayedCopy.amax).toBe(bitsOf(1000));
  });
});

describe("block FP8", () => {
  it("scales a short last tile by itself, with powers of two unless told otherwise", () => {
    const values = [...new Array<number>(128).fill(3), 7, -INF];
    const copy = rowwise(values, { quantizer: "fp8-block" });
    expect(copy.scale).toEqual([bitsOf(1 / 128), bitsOf(1)]);
    expect(hex(copy.codes.subarray(127))).toBe("7C 4E FE");
    expect(rowwise([3], { quantizer: "fp8-block", pow2Scales: false }).codes[0]).toBe(0x7e);
  });

  it("gives INT4 codes in two's complement under amax / 7, and -8 under half of the range", () => {
    // 14 / 7 = 2: -14 is -7, 1 a tie to 0, 3 a tie to 2, -2 is -1; the short last group has a separate scale
    const firstBlock = [14, -14, 1, 3, -2, NAN, ...new Array<number>(26).fill(0)];
    const copy = rowwise([...firstBlock, -7, 3.5], { quantizer: "int4-group", tile: "1x32" });
    expect(copy.scale).toEqual([bitsOf(2), bitsOf(1)]);
    expect(hex(copy.codes.subarray(0, 6))).toBe("07 09 00 02 0F 00");
    expect(hex(copy.codes.subarray(32))).toBe("09 04");
    // 15 / 7.5 = 2: -15 and 15 are ties at -7.5 and 7.5, which go to -8 and beyond 7
    const range = rowwise([-15, 15, 13], { quantizer: "int4-group", scaleRule: "f32QuotientRange" });
    expect([hex(range.scale), hex(range.codes)]).toEqual(["40000000", "08 07 06"]);
    const zero = rowwise([0, -0], { quantizer: "int4-group", scaleRule: "f32QuotientRange" }, "bf16");
    expect([hex(zero.scale), hex(zero.codes)]).toEqual(["3C000000", "00 00"]);
  });

  it("replaces an overflowing scale by the largest number of the input's type", () => {
    const tinyValues = [2 ** -133];
    const scale = (dtype: WideName, pow2Scales: boolean) =>
      rowwise(tinyValues, { quantizer: "fp8-block", pow2Scales }, dtype).scale[0];
    expect([scale("f32", true), scale("bf16", true)]).toEqual([0x00400000, 0x00400000]);
    expect(scale("f32", false)).toBe(0x00200000);
    expect(scale("bf16", false)).toBe(bitsOf(1 / fromBits(0x7f7f0000)));
  });

  it("stores compact columnwise data untransposed, with the same bytes as the transposed data", () => {
    const shape: Shape = [130, 3];
    const ready = run(variedValues(shape), shape, {
      quantizer: "fp8-block",
      usage: ["columnwise"],
    }).columnwise;
    const compact = run(variedValues(shape), shape, {
      quantizer: "fp8-block",
      compact: true,
      usage: ["columnwise"],
    });
    expect([...(ready?.codes ?? [])]).toEqual(transposeValues(compact.columnwise?.codes ?? [], shape));
    expect(ready?.scale).toEqual(transposeValues(compact.columnwise?.scale ?? [], [2, 3]));
  });

  it("pads 1x128 scales transposed, and 128x128 scales untransposed", () => {
    const spec: QuantizeSpec = { quantizer: "fp8-block" };
    const logical = { values: [1, 2, 3, 4, 5, 6], shape: [3, 2] } as const;
    expect(padScales(logical, spec, "rowwise")).toEqual({ values: [1, 3, 5, 0, 2, 4, 6, 0], shape: [2, 4] });
    expect(padScales(logical, { ...spec, tile: "128x128" }, "rowwise").shape).toEqual([3, 4]);
    expect(padScales(logical, { quantizer: "nvfp4" }, "columnwise").shape).toEqual([128, 4]);
  });
});

describe("MX formats", () => {
  it("scale blocks down the columns without transposing them", () => {
    const values = Array.from({ length: 64 * 2 }, (_, i) => (i % 2 === 0 ? 448 : -1) * (i < 64 ? 1 : 2));
    const copy = run(values, [64, 2], { quantizer: "mxfp8", usage: ["columnwise"] }).columnwise;
    expect(hex(copy?.scale ?? [])).toBe("7F 77 80 78");
    expect(hex(copy?.codes.subarray(0, 2) ?? [])).toBe("7E F8");
  });

  it("survive a zero block, an infinity and a NaN", () => {
    const spec: QuantizeSpec = { quantizer: "mxfp8" };
    expect(rowwise([0, -0, NAN], spec)).toMatchObject({ scale: [0], codes: Uint8Array.of(0, 0x80, 0x7f) });
    expect(rowwise([INF, -1, FLT_MAX], spec)).toMatchObject({
      scale: [254],
      codes: Uint8Array.of(0x7e, 0x80, 0x40),
    });
  });

  it("replicate the scale of a 32x32 tile and then agree in both copies", () => {
    const shape: Shape = [32, 64];
    const { rowwise, columnwise } = run(variedValues(shape), shape, {
      quantizer: "mxfp8",
      tile: "32x32",
      usage: DIRECTIONS,
    });
    expect(rowwise?.codes).toEqual(columnwise?.codes);
    expect(new Set(rowwise?.scale.filter((_, i) => i % 2 === 0)).size).toBe(1);
    expect(columnwise?.scale[0]).toBe(rowwise?.scale[0]);
  });

  it("give MXFP4 and MXFP6 the floor of the exponent, so that 7 saturates to 6", () => {
    expect(rowwise([7, 1, -0.2, NAN], { quantizer: "mxfp4" })).toMatchObject({
      scale: [127],
      codes: Uint8Array.of(7, 2, 8, 7),
    });
    expect(rowwise([7.9, 0.125], { quantizer: "mxfp6" })).toMatchObject({
      scale: [127],
      codes: Uint8Array.of(31, 1),
    });
    expect(rowwise([31, 1], { quantizer: "mxfp6", format: "e3m2" })).toMatchObject({
      scale: [127],
      codes: Uint8Array.of(31, 12),
    });
  });
});

describe("NVFP4", () => {
  const block = [0, -0.03, 0.1, 0.25, -0.5, 0.75, 1, -1.25, 1.5, 2, -2.5, 3, 3.5, -4, 5, -6.5].map((x) =>
    fromBits(bitsOf(x) & 0xffff0000),
  );

  it.each([
    [6.5, 0x7e, "80 00 19 A2 43 5C E5 F6"],
    [100, 0x5f, "80 00 19 A2 43 5C E5 F6"],
    [1e7, 0x00, "F0 77 7F F7 77 7F F7 F7"],
  ])("gives the printed bytes in a tensor of amax %f", (g, scale, bytes) => {
    const copy = run([...block, g, ...new Array(15).fill(0)], [2, 16], { quantizer: "nvfp4" }).rowwise;
    expect(copy?.scale[0]).toBe(scale);
    expect(hex(packNibbles(copy?.codes.subarray(0, 16) ?? new Uint8Array()))).toBe(bytes);
    expect(copy?.amax).toBe(bitsOf(g));
  });

  it("gives each row an amax of its own in place of the tensor's, and each column in the columnwise copy", () => {
    const row = [6, 3, -1.5, ...new Array<number>(13).fill(0)];
    const values = [row, row.map((x) => x / 8)].flat();
    const spec: QuantizeSpec = { quantizer: "nvfp4", rowScaled: true };
    const rowwise = run(values, [2, 16], { quantizer: "nvfp4" }).rowwise;
    expect(rowwise?.scale).toEqual([0x7e, 0x66]);
    const { rowwise: r, columnwise } = run(values, [2, 16], { ...spec, usage: DIRECTIONS });
    expect(r?.amaxes?.map(fromBits)).toEqual([6, 0.75]);
    expect(r?.scale).toEqual([0x7e, 0x7e]);
    const codes = [7, 5, 0xb, ...new Array<number>(13).fill(0)];
    expect([...(r?.codes ?? [])]).toEqual([...codes, ...codes]);
    expect(columnwise?.amaxes?.map(fromBits)).toEqual([6, 3, 1.5, ...new Array<number>(13).fill(0)]);
    // each column is a block: 6 and 0.75, 3 and 0.375, -1.5 and -0.1875 are all its amax and an eighth of it
    expect(columnwise?.scale.slice(0, 4)).toEqual([0x7e, 0x7e, 0x7e, 0]);
    expect(
      [0, 1, 2].map((line) => [...(columnwise?.codes.subarray(16 * line, 16 * line + 2) ?? [])]),
    ).toEqual([
      [7, 2],
      [7, 2],
      [0xf, 0xa],
    ]);
    if (!r) throw new Error("a rowwise copy was wanted");
    const dequantized = Array.from(dequantize(r, "rowwise", spec), fromBits);
    const factor = (g: number) => Math.fround(Math.fround(448 * g) * fromBits(0x39c30c31));
    expect(dequantized.slice(0, 2)).toEqual([6, 3].map((q) => Math.fround(q * factor(6))));
    expect(dequantized.slice(16, 18)).toEqual([6, 3].map((q) => Math.fround(q * factor(0.75))));
  });

  it("dequantizes as code * ((scale * amax) * fl(1/2688))", () => {
    const copy = rowwise([6.5, -6.5, ...new Array(14).fill(0)], { quantizer: "nvfp4" });
    const factor = Math.fround(Math.fround(448 * 6.5) * fromBits(0x39c30c31));
    expect(dequantize(copy, "rowwise", { quantizer: "nvfp4" })[0]).toBe(bitsOf(Math.fround(6 * factor)));
    expect(dequantize(copy, "rowwise", { quantizer: "nvfp4" }, "bf16")[1]).toBe(0xc0d0);
  });

  it("holds the same codes and scales in both copies of 16x16 tiles", () => {
    const shape: Shape = [32, 16];
    for (const four of [{}, { fourOverSix: "mae" }, { fourOverSix: "mse", e4m3Max: 448 }] as const) {
      const spec: QuantizeSpec = { quantizer: "nvfp4", tile: "16x16", usage: DIRECTIONS, ...four };
      const { rowwise, columnwise } = run(variedValues(shape), shape, spec);
      expect([...(columnwise?.codes ?? [])]).toEqual(transposeValues(rowwise?.codes ?? [], shape));
      expect(columnwise?.scale.slice(0, 2)).toEqual([rowwise?.scale[0], rowwise?.scale[16]]);
    }
  });

  it("transforms only the columnwise copy and takes its amax afterwards", () => {
    const shape: Shape = [16, 16];
    const values = variedValues(shape);
    const spec: QuantizeSpec = { quantizer: "nvfp4", rht: true, usage: DIRECTIONS };
    const { rowwise, columnwise } = run(values, shape, spec, "bf16");
    expect(rowwise).toEqual(run(values, shape, { quantizer: "nvfp4" }).rowwise);
    const y = Array.from({ length: 16 }, (_, col) =>
      rht16(values.filter((_, i) => i % 16 === col)).map((bits) => fromBits(bits * 0x10000)),
    );
    expect(columnwise).toEqual(run(y.flat(), shape, { quantizer: "nvfp4" }).rowwise);
  });

  it("maps a block to 4 if that has the smaller error, and to 6 on a tie", () => {
    const pad = new Array<number>(12).fill(0);
    const spec: QuantizeSpec = { quantizer: "nvfp4", fourOverSix: "mae" };
    const four = rowwise([4, 3, 3, 3, ...pad], spec);
    expect(four).toMatchObject({ scale: [0x7c], amax: bitsOf(4) });
    expect(hex(four.codes.subarray(0, 4))).toBe("06 05 05 05");
    expect(decode(four.scale[0] ?? 0, e4m3)).toBe(384);
    const six = rowwise([6, 4, 3, 2, ...pad], spec);
    expect(six.scale).toEqual([0x78]);
    expect(rowwise(new Array(16).fill(NAN), spec).codes).toEqual(new Uint8Array(16).fill(7));
  });

  it("rounds stochastically between neighbours, by words that know copy and stored place", () => {
    const shape: Shape = [16, 32];
    const values = variedValues(shape).map(Math.abs);
    const spec: QuantizeSpec = {
      quantizer: "nvfp4",
      stochastic: true,
      seed: 5n,
      offset: 1n,
      usage: DIRECTIONS,
    };
    const evenResult = run(values, shape, { quantizer: "nvfp4", usage: DIRECTIONS });
    const random = run(values, shape, spec);
    for (const usage of DIRECTIONS) {
      const codeChanges = [...(random[usage]?.codes ?? [])].map(
        (code, i) => code - (evenResult[usage]?.codes[i] ?? 0),
      );
      expect(new Set(codeChanges)).toEqual(new Set([-1, 0, 1]));
      expect(random[usage]?.scale).toEqual(evenResult[usage]?.scale);
    }
    const transposedSource = transposeValues(values, shape).map((value) => value ?? 0);
    const rows = run(transposedSource, [32, 16], { ...spec, usage: ["rowwise"] }).rowwise;
    expect(rows?.codes).not.toEqual(random.columnwise?.codes);
    const exact = run(
      values.map((_, i) => decode(i % 8, e2m1)),
      shape,
      { ...spec, seed: 9n },
    );
    expect([...(exact.rowwise?.codes ?? [])]).toEqual(values.map((_, i) => i % 8));
  });
});
