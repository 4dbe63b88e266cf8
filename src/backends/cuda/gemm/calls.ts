/** The declarations of the addon's calls for matrix products (native-arguments.ts). */
import type { Declarations } from "../native-arguments.js";
import { SIZE } from "../shared-arguments.js";

/** The factors by which the sums of a product are multiplied. */
const FACTORS = {
  factors: {
    alpha: "float",
    "amaxW?": "pointer",
    "amaxX?": "pointer",
    inverse: "float",
    "scaleW?": "pointer",
    "scaleX?": "pointer",
  },
} as const;

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
  gemmPlain: {
    batch: "count",
    x: "pointer",
    w: "pointer",
    xPitch: "count",
    wPitch: "count",
    ...SIZE,
    depth: "count",
    out: "pointer",
    outPitch: "count",
  },
  gemmOperand: {
    batch: "count",
    data: "pointer",
    word: "word",
    transposed: "flag",
    lines: "count",
    depth: "count",
    "scales?": {
      data: "pointer",
      word: "word",
      lineShift: "count",
      length: "count",
      lineStride: "count",
      blockStride: "count",
    },
    staging: "staging",
    out: "pointer",
    outLines: "count",
    outPitch: "count",
  },
  gemmEpilogue: {
    ...FACTORS,
    linesW: "flag",
    linesX: "flag",
    "sums?": "pointer",
    sumsPitch: "count",
    sumsSkipped: "count",
    ...SIZE,
    itemRows: "count",
    beta: "float",
    "c?": "pointer",
    cType: "wide",
    split: "flag",
    "bias?": "pointer",
    biasType: "wide",
    out: "pointer",
    word: "word",
    outScale: "float",
    "amax?": "pointer",
  },
  gemmAlpha: { ...FACTORS, beta: "float", out: "pointer" },
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
