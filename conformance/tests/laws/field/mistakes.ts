/** Mistakes of published quantizers, planted in the small kernel: the change, and the name that the tool must give it. */

import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import { encodeBy } from "./narrow.js";
import { bits, type Convention, type Mistake, type StoredValues } from "./quantizer.js";

/** A correct kernel: its convention, and the spec that describes it. */
export interface CorrectKernel {
  readonly convention: Convention;
  readonly spec: QuantizeSpec;
}

const mxKernel = (
  quantizer: "mxfp8" | "mxfp4",
  scale: Convention["scale"],
  scaleRule: QuantizeSpec["scaleRule"],
  format: "e4m3" | "e5m2" | "e2m1" = quantizer === "mxfp4" ? "e2m1" : "e4m3",
): CorrectKernel => ({
  convention: { block: 32, format, scale },
  spec: makeSpec(quantizer, { scaleRule, format, tile: "1x32" }),
});
const block = (scale: Convention["scale"], fields: Partial<QuantizeSpec>): CorrectKernel => ({
  convention: { block: 128, format: "e4m3", scale },
  spec: makeSpec("fp8-block", { tile: "1x128", ...fields }),
});

/** Correct kernels of ten conventions. */
export const CORRECT_KERNELS = {
  "te mxfp8": mxKernel("mxfp8", "e8m0-up", "e8m0Up"),
  "te mxfp8 e5m2": mxKernel("mxfp8", "e8m0-up", "e8m0Up", "e5m2"),
  "ocp mxfp8": mxKernel("mxfp8", "e8m0-floor", "e8m0Floor"),
  "ocp mxfp4": mxKernel("mxfp4", "e8m0-floor", "e8m0Floor"),
  "mxfp8 by ceil": mxKernel("mxfp8", "e8m0-ceil", "e8m0Ceil"),
  "mxfp4 by even": mxKernel("mxfp4", "e8m0-even", "e8m0Even"),
  "deepseek mxfp8": mxKernel("mxfp8", "e8m0-quotient", "e8m0UpQuotient"),
  "te fp8-block": block("f32-multiply", { scaleRule: "f32", pow2Scales: false }),
  "deepseek fp8-block": block("f32-divide", { scaleRule: "f32Quotient", elementScaling: "divide" }),
  nvfp4: {
    convention: { block: 16, format: "e2m1", scale: "nvfp4" },
    spec: makeSpec("nvfp4", { tile: "1x16" }),
  },
} as const satisfies Readonly<Record<string, CorrectKernel>>;

/** A mistake from the field, and its name. */
export interface Bug {
  readonly name: string;
  readonly kernel: keyof typeof CORRECT_KERNELS;
  readonly mistake: Mistake;
  /** Matches one of the named mistakes. */
  readonly causePattern: RegExp;
  /** The spec to compare the kernel with, if its own spec is the mistake. */
  readonly heldTo?: QuantizeSpec;
  /** The package that had it. */
  readonly source: string;
}

const f = Math.fround;
const MX = "te mxfp8";
const largest = (values: Float32Array): number =>
  values.reduce((amax, x) => Math.max(amax, Number.isNaN(x) ? 0 : Math.abs(x)), 0);
const alterCodes = (alter: (code: number) => number) => (storedValues: StoredValues) => ({
  ...storedValues,
  codes: storedValues.codes.map(alter),
});
const alterScale = (alter: (scale: number) => number) => ({
  scale: ({ value }: { readonly value: number }) => bits(alter(value)),
});
const DIALECTS_1 = "dialects in the field, scale rules";
const PUBLISHED = "published failures";

/** bf16 by adding half an ulp and truncating, to nearest even. */
function bf16(x: number): number {
  if (!Number.isFinite(x)) return x;
  const word = bits(x);
  const roundedBits = (word + 0x7fff + ((word >>> 16) & 1)) & 0xffff0000;
  return new Float32Array(Uint32Array.of(roundedBits).buffer)[0] as number;
}

