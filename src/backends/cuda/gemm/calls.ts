/** The declarations of the addon's calls for matrix products (native-arguments.ts). */
import { bounded, type Declaration, type Declarations, group, reads, writes } from "../native-arguments.js";

const int32 = bounded({ to: 2 ** 31 - 1 });

const multipleOf = (step: number, name: string) =>
  ({ condition: `${name} % ${step} == 0`, message: `${name} is not a multiple of ${step}` }) as const;

/**
 * The factors of s = (alpha' * scaleW) * scaleX, where alpha' = ((alpha * amaxW) * amaxX) * inverse. A factor that is left out
 * is 1. `scalesW` and `scalesX` are the numbers of scales, in C++.
 */
const factors = (scalesW: string, scalesX: string) =>
  group("GemmFactors", {
    alpha: "float",
    "amaxW?": reads.f32("1"),
    "amaxX?": reads.f32("1"),
    /** NVFP4 divides each amax by a constant. This is 1 over the product of these constants, or 1 without amaxes. */
    inverse: "float",
    "scaleW?": reads.f32(scalesW),
    "scaleX?": reads.f32(scalesX),
  });

/** Block scales along K. Element (line, k) has scale (line >> lineShift) * lineStride + k / length * blockStride. */
const blockScales = <const F extends Declaration>(lines: string, conditions: F) =>
  group("GemmBlockScales", {
    data: reads.bits(
      `blockScaleElements(${lines}, depth, lineShift, length, lineStride, blockStride)`,
      "Null if there are no scales.",
      "word == 0 ? 32 : 8",
    ),
    /** The format of scales of one byte, whose sign is ignored; 0 means f32. */
    word: "word",
    lineShift: bounded({ to: 31, type: "uint32_t" }),
    length: bounded({ from: 1, to: 2 ** 31 - 1, type: "uint32_t" }),
    lineStride: "count",
    blockStride: "count",
    width: {
      condition: "word == 0 || storageBits(word) <= 8",
      message: "scales.word is a format of more than 8 bits",
    },
    ...conditions,
  });

/** The description of a product for cuBLASLt. See gemm/descriptor.ts. */
const PRODUCT = {
  m: "count",
  n: "count",
  k: "count",
  batch: "count",
  "aStride?": "count",
  "bStride?": "count",
  "cStride?": "count",
  "dStride?": "count",
  transposeA: "flag",
  transposeB: "flag",
  aType: "count",
  bType: "count",
  cType: "count",
  dType: "count",
  aPitch: "count",
  bPitch: "count",
  cPitch: "count",
  dPitch: "count",
  tf32: "flag",
  fastAccumulation: "flag",
  deviceScalars: "flag",
  "aScaleMode?": "count",
  "bScaleMode?": "count",
  "biasType?": "count",
  "auxType?": "count",
} as const;

const PLAN = { plan: "count" } as const;

/** The 64 bytes of a cuBLASLt algorithm as 32-bit words. */
export const ALGORITHM_WORDS = {
  word0: "word",
  word1: "word",
  word2: "word",
  word3: "word",
  word4: "word",
  word5: "word",
  word6: "word",
  word7: "word",
  word8: "word",
  word9: "word",
  word10: "word",
  word11: "word",
  word12: "word",
  word13: "word",
  word14: "word",
  word15: "word",
} as const;

