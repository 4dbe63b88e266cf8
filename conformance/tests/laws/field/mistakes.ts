/** Mistakes of published quantizers, planted in the small kernel: the change, and the name that the tool must give it. */

import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import { encodeBy } from "./narrow.js";
import { bits, type Convention, type Mistake, type Stored } from "./quantizer.js";

/** A correct kernel: its convention, and the spec that describes it. */
export interface Right {
  readonly convention: Convention;
  readonly spec: QuantizeSpec;
}

const mx = (
  quantizer: "mxfp8" | "mxfp4",
  scale: Convention["scale"],
  scaleRule: QuantizeSpec["scaleRule"],
  format: "e4m3" | "e5m2" | "e2m1" = quantizer === "mxfp4" ? "e2m1" : "e4m3",
): Right => ({
  convention: { block: 32, format, scale },
  spec: makeSpec(quantizer, { scaleRule, format, tile: "1x32" }),
});
const block = (scale: Convention["scale"], fields: Partial<QuantizeSpec>): Right => ({
  convention: { block: 128, format: "e4m3", scale },
  spec: makeSpec("fp8-block", { tile: "1x128", ...fields }),
});

/** Correct kernels of ten conventions. */
export const RIGHT = {
  "te mxfp8": mx("mxfp8", "e8m0-up", "e8m0Up"),
  "te mxfp8 e5m2": mx("mxfp8", "e8m0-up", "e8m0Up", "e5m2"),
  "ocp mxfp8": mx("mxfp8", "e8m0-floor", "e8m0Floor"),
  "ocp mxfp4": mx("mxfp4", "e8m0-floor", "e8m0Floor"),
  "mxfp8 by ceil": mx("mxfp8", "e8m0-ceil", "e8m0Ceil"),
  "mxfp4 by even": mx("mxfp4", "e8m0-even", "e8m0Even"),
  "deepseek mxfp8": mx("mxfp8", "e8m0-quotient", "e8m0UpQuotient"),
  "te fp8-block": block("f32-multiply", { scaleRule: "f32", pow2Scales: false }),
  "deepseek fp8-block": block("f32-divide", { scaleRule: "f32Quotient", elementScaling: "divide" }),
  nvfp4: {
    convention: { block: 16, format: "e2m1", scale: "nvfp4" },
    spec: makeSpec("nvfp4", { tile: "1x16" }),
  },
} as const satisfies Readonly<Record<string, Right>>;

/** A mistake from the field, and its name. */
export interface Bug {
  readonly name: string;
  readonly kernel: keyof typeof RIGHT;
  readonly mistake: Mistake;
  /** Matches one of the named mistakes. */
  readonly called: RegExp;
  /** The spec to compare the kernel with, if its own spec is the mistake. */
  readonly heldTo?: QuantizeSpec;
  /** The package that had it. */
  readonly source: string;
}

const f = Math.fround;
const MX = "te mxfp8";
const largest = (values: Float32Array): number =>
  values.reduce((most, x) => Math.max(most, Number.isNaN(x) ? 0 : Math.abs(x)), 0);
const coded = (change: (code: number) => number) => (stored: Stored) => ({
  ...stored,
  codes: stored.codes.map(change),
});
const ofScale = (change: (s: number) => number) => ({
  scale: ({ value }: { readonly value: number }) => bits(change(value)),
});
const DIALECTS_1 = "dialects in the field, scale rules";
const PUBLISHED = "published failures";

/** bf16 by adding half an ulp and truncating, to nearest even. */
function bf16(x: number): number {
  if (!Number.isFinite(x)) return x;
  const word = bits(x);
  const rounded = (word + 0x7fff + ((word >>> 16) & 1)) & 0xffff0000;
  return new Float32Array(Uint32Array.of(rounded).buffer)[0] as number;
}

