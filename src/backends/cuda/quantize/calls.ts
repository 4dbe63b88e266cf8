/** The declarations of the addon's calls for quantization (native-arguments.ts). */
import type { Declaration } from "../native-arguments.js";
import { CLAMP, NORM_SOURCE, OUT, RANDOM, SCALES, SIZE, SOURCE } from "../shared-arguments.js";

const COPY = { codes: "pointer", ...SCALES } as const;

const NVFP4_COPY = { ...COPY, amax: "pointer", "givenAmax?": "pointer" } as const;

const COPIES = { "rowwise?": COPY, "columnwise?": COPY } as const;

const ACTIVATED = { ...SOURCE, gated: "flag", kind: "activation", "clamp?": CLAMP, word: "word" } as const;

const SCALE_OUT = { "rowwiseScaleInv?": "pointer", "columnwiseScaleInv?": "pointer" } as const;

const DELAYED = { ...SCALE_OUT, scale: "pointer", "amaxRecord?": "pointer" } as const;

const BLOCK = {
  ...SOURCE,
  word: "word",
  square: "flag",
  inPlace: "flag",
  pow2: "flag",
  epsilon: "float",
  "noop?": "pointer",
  ...COPIES,
} as const;

const TENSOR = {
  ...SOURCE,
  word: "word",
  "rowwise?": "pointer",
  "columnwise?": "pointer",
  ...SCALE_OUT,
  "scale?": "pointer",
  "amax?": "pointer",
  pow2: "flag",
  epsilon: "float",
  "amaxRecord?": "pointer",
  "noop?": "pointer",
} as const;

export const QUANTIZE_CALLS = {
  quantizeBlock: BLOCK,
  quantizeTensor: { ...TENSOR, "workspace?": "pointer" },
  biasGradQuantizeBlock: { ...BLOCK, ...OUT, workspace: "pointer" },
  biasGradQuantizeTensor: { ...TENSOR, ...OUT, workspace: "pointer" },
  quantizeMx: {
    ...SOURCE,
    word: "word",
    rule: "scaleRule",
    square: "flag",
    stochastic: "flag",
    ...RANDOM,
    "noop?": "pointer",
    ...COPIES,
  },
  quantizeNvfp4: {
    ...SOURCE,
    square: "flag",
    transforms: "flag",
    signs: "word",
    stochastic: "flag",
    ...RANDOM,
    fourOverSix: "flag",
    squaredError: "flag",
    e4m3Max: "float",
    "noop?": "pointer",
    "rowwise?": NVFP4_COPY,
    "columnwise?": NVFP4_COPY,
  },
  activationQuantizeTensor: {
    ...ACTIVATED,
    "grad?": { data: "pointer", type: "wide" },
    "rowwise?": "pointer",
    "columnwise?": "pointer",
    ...DELAYED,
  },
  activationQuantizeMx: { ...ACTIVATED, "grad?": { data: "pointer", type: "wide" }, ...COPIES },
  normQuantizeTensor: { ...NORM_SOURCE, word: "word", rowwise: "pointer", ...DELAYED },
  hadamard: { x: "pointer", out: "pointer", ...SIZE, signs: "word" },
  dequantize: {
    codes: "pointer",
    word: "word",
    ...SIZE,
    transposed: "flag",
    across: "flag",
    ...SCALES,
    scaleWord: "word",
    lineShift: "count",
    blockShift: "count",
    "amax?": "pointer",
    inverse: "float",
    ...OUT,
  },
} as const satisfies Readonly<Record<string, Declaration>>;
