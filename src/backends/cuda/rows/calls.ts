/** The declarations of the addon's calls for operations on rows (native-arguments.ts). */
import type { Declaration } from "../native-arguments.js";
import { DX, GRAD, NORM_SOURCE, OUT, SIZE, SOURCE } from "../shared-arguments.js";

const LOGITS = {
  logits: "pointer",
  logitsType: "wide",
  targets: "pointer",
  maximum: "pointer",
  total: "pointer",
  ...SIZE,
  smoothing: "float",
  ignore: "word",
} as const;

const PAIR = { ...SOURCE, target: "pointer", targetType: "wide" } as const;

export const ROWS_CALLS = {
  norm: { ...NORM_SOURCE, ...OUT, "amax?": "pointer" },
  normBackward: {
    ...GRAD,
    ...SOURCE,
    gamma: "pointer",
    parameterType: "wide",
    "mean?": "pointer",
    rstd: "pointer",
    ...DX,
    dgamma: "pointer",
    "dbeta?": "pointer",
    gradientType: "wide",
    workspace: "pointer",
    zeroCentered: "flag",
  },
  columnSum: { ...SOURCE, ...OUT, workspace: "pointer" },
  crossEntropy: { ...LOGITS, loss: "pointer" },
  crossEntropyBackward: { ...LOGITS, grad: "pointer", ...DX },
  mse: { ...PAIR, loss: "pointer" },
  mseBackward: { ...PAIR, grad: "pointer", ...DX },
  embedding: {
    table: "pointer",
    tableType: "wide",
    ids: "pointer",
    ...OUT,
    count: "count",
    vocabulary: "count",
    columns: "count",
  },
  embeddingBackward: {
    ...GRAD,
    ids: "pointer",
    ...OUT,
    count: "count",
    vocabulary: "count",
    columns: "count",
    workspace: "pointer",
  },
  softmax: { ...SOURCE, period: "count", scale: "float", ...OUT },
  softmaxBackward: {
    ...SIZE,
    period: "count",
    ...GRAD,
    y: "pointer",
    yType: "wide",
    scale: "float",
    ...DX,
  },
} as const satisfies Readonly<Record<string, Declaration>>;