export const BUGS: readonly Bug[] = [
  {
    name: "floor of the amax's exponent where the scale has to be rounded up",
    kernel: MX,
    mistake: { convention: { scale: "e8m0-floor" } },
    called: /e8m0Floor.*not e8m0Up/,
    source: DIALECTS_1,
  },
  {
    name: "ceil rule",
    kernel: MX,
    mistake: { convention: { scale: "e8m0-ceil" } },
    called: /e8m0Ceil/,
    source: DIALECTS_1,
  },
  {
    name: "even rule for another element width",
    kernel: "ocp mxfp4",
    mistake: { convention: { scale: "e8m0-even" } },
    called: /e8m0Even/,
    source: DIALECTS_1,
  },
  {
    name: "scale by a float log2, one exponent too few just above a power of two",
    kernel: "deepseek mxfp8",
    mistake: {
      scale: (scale, amax) => {
        const p = f(amax / 448);
        if (p === 0 || p === Infinity) return scale.code;
        return Math.min(Math.max(Math.ceil(f(Math.log2(p))), -127), 127) + 127;
      },
      redo: true,
    },
    called: /e8m0UpLog2/,
    source: "torchao RCEIL and ModelOpt",
  },
  {
    name: "ties away from zero",
    kernel: MX,
    mistake: { round: encodeBy((fraction) => fraction >= 0.5) },
    called: /half away/,
    source: "microxcaling's default; aiter references",
  },
  {
    name: "ties toward zero",
    kernel: "ocp mxfp4",
    mistake: { round: encodeBy((fraction) => fraction > 0.5) },
    called: /ties go toward zero/,
    source: "ModelOpt's MXFP4 cast",
  },
  {
    name: "truncation",
    kernel: MX,
    mistake: { round: encodeBy(() => false) },
    called: /truncated/,
    source: "bit shifts in place of a cast",
  },
  {
    name: "+0 for -0",
    kernel: MX,
    mistake: { store: coded((code) => (code === 0x80 ? 0 : code)) },
    called: /\+0 for -0/,
    source: "compressed-tensors adds a zero point",
  },
  {
    name: "+0 becomes -0",
    kernel: "ocp mxfp4",
    mistake: { scaled: (y) => (y === 0 ? -0 : y) },
    called: /plus zero becomes minus zero/,
    source: "ModelOpt's MXFP4 cast",
  },
  {
    name: "subnormal codes flushed",
    kernel: MX,
    mistake: { store: coded((code) => ((code & 0x7f) < 8 ? code & 0x80 : code)) },
    called: /subnormal codes are flushed/,
    source: "kernels without denormal support",
  },
  {
    name: "subnormal inputs flushed",
    kernel: MX,
    mistake: { load: (x) => (Math.abs(x) < 2 ** -126 ? x * 0 : x) },
    called: /subnormal (inputs|numbers) are flushed/,
    source: "-ftz=true, --use_fast_math",
  },
  {
    name: "NaN in the amax",
    kernel: MX,
    mistake: {
      amax: (values) => (values.some(Number.isNaN) ? Number.NaN : largest(values)),
    },
    called: /NaN enters the amax/,
    source: "torch.amax propagates NaN",
  },
  {
    name: "NaN becomes zero",
    kernel: MX,
    mistake: { store: coded((code) => ((code & 0x7f) === 0x7f ? 0 : code)) },
    called: /NaN handling is missing/,
    source: PUBLISHED,
  },
  {
    name: "overflow becomes NaN, without a clamp",
    kernel: "ocp mxfp8",
    mistake: { round: encodeBy((fraction, isOdd) => fraction > 0.5 || (fraction === 0.5 && isOdd), 0x7f) },
    called: /saturation is missing/,
    source: "(w / scale).to(e4m3fn) on a CPU; ModelOpt FP8",
  },
  {
    name: "wrong exponent of the largest element",
    kernel: "ocp mxfp8",
    mistake: { scale: ({ code }) => Math.min(code + 1, 254), redo: true },
    called: /scales are 2\^1 times as large/,
    source: "emax 7 of IEEE-like e4m3 in place of 8",
  },
  {
    name: "small scales clamped",
    kernel: MX,
    mistake: { scale: ({ code }) => Math.max(code, 113), redo: true },
    called: /at least 2\^-14/,
    source: "scale computed in f16",
  },
  {
    name: "scale of zeros is 1",
    kernel: MX,
    mistake: { scale: ({ code }, amax) => (amax === 0 ? 127 : code), redo: true },
    called: /block of zeros is 1/,
    source: "ModelOpt NVFP4: zero block → 1",
  },
  {
    name: "nibbles swapped",
    kernel: "ocp mxfp4",
    mistake: {
      store: (stored) => ({ ...stored, codes: stored.codes.map((_, i) => stored.codes[i ^ 1] as number) }),
    },
    called: /nibbles are swapped/,
    source: PUBLISHED,
  },
  {
    name: "tables of e4m3fnuz",
    kernel: MX,
    mistake: {
      round: (y) =>
        encodeBy((fraction, isOdd) => fraction > 0.5 || (fraction === 0.5 && isOdd))(y, "e4m3fnuz"),
    },
    called: /codes are those of e4m3fnuz/,
    source: `${PUBLISHED}: e4m3fn read as e4m3fnuz`,
  },
  {
    name: "scales stored swizzled where plain ones are due",
    kernel: MX,
    mistake: {
      store: (stored) => {
        const { scales, across, rows } = stored;
        const tiles = Math.ceil(across / 4);
        const moved = scales.map((_, at) => {
          const [tile, within] = [Math.floor(at / 512), at % 512];
          const row =
            Math.floor(tile / tiles) * 128 + Math.floor((within % 16) / 4) * 32 + Math.floor(within / 16);
          const column = (tile % tiles) * 4 + (within % 4);
          return row < rows && column < across ? (scales[row * across + column] as number) : 0;
        });
        return { ...stored, scales: moved };
      },
    },
    called: /swizzled/,
    source: `${PUBLISHED}; torchao is_swizzled_scales`,
  },
  {
    name: "scales stored transposed",
    kernel: MX,
    mistake: {
      store: (stored) => ({
        ...stored,
        scales: stored.scales.map(
          (_, i) => stored.scales[(i % stored.rows) * stored.across + Math.floor(i / stored.rows)] as number,
        ),
      }),
    },
    called: /scales are stored transposed/,
    source: `${PUBLISHED}: expert scales of the wrong axis`,
  },
  {
    name: "double rounding through bf16",
    kernel: MX,
    mistake: { scaled: (y) => bf16(y) },
    called: /rounded to bf16.*double rounding/,
    source: "compressed-tensors and ModelOpt FP8 divide in bf16",
  },
  {
    name: "inputs read as bf16",
    kernel: MX,
    mistake: { load: bf16 },
    called: /inputs are rounded to bf16/,
    source: "x.to(bf16) before the kernel",
  },
  {
    name: "maximum without the absolute value",
    kernel: MX,
    mistake: { amax: (values) => values.reduce((most, x) => Math.max(x, most), 0) },
    called: /without the absolute value/,
    source: "x.max() in place of x.abs().max()",
  },
  {
    name: "scales of the call before",
    kernel: MX,
    mistake: { stale: true },
    called: /stale scales/,
    source: "a scale buffer that is computed for the next call",
  },
  {
    name: "the last block takes its neighbour's amax",
    kernel: MX,
    mistake: {
      amax: (values, row, b) =>
        b > 0 && (b + 1) * 32 === row.length ? largest(row.subarray((b - 1) * 32, b * 32)) : largest(values),
    },
    called: /last block of a line has the amax of the block before/,
    source: `${PUBLISHED}: shard narrower than a block`,
  },
  {
    name: "amax of half of the block",
    kernel: MX,
    mistake: { amax: (values) => largest(values.subarray(0, 16)) },
    called: /first half of the block/,
    source: "a reduction over half a warp",
  },
  {
    name: "amax of the row",
    kernel: MX,
    mistake: { amax: (_, row) => largest(row) },
    called: /amax is that of the whole row/,
    source: `${PUBLISHED}: scales flattened`,
  },
  {
    name: "reciprocal stored",
    kernel: "te fp8-block",
    mistake: ofScale((s) => f(1 / s)),
    called: /reciprocal of the scale is stored/,
    source: `${PUBLISHED}: weight_scale_inv multiplies`,
  },
  {
    name: "scales rounded to bf16",
    kernel: "te fp8-block",
    mistake: ofScale(bf16),
    called: /scales are rounded to bf16/,
    source: "a loader of transformers",
  },
  {
    name: "scales rounded up to powers of two without quantizing again",
    kernel: "deepseek fp8-block",
    mistake: ofScale((s) => (s > 0 && Number.isFinite(s) ? f(2 ** Math.ceil(Math.log2(s))) : s)),
    called: /powers? of two.*not quantized again/,
    source: `${PUBLISHED}: UE8M0 rounded without requantizing`,
  },
  {
    name: "the last block of a row reads on into the next row",
    kernel: "te fp8-block",
    mistake: {
      amax: (values, row, b, matrix) => {
        const at = (row.byteOffset - matrix.byteOffset) / 4 + b * 128;
        return largest(
          matrix.subarray(at, Math.min(at + 128, matrix.length)).length > values.length
            ? matrix.subarray(at, at + 128)
            : values,
        );
      },
    },
    called: /behind the line in memory/,
    source: "amax of padding, without a mask",
  },
  {
    name: "multiplied by the factor where the convention divides",
    kernel: "deepseek fp8-block",
    mistake: { convention: { scale: "f32-multiply" } },
    called: /scale rule is f32 /,
    source: "27 % of f32 scales differ between dividing and multiplying",
  },
  {
    name: "the scale of the tensor left out",
    kernel: "nvfp4",
    mistake: { tensorAmax: () => 2688 },
    called: /scale of the tensor is left out/,
    source: `${PUBLISHED}: global scale dropped`,
  },
  {
    name: "4over6 left out",
    kernel: "nvfp4",
    mistake: {},
    heldTo: makeSpec("nvfp4", { tile: "1x16", fourOverSix: "mse", e4m3Max: 448 }),
    called: /4over6 is missing/,
    source: "NVFP4 4over6 of TransformerEngine and ModelOpt",
  },
  {
    name: "NVFP4 nibbles swapped",
    kernel: "nvfp4",
    mistake: {
      store: (stored) => ({ ...stored, codes: stored.codes.map((_, i) => stored.codes[i ^ 1] as number) }),
    },
    called: /nibbles are swapped/,
    source: PUBLISHED,
  },
  {
    name: "exponents stored without their bias",
    kernel: MX,
    mistake: { scale: ({ code }) => (code - 127) & 255 },
    called: /without its bias/,
    source: "int8 exponents in place of e8m0",
  },
];