export const GEMM_CALLS = {
  gemm: {
    ...PLAN,
    a: "pointer",
    aOffset: "count",
    b: "pointer",
    bOffset: "count",
    "c?": "pointer",
    d: "pointer",
    "aScale?": "pointer",
    "bScale?": "pointer",
    "bias?": "pointer",
    "aux?": "pointer",
    alpha: "float",
    beta: "float",
    "scalars?": "pointer",
    "times?": "count",
  },
  gemmForget: PLAN,
  /**
   * Products in plain f32 arithmetic: the datapath `fp32` (datapath.md §4). out[m, n] is the sum over k of x[m, k] * w[n, k],
   * starting at +0, in ascending order of k. Every product and every sum is rounded. Pitches are in elements.
   */
  gemmPlain: {
    batch: int32,
    x: reads.f32(
      "stridedElements(batch, rows, depth, xPitch)",
      "f32 [batch, rows, depth], aligned to 16 bytes.",
    ),
    w: reads.f32("stridedElements(batch, columns, depth, wPitch)", "f32 [batch, columns, depth], likewise."),
    xPitch: "count",
    wPitch: "count",
    rows: "count",
    columns: "count",
    depth: "count",
    out: writes.f32("stridedElements(batch, rows, columns, outPitch)"),
    outPitch: "count",
    xStep: multipleOf(4, "xPitch"),
    wStep: multipleOf(4, "wPitch"),
  },
  /**
   * Products of a few bf16 rows with codes, on Hopper: out[m, n] = s * sum over k of x[m, k] * w[n, k]. s is the product of the
   * factors, and w a code times its scale, rounded to f32 and then to bf16. K is divided into `splits` slices, as datapath.md §2
   * does for bf16, whose lengths are multiples of 128. Formats: e2m1 with e4m3 scales for each 16 elements or e8m0 scales for
   * each 32, and e4m3 without scales, with e8m0 scales for each 32, or with f32 scales for each 128.
   */
  gemmFewRows: {
    x: reads.bf16("rows * depth"),
    data: reads.bytes("columns * rowBytes(depth, operandWidth(word))", "[columns, depth]"),
    word: "word",
    "scales?": blockScales("columns", {}),
    rows: bounded({ from: 1, to: 64 }),
    columns: int32,
    depth: int32,
    splits: bounded({ from: 1, to: 32 }),
    factors: factors("1", "1"),
    out: writes.wide("rows * columns"),
    step: multipleOf(128, "depth"),
  },
  /**
   * Converts an operand to the form that its datapath multiplies: lines along K, rounded, padded with zeros. The operands of a
   * batch are contiguous in both.
   */
  gemmOperand: {
    batch: int32,
    /** Codes of the format `word`: [lines, depth] or, if transposed, [depth, lines]. Rows start at whole bytes. */
    data: reads.bytes(
      "batch * (transposed ? depth : lines) * rowBytes(transposed ? lines : depth, operandWidth(word))",
    ),
    word: "word",
    transposed: "flag",
    lines: "count",
    depth: int32,
    "scales?": blockScales("lines", {
      single: {
        condition: "batch <= 1",
        message: "scales were given for a batch of operands; only a batch of 1 can have them",
      },
    }),
    /**
     * `plain` copies the codes unchanged. `bf16` rounds value * scale to f32, then to bf16 (nearest even, overflow to
     * infinity). `tf32` rounds to tf32 in the same way, stored as f32. `scaled` rounds value * scale to f32.
     */
    staging: "staging",
    /** outLines lines of outPitch bytes, zero beyond `lines` and `depth`. */
    out: writes.bytes("batch * outLines * outPitch"),
    outLines: "count",
    outPitch: "count",
    step: multipleOf(16, "outPitch"),
    known: {
      condition: "staging != Staging::kGrouped",
      message: "staging is kGrouped, which only the reference has",
    },
  },
  /**
   * Applies scales, beta and bias to the sums of products in f32, with one rounding per operation (one fused multiply-add for
   * scale and beta), and then rounds to the output type (datapath.md §2).
   */
  gemmEpilogue: {
    "sums?": reads.f32(
      "sumElements(rows, itemRows, sumsSkipped, columns, sumsPitch)",
      "[rows, columns]; null means that all are zero. They may alias an f32 `out` of the same layout.",
    ),
    sumsPitch: "count",
    /** The number of rows of the sums to skip after each `itemRows` rows: those between padded items of a batch. */
    sumsSkipped: "count",
    itemRows: bounded({ from: 1 }),
    rows: "count",
    columns: int32,
    factors: factors("linesW ? columns : 1", "linesX ? rows : 1"),
    /**
     * Whether factors.scaleW has one scale per column, and factors.scaleX one scale per row, instead of one for the matrix. Both
     * require a single product, not a batch. Each sum is then multiplied by its column's scale, its row's scale and alpha', which
     * replaces s. `split` has no effect then. If alpha' is 1 and beta is 0, the scaled sum is the result.
     */
    linesW: "flag",
    linesX: "flag",
    /**
     * Whether amaxW has one amax per column, and amaxX one amax per row, instead of one for the matrix. Both require a single
     * product. With either, p is the result below with beta 0 and no bias; p is multiplied by both amaxes (null means 1), the
     * bias is added, a 16-bit result is rounded, and beta * c is added (numerics.md §5.10). The two amaxes are multiplied first,
     * unless several rows and several columns each have an amax.
     */
    lineAmaxesW: "flag",
    lineAmaxesX: "flag",
    "amaxW?": reads.f32("lineAmaxesW ? columns : 1"),
    "amaxX?": reads.f32("lineAmaxesX ? rows : 1"),
    /**
     * The result is fma(s, sum, beta * c), or with `split` fma(beta, c, s * sum). If beta is 0, c is not read; the result is
     * then fma(s, sum, +0), or with `split` s * sum.
     */
    beta: "float",
    "c?": reads.wide("rows * columns"),
    split: "flag",
    "bias?": reads.wide("columns", "One value per column; null means no bias."),
    out: writes.bits("rows * columns", "May alias `c`.", "gemmResultWidth(word)"),
    /** The format of the result; 0 is f32. 8-bit formats encode x * outScale with saturation. */
    word: "word",
    outScale: "float",
    "amax?": writes.f32(
      "1",
      "If not null, is set to the largest |x| before outScale is applied, NaN ignored.",
    ),
    items: { condition: "rows % itemRows == 0", message: "rows is not a multiple of itemRows" },
    linesItem: {
      condition: "!(linesX || lineAmaxesX) || rows <= itemRows",
      message: "scales and amaxes of rows go with one product, not with a batch",
    },
    linesScales: {
      condition: "(!linesW || factors.scaleW) && (!linesX || factors.scaleX)",
      message: "scales of lines were announced and not given",
    },
    linesAmaxes: {
      condition: "(!lineAmaxesW || amaxW) && (!lineAmaxesX || amaxX)",
      message: "amaxes of lines were announced and not given",
    },
    addend: { condition: "beta == 0 || c", message: "beta is not 0, and c was not given" },
    result: {
      condition: "gemmResultWidth(word) != 0",
      message: "word is not an output format of a product",
    },
  },
  /** Writes s and beta to device memory, where cuBLASLt reads its scalars. */
  gemmAlpha: { factors: factors("1", "1"), beta: "float", out: writes.f32("2") },
} as const satisfies Declarations;

/** The calls that return a value. addon.ts declares the types of the values. */
export const GEMM_QUERIES = {
  gemmPlan: PRODUCT,
  gemmCandidates: {
    ...PLAN,
    count: "count",
    schemes: "count",
    alignment: "count",
    workspace: "count",
  },
  gemmConfigure: {
    ...PLAN,
    id: "count",
    tile: "word",
    stages: "word",
    splitK: "count",
    scheme: "word",
    swizzle: "word",
    customOption: "word",
    innerShape: "count",
    cluster: "count",
  },
  gemmChoose: { ...PLAN, ...ALGORITHM_WORDS },
} as const satisfies Declarations;
