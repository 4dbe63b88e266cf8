/** The operations that a witness samples. */
import { OPERATORS } from "../elementwise.js";
import type { OpName } from "../ops.js";
import { sampleAttention } from "./attention.js";
import { sampleGemm } from "./gemm.js";
import { quantizeSampler } from "./quantize.js";
import { rowSampler } from "./rows.js";
import type { Sampler } from "./sample.js";

const CAUSAL = "the mask of causal softmax depends on the row";
const refusesCausal = ({ causal }: { readonly causal: boolean }): string | undefined =>
  causal ? CAUSAL : undefined;

/** Elementwise operators: every row of the result follows from the same row of the inputs. */
const operators = Object.fromEntries(
  (Object.keys(OPERATORS) as (keyof typeof OPERATORS)[]).map((op) => [op, rowSampler(op, {})]),
);

export const SAMPLERS: { readonly [K in OpName]?: Sampler<K> } = {
  ...operators,
  attention: sampleAttention,
  gemm: sampleGemm,
  quantize: quantizeSampler("quantize"),
  biasGradQuantize: quantizeSampler("biasGradQuantize"),
  activationQuantize: quantizeSampler("activationQuantize"),
  normQuantize: quantizeSampler("normQuantize"),
  specialFunction: rowSampler("specialFunction", {}),
  norm: rowSampler("norm", { whole: ["gamma", "beta"] }),
  activation: rowSampler("activation", {}),
  activationBackward: rowSampler("activationBackward", {}),
  gated: rowSampler("gated", {}),
  gatedBackward: rowSampler("gatedBackward", {}),
  softmax: rowSampler("softmax", { refuses: refusesCausal }),
  softmaxBackward: rowSampler("softmaxBackward", { refuses: refusesCausal }),
  crossEntropy: rowSampler("crossEntropy", {}),
  crossEntropyBackward: rowSampler("crossEntropyBackward", {}),
};
