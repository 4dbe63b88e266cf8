/** Rows of the modules of attention. */
import { InferenceParams } from "../../../../src/modules/attention/inference-params.js";
import { DotProductAttention } from "../../../../src/modules/dot-product-attention.js";
import { MultiheadAttention } from "../../../../src/modules/multihead-attention.js";
import { constantInit } from "../../../../src/modules/parameter.js";
import { TransformerLayer } from "../../../../src/modules/transformer-layer.js";
import type { Rows } from "./row.js";
import { singleRankGroup } from "./rows-distributed.js";
import type { World } from "./world.js";

const SAME_CHECK = "the same check as of DotProductAttention.forward";
const commonOptions = (w: World) => ({ dtype: "bf16", random: w.random }) as const;
const maskOptions = {
  attnMaskType: "no_mask",
  windowSize: [4, 2],
  bottomRightDiagonal: true,
  softcap: 30,
} as const;
const attentionOptions = (w: World) =>
  ({
    ...{ ...commonOptions(w), ...maskOptions, group: singleRankGroup(w), sequenceParallel: false },
    ...{ numGqaGroups: 2, attentionDropout: 0.5, qkvFormat: "bshd", softmaxScale: 0.5, layerNumber: 1 },
    ...{ cpGroup: singleRankGroup(w), cpCommType: "p2p" },
  }) as const;
const multiheadOptions = (w: World) => {
  const init = constantInit(0.5);
  return {
    ...{ ...attentionOptions(w), initMethod: init, outputLayerInitMethod: init, kvChannels: 8 },
    ...{ normalization: "RMSNorm", zeroCenteredGamma: true, bias: true, layernormEpsilon: 1e-5 },
    ...{ fuseQkvParams: true, qkvWeightInterleaved: true, qkNormEps: 1e-6, qkNormBeforeRope: true },
    ...{ fuseWgradAccumulation: false, qkNormType: "RMSNorm", softmaxType: "vanilla" },
  } as const;
};
const transformerLayerOptions = (w: World) => {
  const { attnMaskType: _, qkvFormat: __, ...layerOptions } = multiheadOptions(w);
  return {
    ...{
      ...layerOptions,
      hiddenDropout: 0,
      dropPathRate: 0.5,
      selfAttnMaskType: "no_mask",
      encDecAttnMaskType: "no_mask",
    },
    ...{ encDecWindowSize: [4, 4], encDecBottomRightDiagonal: true, layerType: "decoder" },
    ...{ applyResidualConnectionPostLayernorm: true, outputLayernorm: false, parallelAttentionMlp: false },
    ...{ activation: "swiglu", attnInputFormat: "bshd" },
  } as const;
};
const moduleOptions = (w: World) => ({ ...commonOptions(w), initMethod: constantInit(0.5) });

const WINDOWS = { "options.windowSize.0": "integer", "options.windowSize.1": "integer" } as const;
const ATTENTION_NUMBERS = {
  ...WINDOWS,
  "options.softcap": "atLeastZero",
  "options.numGqaGroups": "count",
  "options.attentionDropout": "rate",
  "options.dropPathRate": "rate",
  "options.softmaxScale": "above",
  "options.layerNumber": "count",
  "options.kvChannels": "count",
  "options.layernormEpsilon": "atLeastZero",
  "options.qkNormEps": "atLeastZero",
  numAttentionHeads: "count",
} as const;

const inferenceCache = (w: World): InferenceParams => {
  const params = w.own(new InferenceParams(w.backend, 2, 8, { numHeadsKv: 4, headDimK: 16 }));
  params.preStep(new Map([["a", 1]]));
  return params;
};
const CALL_NUMBERS = {
  "call.softcap": "atLeastZero",
  "call.windowSize.0": "integer",
  "call.windowSize.1": "integer",
} as const;
const MASK_CALL = { bottomRightDiagonal: true, softcap: 30, windowSize: [4, 2] } as const;
const heads = (w: World, shape = [3, 2, 4, 16]) =>
  [w.tensor("bf16", shape), w.tensor("bf16", shape), w.tensor("bf16", shape)] as const;