export const BUGS: readonly Bug[] = [
  {
    name: "floor of the amax's exponent where the scale has to be rounded up",
    kernel: MX,
    mistake: { convention: { scale: "e8m0-floor" } },
    causePattern: /e8m0Floor.*not e8m0Up/,
    source: DIALECTS_1,
  },
  {
    name: "ceil rule",
    kernel: MX,
    mistake: { convention: { scale: "e8m0-ceil" } },
    causePattern: /e8m0Ceil/,
    source: DIALECTS_1,
  },
  {
    name: "even rule for another element width",
    kernel: "ocp mxfp4",
    mistake: { convention: { scale: "e8m0-even" } },
    causePattern: /e8m0Even/,
    source: DIALECTS_1,
  },
  {
    name: "scale by a float log2, one exponent too few just above a power of two",
    kernel: "deepseek mxfp8",
    mistake: {
      scale: (scale, amax) => {
        const quotient = f(amax / 448);
        if (quotient === 0 || quotient === Infinity) return scale.code;
        return Math.min(Math.max(Math.ceil(f(Math.log2(quotient))), -127), 127) + 127;
      },
      redo: true,
    },
    causePattern: /e8m0UpLog2/,
    source: "torchao RCEIL and ModelOpt",
  },
  {
    name: "ties away from zero",
    kernel: MX,
    mistake: { round: encodeBy((fraction) => fraction >= 0.5) },
    causePattern: /half away/,
    source: "microxcaling's default; aiter references",
  },
  {
    name: "ties toward zero",
    kernel: "ocp mxfp4",
    mistake: { round: encodeBy((fraction) => fraction > 0.5) },
    causePattern: /ties go toward zero/,
    source: "ModelOpt's MXFP4 cast",
  },
  {
    name: "truncation",
    kernel: MX,
    mistake: { round: encodeBy(() => false) },
    causePattern: /truncated/,
    source: "bit shifts in place of a cast",
  },
  {
    name: "+0 for -0",
    kernel: MX,
    mistake: { store: alterCodes((code) => (code === 0x80 ? 0 : code)) },
    causePattern: /\+0 for -0/,
    source: "compressed-tensors adds a zero point",
  },
  {
    name: "+0 becomes -0",
    kernel: "ocp mxfp4",
    mistake: { scaled: (y) => (y === 0 ? -0 : y) },
    causePattern: /plus zero becomes minus zero/,
    source: "ModelOpt's MXFP4 cast",
  },
  {
    name: "subnormal codes flushed",
    kernel: MX,
    mistake: { store: alterCodes((code) => ((code & 0x7f) < 8 ? code & 0x80 : code)) },
    causePattern: /subnormal codes are flushed/,
    source: "kernels without denormal support",
  },
  {
    name: "subnormal inputs flushed",
    kernel: MX,
    mistake: { load: (x) => (Math.abs(x) < 2 ** -126 ? x * 0 : x) },
    causePattern: /subnormal (inputs|numbers) are flushed/,
    source: "-ftz=true, --use_fast_math",
  },
  {
    name: "NaN in the amax",
    kernel: MX,
    mistake: {
      amax: (values) => (values.some(Number.isNaN) ? Number.NaN : largest(values)),
    },
    causePattern: /NaN enters the amax/,
    source: "torch.amax propagates NaN",
  },
  {
    name: "NaN becomes zero",
    kernel: MX,
    mistake: { store: alterCodes((code) => ((code & 0x7f) === 0x7f ? 0 : code)) },
    causePattern: /NaN handling is missing/,
    source: PUBLISHED,
  },
  {
    name: "overflow becomes NaN, without a clamp",
    kernel: "ocp mxfp8",
    mistake: { round: encodeBy((fraction, isOdd) => fraction > 0.5 || (fraction === 0.5 && isOdd), 0x7f) },
    causePattern: /saturation is missing/,
    source: "(w / scale).to(e4m3fn) on a CPU; ModelOpt FP8",
  },
  {
    name: "wrong exponent of the largest element",
    kernel: "ocp mxfp8",
    mistake: { scale: ({ code }) => Math.min(code + 1, 254), redo: true },
    causePattern: /scales are 2\^1 times as large/,
    source: "emax 7 of IEEE-like e4m3 in place of 8",
  },
  {
    name: "small scales clamped",
    kernel: MX,
    mistake: { scale: ({ code }) => Math.max(code, 113), redo: true },
    causePattern: /at least 2\^-14/,
    source: "scale computed in f16",
  },
  {
    name: "scale of zeros is 1",
    kernel: MX,
    mistake: { scale: ({ code }, amax) => (amax === 0 ? 127 : code), redo: true },
    causePattern: /block of zeros is 1/,
    source: "ModelOpt NVFP4: zero block → 1",
  },
  {
    name: "nibbles swapped",
    kernel: "ocp mxfp4",
    mistake: {
      store: (storedValues) => ({
        ...storedValues,
        codes: storedValues.codes.map((_, i) => storedValues.codes[i ^ 1] as number),
      }),
    },
    causePattern: /nibbles are swapped/,
    source: PUBLISHED,
  },
  {
    name: "tables of e4m3fnuz",
    kernel: MX,
    mistake: {
      round: (y) =>
        encodeBy((fraction, isOdd) => fraction > 0.5 || (fraction === 0.5 && isOdd))(y, "e4m3fnuz"),
    },
    causePattern: /codes are those of e4m3fnuz/,
    source: `${PUBLISHED}: e4m3fn read as e4m3fnuz`,
  },
  {
    name: "scales stored swizzled where plain ones are due",
    kernel: MX,
    mistake: {
      store: (storedValues) => {
        const { scales, blocksPerRow, rows } = storedValues;
        const tiles = Math.ceil(blocksPerRow / 4);
        const swizzledScales = scales.map((_, index) => {
          const [tile, indexInTile] = [Math.floor(index / 512), index % 512];
          const row =
            Math.floor(tile / tiles) * 128 +
            Math.floor((indexInTile % 16) / 4) * 32 +
            Math.floor(indexInTile / 16);
          const column = (tile % tiles) * 4 + (indexInTile % 4);
          return row < rows && column < blocksPerRow ? (scales[row * blocksPerRow + column] as number) : 0;
        });
        return { ...storedValues, scales: swizzledScales };
      },
    },
    causePattern: /swizzled/,
    source: `${PUBLISHED}; torchao is_swizzled_scales`,
  },
  {
    name: "scales stored transposed",
    kernel: MX,
    mistake: {
      store: (storedValues) => ({
        ...storedValues,
        scales: storedValues.scales.map(
          (_, i) =>
            storedValues.scales[
              (i % storedValues.rows) * storedValues.blocksPerRow + Math.floor(i / storedValues.rows)
            ] as number,
        ),
      }),
    },
    causePattern: /scales are stored transposed/,
    source: `${PUBLISHED}: expert scales of the wrong axis`,
  },
  {
    name: "double rounding through bf16",
    kernel: MX,
    mistake: { scaled: (y) => bf16(y) },
    causePattern: /rounded to bf16.*double rounding/,
    source: "compressed-tensors and ModelOpt FP8 divide in bf16",
  },
  {
    name: "inputs read as bf16",
    kernel: MX,
    mistake: { load: bf16 },
    causePattern: /inputs are rounded to bf16/,
    source: "x.to(bf16) before the kernel",
  },
  {
    name: "maximum without the absolute value",
    kernel: MX,
    mistake: { amax: (values) => values.reduce((amax, x) => Math.max(x, amax), 0) },
    causePattern: /without the absolute value/,
    source: "x.max() in place of x.abs().max()",
  },
  {
    name: "scales of the call before",
    kernel: MX,
    mistake: { isStale: true },
    causePattern: /stale scales/,
    source: "a scale buffer that is computed for the next call",
  },
  {
    name: "the last block takes its neighbour's amax",
    kernel: MX,
    mistake: {
      amax: (values, row, b) =>
        b > 0 && (b + 1) * 32 === row.length ? largest(row.subarray((b - 1) * 32, b * 32)) : largest(values),
    },
    causePattern: /last block of a line has the amax of the block before/,
    source: `${PUBLISHED}: shard narrower than a block`,
  },
  {
    name: "amax of half of the block",
    kernel: MX,
    mistake: { amax: (values) => largest(values.subarray(0, 16)) },
    causePattern: /first half of the block/,
    source: "a reduction over half a warp",
  },
  {
    name: "amax of the row",
    kernel: MX,
    mistake: { amax: (_, row) => largest(row) },
    causePattern: /amax is that of the whole row/,
    source: `${PUBLISHED}: scales flattened`,
  },
  {
    name: "reciprocal stored",
    kernel: "te fp8-block",
    mistake: alterScale((scale) => f(1 / scale)),
    causePattern: /reciprocal of the scale is stored/,
    source: `${PUBLISHED}: weight_scale_inv multiplies`,
  },
  {
    name: "scales rounded to bf16",
    kernel: "te fp8-block",
    mistake: alterScale(bf16),
    causePattern: /scales are rounded to bf16/,
    source: "a loader of transformers",
  },
  {
    name: "scales rounded up to powers of two without quantizing again",
    kernel: "deepseek fp8-block",
    mistake: alterScale((scale) =>
      scale > 0 && Number.isFinite(scale) ? f(2 ** Math.ceil(Math.log2(scale))) : scale,
    ),
    causePattern: /powers? of two.*not quantized again/,
    source: `${PUBLISHED}: UE8M0 rounded without requantizing`,
  },
  {
    name: "the last block of a row reads on into the next row",
    kernel: "te fp8-block",
    mistake: {
      amax: (values, row, b, matrix) => {
        const index = (row.byteOffset - matrix.byteOffset) / 4 + b * 128;
        return largest(
          matrix.subarray(index, Math.min(index + 128, matrix.length)).length > values.length
            ? matrix.subarray(index, index + 128)
            : values,
        );
      },
    },
    causePattern: /behind the line in memory/,
    source: "amax of padding, without a mask",
  },
  {
    name: "multiplied by the factor where the convention divides",
    kernel: "deepseek fp8-block",
    mistake: { convention: { scale: "f32-multiply" } },
    causePattern: /scale rule is f32 /,
    source: "27 % of f32 scales differ between dividing and multiplying",
  },
  {
    name: "the scale of the tensor left out",
    kernel: "nvfp4",
    mistake: { tensorAmax: () => 2688 },
    causePattern: /scale of the tensor is left out/,
    source: `${PUBLISHED}: global scale dropped`,
  },
  {
    name: "4over6 left out",
    kernel: "nvfp4",
    mistake: {},
    heldTo: makeSpec("nvfp4", { tile: "1x16", fourOverSix: "mse", e4m3Max: 448 }),
    causePattern: /4over6 is missing/,
    source: "NVFP4 4over6 of TransformerEngine and ModelOpt",
  },
  {
    name: "NVFP4 nibbles swapped",
    kernel: "nvfp4",
    mistake: {
      store: (storedValues) => ({
        ...storedValues,
        codes: storedValues.codes.map((_, i) => storedValues.codes[i ^ 1] as number),
      }),
    },
    causePattern: /nibbles are swapped/,
    source: PUBLISHED,
  },
  {
    name: "exponents stored without their bias",
    kernel: MX,
    mistake: { scale: ({ code }) => (code - 127) & 255 },
    causePattern: /without its bias/,
    source: "int8 exponents in place of e8m0",
  },
];
