/** The softmax attention of a layer. */
import type { Backend } from "../../backends/backend.js";
import { DotProductAttention } from "../../modules/dot-product-attention.js";
import type { ModuleOptions } from "../../modules/module.js";
import type { AttentionConfig } from "../config/config.js";

/** Creates the softmax attention of layer `layerNumber`, counted from 1. Queries, keys and values are [B, T, heads, width]. */
export function coreAttention(
  backend: Backend,
  config: AttentionConfig,
  layerNumber: number,
  options: ModuleOptions,
): DotProductAttention {
  const { heads, keyValueHeads, headDim, valueDim = headDim, window, scale, softcap, sinks } = config;
  return new DotProductAttention(backend, heads, [headDim, valueDim], {
    ...options,
    ...{ layerNumber, numGqaGroups: keyValueHeads, qkvFormat: "bshd", softmaxScale: scale, softcap },
    ...(window === undefined ? {} : { windowSize: [window - 1, 0] }),
    ...(sinks ? { softmaxType: "learnable" } : {}),
  });
}