/** Options of calls that modules pass to DotProductAttention. */
const FORWARDED_OPTIONS = Object.fromEntries(
  [
    ...["attentionMask", "cuSeqlensQ", "cuSeqlensKv", "cuSeqlensQPadded", "cuSeqlensKvPadded", "seqlensQ"],
    ...["seqlensKv", "coreAttentionBias", "alibiSlopes", "inferenceParams", "encDecAttnMask"],
  ].map((name) => [`call.${name}`, SAME_CHECK]),
);
/** The argument `angles`: two tensors and a flag, or two such triples. */
const ANGLES = {
  "call.rotaryPosEmb.0": "tests/modules/multihead-attention.test.ts",
  "call.rotaryPosEmb.1": "tests/modules/multihead-attention.test.ts",
} as const;

const multiheadCall = (w: World) =>
  [
    w.tensor("bf16", [3, 2, 16]),
    {
      ...{ ...MASK_CALL, attnMaskType: "no_mask", qkvFormat: "sbhd", training: false },
      ...{ isFirstMicrobatch: true, skipFp8WeightUpdate: w.scalar(0), checkpointCoreAttention: false },
      encoderOutput: w.tensor("bf16", [3, 2, 16]),
      rotaryPosEmb: { cos: w.tensor("f32", [3, 4]), sin: w.tensor("f32", [3, 4]), interleaved: true },
      coreAttentionBiasType: "no_bias",
    },
  ] as const;
const crossAttention = (w: World) =>
  w.own(
    new MultiheadAttention(w.backend, 16, 2, {
      ...{ ...moduleOptions(w), attentionDropout: 0 },
      ...{ attentionType: "cross", inputLayernorm: true },
    }),
  );

export const ATTENTION_MODULE_ROWS: Rows = {
  DotProductAttention: {
    calls: [
      (w) => [w.backend, 4, 16, { ...attentionOptions(w), softmaxType: "learnable" as const }],
      (w) => [w.backend, 4, [16, 8], commonOptions(w)],
    ],
    numbers: { ...ATTENTION_NUMBERS, kvChannels: "count", "kvChannels.0": "count", "kvChannels.1": "count" },
  },
  MultiheadAttention: {
    calls: [
      (w) => [
        w.backend,
        16,
        2,
        { ...multiheadOptions(w), attentionType: "self" as const, inputLayernorm: true },
      ],
      (w) => [
        w.backend,
        16,
        2,
        { ...moduleOptions(w), attentionType: "cross" as const, qkvFormat: "bshd" as const },
      ],
    ],
    numbers: { ...ATTENTION_NUMBERS, hiddenSize: "count" },
  },
  TransformerLayer: {
    calls: [
      (w) => [w.backend, 16, 32, 2, transformerLayerOptions(w)],
      (w) => [w.backend, 16, 32, 2, { ...moduleOptions(w), parallelAttentionMlp: true }],
      (w) => [w.backend, 16, 32, 2, moduleOptions(w)],
    ],
    numbers: {
      ...ATTENTION_NUMBERS,
      hiddenSize: "count",
      ffnHiddenSize: "count",
      "options.hiddenDropout": "rate",
      "options.encDecWindowSize.0": "integer",
      "options.encDecWindowSize.1": "integer",
    },
  },
  InferenceParams: {
    calls: [
      (w) => [
        w.backend,
        2,
        8,
        {
          ...{ numHeadsKv: 1, headDimK: 16, headDimV: 8, dtype: "bf16" as const },
          ...{ isPaged: true, pageSize: 4, totalNumPages: 4 },
          ...{ format: "e4m3" as const, kScales: [0.5], vScales: [2] },
        },
      ],
      (w) => [w.backend, 2, 8, { numHeadsKv: 1, headDimK: 16, headDimV: 8 }],
    ],
    numbers: {
      maxBatchSize: "count",
      maxSequenceLength: "count",
      "options.numHeadsKv": "count",
      "options.headDimK": "count",
      "options.headDimV": "count",
      "options.pageSize": "count",
      "options.totalNumPages": "count",
      "options.kScales.0": "above",
      "options.vScales.0": "above",
    },
  },
  "InferenceParams.preStep": {
    calls: [() => [new Map([[0, 1]])]],
    self: (w) => w.own(new InferenceParams(w.backend, 2, 8, { numHeadsKv: 1, headDimK: 16 })),
  },
  "DotProductAttention.forward": {
    calls: [
      (w) => [
        ...heads(w, [2, 3, 4, 16]),
        {
          ...{ ...MASK_CALL, attnMaskType: "padding", qkvFormat: "bshd", training: true },
          ...{
            seqlensQ: w.tensor("i32", [2]),
            seqlensKv: w.tensor("i32", [2]),
            checkpointCoreAttention: true,
          },
          ...{ coreAttentionBiasType: "post_scale_bias", coreAttentionBias: w.tensor("bf16", [1, 4, 3, 3]) },
        },
      ],
      (w) => [
        ...heads(w, [6, 4, 16]),
        {
          ...{ attnMaskType: "padding_causal", qkvFormat: "thd" },
          ...{ cuSeqlensQ: w.tensor("i32", [3]), cuSeqlensKv: w.tensor("i32", [3]) },
          ...{ cuSeqlensQPadded: w.tensor("i32", [3]), cuSeqlensKvPadded: w.tensor("i32", [3]) },
        },
      ],
      (w) => [
        ...heads(w),
        {
          ...{ attnMaskType: "arbitrary", attentionMask: w.tensor("u8", [1, 1, 3, 3]) },
          ...{ coreAttentionBiasType: "alibi", alibiSlopes: w.tensor("f32", [4]) },
        },
      ],
      (w) => [
        ...heads(w, [1, 1, 4, 16]),
        { attnMaskType: "padding_causal", inferenceParams: inferenceCache(w) },
      ],
    ],
    self: (w) =>
      w.own(new DotProductAttention(w.backend, 4, 16, { ...commonOptions(w), softmaxType: "off-by-one" })),
    numbers: CALL_NUMBERS,
    // it holds no tensors
    survivesDispose: true,
  },
  "MultiheadAttention.forward": {
    calls: [multiheadCall],
    self: crossAttention,
    numbers: CALL_NUMBERS,
    exemptions: { ...FORWARDED_OPTIONS, ...ANGLES },
  },
  "MultiheadAttention.forwardWithNorm": {
    calls: [multiheadCall],
    self: crossAttention,
    numbers: CALL_NUMBERS,
    exemptions: { ...FORWARDED_OPTIONS, ...ANGLES },
  },
  "MultiheadAttention.forwardWithBias": {
    calls: [multiheadCall],
    self: crossAttention,
    numbers: CALL_NUMBERS,
    exemptions: { ...FORWARDED_OPTIONS, ...ANGLES },
  },
  "TransformerLayer.forward": {
    calls: [
      (w) => {
        const [x, { attnMaskType, qkvFormat: _, ...call }] = multiheadCall(w);
        const masks = { selfAttnMaskType: attnMaskType, encDecAttnMaskType: "causal_bottom_right" } as const;
        return [x, { ...call, ...masks, encDecWindowSize: [2, 0], encDecBottomRightDiagonal: false }];
      },
    ],
    self: (w) =>
      w.own(
        new TransformerLayer(w.backend, 16, 32, 2, {
          ...moduleOptions(w),
          attentionDropout: 0,
          hiddenDropout: 0,
          layerType: "decoder",
        }),
      ),
    numbers: {
      ...CALL_NUMBERS,
      "call.encDecWindowSize.0": "integer",
      "call.encDecWindowSize.1": "integer",
    },
    exemptions: { ...FORWARDED_OPTIONS, ...ANGLES },
  },
};
