/** Each option of a TransformerLayer, and of its calls, sets the documented option of its attention, MLP or norm. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { add } from "../../../../src/functional/index.js";
import type {
  MultiheadAttentionCall,
  MultiheadAttentionOptions,
} from "../../../../src/modules/attention/multihead-options.js";
import type {
  TransformerLayerCall,
  TransformerLayerOptions,
} from "../../../../src/modules/attention/transformer-options.js";
import { LayerNormMLP } from "../../../../src/modules/layer-norm-mlp.js";
import { MultiheadAttention } from "../../../../src/modules/multihead-attention.js";
import { LayerNorm, RMSNorm } from "../../../../src/modules/norm.js";
import { constantInit, normalInit } from "../../../../src/modules/parameter.js";
import { RotaryPositionEmbedding } from "../../../../src/modules/rotary-position-embedding.js";
import { TransformerLayer } from "../../../../src/modules/transformer-layer.js";
import { tensor } from "../../../../src/ops/create.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { expectSame } from "../../harness/drawn-tensor.js";
import { draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import { fill, waves } from "../attention/drawn.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const [HIDDEN, FFN, HEADS, BATCH] = [32, 16, 4, 2];
/** The numbers of queries in each sequence, and of keys in `encoderOutput`. With a bias of scores they must be equal. */
const [QUERIES, KEYS] = [5, 6];
/** The lengths of sequences with padding, their first rows in "thd" with gaps, and the total numbers of rows. */
const LENGTHS = { queries: [5, 3], keys: [4, 5] } as const;
const STARTS = { queries: [1, 6], keys: [1, 7] } as const;
const ROWS = { queries: 10, keys: 12 } as const;
const FORMS = ["outputLayernorm", "applyResidualConnectionPostLayernorm", "parallelAttentionMlp"] as const;

/** One of the values, or undefined for an omitted option. */
const maybe = <const T>(...values: readonly T[]): fc.Arbitrary<T | undefined> =>
  fc.option(fc.constantFrom(...values), { nil: undefined, freq: 2 });

/** The masks with and without padding. Some of them hide later keys. */
const MASKS = {
  padded: { causal: ["padding_causal", "padding_causal_bottom_right"], other: ["padding"] },
  full: { causal: ["causal", "causal_bottom_right"], other: ["no_mask", "arbitrary"] },
} as const;
type Padding = keyof typeof MASKS;
type Mask = (typeof MASKS)[Padding]["causal" | "other"][number];
type Window = readonly [left: number, right: number];

/** The options of the mask of one attention. */
interface MaskOptions {
  readonly mask: Mask | undefined;
  readonly window: Window | undefined;
  readonly diagonal: boolean | undefined;
}

/** The options of one attention's mask: the layer's, and the call's. A missing mask is `omittedMask`. */
const maskOptions = (padding: Padding, omittedMask: Mask) =>
  fc.constantFrom("causal", "other").chain((kind) => {
    const masks: readonly Mask[] = MASKS[padding][kind];
    const windows =
      kind === "causal"
        ? maybe<Window>([0, 0], [1, 0], [2, 0])
        : maybe<Window>([0, 0], [1, 0], [2, 1], [-1, 1], [-1, 0]);
    const optionsFor = (mask: fc.Arbitrary<Mask | undefined>): fc.Arbitrary<MaskOptions> =>
      fc.record({ mask, window: windows, diagonal: maybe(false, true) });
    const ownMask = masks.includes(omittedMask) ? maybe(...masks) : fc.constantFrom(...masks);
    // half of the calls leave the options to the layer
    const noMask = fc.constant<MaskOptions>({ mask: undefined, window: undefined, diagonal: undefined });
    return fc
      .record({ layer: optionsFor(ownMask), call: fc.oneof(noMask, optionsFor(maybe(...masks))) })
      .map((sides) => ({ ...sides, isArbitrary: (sides.call.mask ?? sides.layer.mask) === "arbitrary" }));
  });

const OPTIONS = {
  numGqaGroups: maybe(1, 2),
  attentionDropout: fc.constantFrom(0, 0.25),
  kvChannels: maybe(4, 12),
  softmaxScale: maybe(0.125, 2),
  softmaxType: maybe("vanilla", "off-by-one", "learnable"),
  softcap: maybe(0, 0.5, 2),
  layernormEpsilon: maybe(0.25, 1e-3),
  normalization: maybe("LayerNorm", "RMSNorm"),
  zeroCenteredGamma: maybe(false, true),
  bias: maybe(false, true),
  fuseQkvParams: maybe(false, true),
  qkvWeightInterleaved: maybe(false, true),
  qkNormType: maybe("RMSNorm", "LayerNorm", "L2Normalization"),
  qkNormEps: maybe(0.25, 1e-3),
  qkNormBeforeRope: maybe(false, true),
  initMethod: maybe(normalInit(0.5), constantInit(0.25)),
  outputLayerInitMethod: maybe(normalInit(0.25), constantInit(0.5)),
  dtype: maybe("f32", "bf16", "f16"),
} as const;

const cases = fc.constantFrom<Padding>("padded", "full", "full").chain((padding) =>
  fc.record({
    padding: fc.constant(padding),
    form: fc.option(fc.constantFrom(...FORMS), { nil: undefined, freq: 1 }),
    hasEncoder: fc.constantFrom(true, true, true, true, false),
    format: padding === "padded" ? maybe("sbhd", "bshd", "thd") : maybe("sbhd", "bshd"),
    options: fc.record(OPTIONS),
    activation: maybe("relu", "swiglu", "geglu"),
    self: maskOptions(padding, "causal"),
    inter: maskOptions(padding, "no_mask"),
    softcap: maybe(0, 0.5, 2),
    /** Whether keys have lengths of their own. */
    ownLengths: fc.boolean(),
    /** For "thd": whether there are gaps between sequences of queries, and of keys. */
    gaps: fc.constantFrom("none", "queries", "both"),
    angles: fc.constantFrom("none", "one", "two"),
    bias: maybe("alibi", "alibi with slopes", "pre_scale_bias", "post_scale_bias"),
    checkpointCoreAttention: maybe(false, true),
    training: maybe(false, true),
    isBackward: fc.constantFrom(false, false, true),
    seed: fc.nat({ max: 999 }),
  }),
);

type Case = typeof cases extends fc.Arbitrary<infer C> ? C : never;

const NO_MASK: MaskOptions = { mask: undefined, window: undefined, diagonal: undefined };
const maskOf = (layer: Mask, call: Partial<MaskOptions> = {}): Case["self"] => ({
  layer: { ...NO_MASK, mask: layer },
  call: { ...NO_MASK, ...call },
  isArbitrary: (call.mask ?? layer) === "arbitrary",
});

/** Default options of a layer. */
const UNSET = Object.fromEntries(Object.keys(OPTIONS).map((name) => [name, undefined])) as Record<
  keyof typeof OPTIONS,
  undefined
>;

/** A decoder whose layer has default options. */
const DECODER: Case = {
  ...{ padding: "full", form: undefined, hasEncoder: true, format: "sbhd", activation: undefined, seed: 1 },
  ...{
    self: maskOf("causal"),
    inter: maskOf("no_mask"),
    softcap: undefined,
    ownLengths: false,
    gaps: "none",
  },
  ...{ angles: "none", bias: undefined, checkpointCoreAttention: undefined, training: undefined },
  ...{ isBackward: false, options: { ...UNSET, attentionDropout: 0 } },
};
const PADDED: Case = { ...DECODER, padding: "padded", self: maskOf("padding"), inter: maskOf("padding") };

/** Decoders whose two attentions differ in each option of a call that one of them alone takes. */
const EXAMPLES: readonly Case[] = [
  { ...PADDED, ownLengths: true },
  { ...PADDED, ownLengths: true, format: "thd" },
  { ...PADDED, ownLengths: true, format: "thd", gaps: "queries" },
  { ...PADDED, ownLengths: true, format: "thd", gaps: "both" },
  { ...PADDED, format: "thd", gaps: "queries" },
  { ...DECODER, self: maskOf("arbitrary"), inter: maskOf("arbitrary") },
  { ...DECODER, self: maskOf("causal", { mask: "no_mask" }), inter: maskOf("no_mask", { mask: "causal" }) },
  { ...DECODER, self: maskOf("no_mask", { window: [1, 0] }), inter: maskOf("no_mask", { window: [2, 1] }) },
  { ...DECODER, self: maskOf("causal"), inter: maskOf("causal", { diagonal: true, window: [2, 0] }) },
];

const isDecoder = ({ hasEncoder, form }: Case): boolean => hasEncoder && form !== "parallelAttentionMlp";
const isScaleBias = ({ bias, format }: Case): boolean => format !== "thd" && bias?.endsWith("_bias") === true;
const keysOf = (layerCase: Case): number => (isScaleBias(layerCase) ? QUERIES : KEYS);

/** The options of the layer. */
function layerOptions(layerCase: Case, random: RandomState): TransformerLayerOptions {
  const { self, inter, form } = layerCase;
  return {
    ...layerCase.options,
    ...{ random, hiddenDropout: 0, attnInputFormat: layerCase.format, activation: layerCase.activation },
    ...{ selfAttnMaskType: self.layer.mask, windowSize: self.layer.window },
    ...{ encDecAttnMaskType: inter.layer.mask, encDecWindowSize: inter.layer.window },
    ...{ bottomRightDiagonal: self.layer.diagonal, encDecBottomRightDiagonal: inter.layer.diagonal },
    ...(isDecoder(layerCase) ? { layerType: "decoder" } : {}),
    ...(form ? { [form]: true } : {}),
  };
}

/** The layers of a TransformerLayer, made one by one in the order of their initial weights. */
function layersOf(layerCase: Case, random: RandomState) {
  const { options, activation, form, self: selfMask, inter: interMask } = layerCase;
  const attention: MultiheadAttentionOptions = { ...options, random, qkvFormat: layerCase.format };
  const { layernormEpsilon: eps, zeroCenteredGamma, normalization, bias, dtype } = options;
  const { initMethod, outputLayerInitMethod } = options;
  const norm = { eps, zeroCenteredGamma, dtype };
  const self = new MultiheadAttention(backend(), HIDDEN, HEADS, {
    ...attention,
    ...{ inputLayernorm: form !== "outputLayernorm", attnMaskType: selfMask.layer.mask },
    ...{ windowSize: selfMask.layer.window, bottomRightDiagonal: selfMask.layer.diagonal },
  });
  const inter = isDecoder(layerCase)
    ? new MultiheadAttention(backend(), HIDDEN, HEADS, {
        ...attention,
        ...{ attentionType: "cross", inputLayernorm: true, attnMaskType: interMask.layer.mask ?? "no_mask" },
        ...{ windowSize: interMask.layer.window, bottomRightDiagonal: interMask.layer.diagonal },
      })
    : undefined;
  const mlp = new LayerNormMLP(backend(), HIDDEN, FFN, {
    ...{ ...norm, normalization, bias, activation, initMethod, outputLayerInitMethod, random },
  });
  const Norm = normalization === "RMSNorm" ? RMSNorm : LayerNorm;
  const last = form === "outputLayernorm" ? new Norm(backend(), HIDDEN, norm) : undefined;
  return { self, inter, mlp, last, all: [self, inter, mlp, last].filter((module) => module !== undefined) };
}

const i32 = (...values: readonly number[]): Tensor<"i32"> =>
  tensor(backend(), Int32Array.from(values), [values.length], "i32");
const boundaries = ([firstLength, secondLength]: readonly [number, number]): Tensor<"i32"> =>
  i32(0, firstLength, firstLength + secondLength);

/** The lengths of sequences that a call with padding passes: for queries, and for keys without lengths of their own. */
function lengthsOf({ padding, format, gaps, ownLengths }: Case): readonly [queries: object, keys: object] {
  if (padding === "full") return [{}, {}];
  if (format !== "thd")
    return [{ seqlensQ: i32(...LENGTHS.queries) }, ownLengths ? { seqlensKv: i32(...LENGTHS.keys) } : {}];
  const starts = (side: "queries" | "keys") => i32(...STARTS[side], ROWS[side]);
  return [
    {
      cuSeqlensQ: boundaries(LENGTHS.queries),
      ...(gaps === "none" ? {} : { cuSeqlensQPadded: starts("queries") }),
    },
    {
      ...(ownLengths ? { cuSeqlensKv: boundaries(LENGTHS.keys) } : {}),
      ...(gaps === "both" ? { cuSeqlensKvPadded: starts("keys") } : {}),
    },
  ];
}

/** The calls of the layer, of its self-attention and of its attention to `encoderOutput`. */
function callsOf(
  layerCase: Case,
  memory: Variable,
): readonly [TransformerLayerCall, ...MultiheadAttentionCall[]] {
  const { self, inter, options, angles, bias, softcap, checkpointCoreAttention, training } = layerCase;
  const rotary = new RotaryPositionEmbedding(backend(), options.kvChannels ?? HIDDEN / HEADS);
  const hidden = (keys: number): Tensor =>
    tensor(
      backend(),
      Uint8Array.from({ length: QUERIES * keys }, (_, i) => (i % 3 === 1 ? 1 : 0)),
      [1, 1, QUERIES, keys],
      "u8",
    );
  const scores = [1, HEADS, QUERIES, QUERIES] as const;
  const [ofQueries, ofKeys] = lengthsOf(layerCase);
  const common = {
    ...{ ...ofQueries, softcap, checkpointCoreAttention, training },
    ...(angles === "one" ? { rotaryPosEmb: rotary.forward(12) } : {}),
    ...(angles === "two" ? { rotaryPosEmb: [rotary.forward(12), rotary.forward(12, 3)] as const } : {}),
    ...(bias?.startsWith("alibi") ? { coreAttentionBiasType: "alibi" as const } : {}),
    ...(bias === "alibi with slopes" ? { alibiSlopes: waves(backend(), 9, [HEADS], "f32") as Tensor } : {}),
    ...(isScaleBias(layerCase)
      ? {
          coreAttentionBiasType: bias as "pre_scale_bias",
          coreAttentionBias: waves(backend(), 8, scores, options.dtype),
        }
      : {}),
  };
  const encoder = isDecoder(layerCase) ? { encoderOutput: memory } : {};
  const [selfMask, interMask] = [
    self.isArbitrary ? { attentionMask: hidden(QUERIES) } : {},
    inter.isArbitrary && isDecoder(layerCase) ? hidden(keysOf(layerCase)) : undefined,
  ];
  return [
    {
      ...{ ...common, ...ofKeys, ...encoder, ...selfMask, encDecAttnMask: interMask },
      ...{ selfAttnMaskType: self.call.mask, windowSize: self.call.window },
      ...{ encDecAttnMaskType: inter.call.mask, encDecWindowSize: inter.call.window },
      ...{ bottomRightDiagonal: self.call.diagonal, encDecBottomRightDiagonal: inter.call.diagonal },
    },
    {
      ...{ ...common, ...selfMask, attnMaskType: self.call.mask },
      ...{ windowSize: self.call.window, bottomRightDiagonal: self.call.diagonal },
    },
    {
      ...{ ...common, ...ofKeys, ...encoder, attnMaskType: inter.call.mask, attentionMask: interMask },
      ...{ windowSize: inter.call.window, bottomRightDiagonal: inter.call.diagonal },
    },
  ];
}

/** The result of the layers in sequence. */
function composition(
  { form }: Case,
  { self, inter, mlp, last }: ReturnType<typeof layersOf>,
  x: Variable,
  [selfCall, interCall]: readonly MultiheadAttentionCall[],
): Variable {
  if (form === "parallelAttentionMlp") return add(x, add(self.forward(x, selfCall), mlp.forward(x)));
  if (form === "applyResidualConnectionPostLayernorm") {
    const [attentionResult, normResult] = self.forwardWithNorm(x, selfCall);
    let y = add(normResult, attentionResult);
    if (inter) {
      const [out, norm] = inter.forwardWithNorm(y, interCall);
      y = add(norm, out);
    }
    const [out, norm] = mlp.forwardWithNorm(y);
    return add(norm, out);
  }
  let y = add(x, self.forward(x, selfCall));
  if (inter) y = add(y, inter.forward(y, interCall));
  const out = add(y, mlp.forward(y));
  return last ? last.forward(out) : out;
}

function leavesOf(layerCase: Case): readonly [x: Variable, memory: Variable] {
  const shape = (count: number, rows: number): readonly number[] => {
    if (layerCase.format === "thd") return [rows, HIDDEN];
    return layerCase.format === "bshd" ? [BATCH, count, HIDDEN] : [count, BATCH, HIDDEN];
  };
  const { dtype } = layerCase.options;
  const leaf = (seed: number, size: readonly number[]) =>
    new Variable(waves(backend(), seed, size, dtype), true);
  return [leaf(1, shape(QUERIES, ROWS.queries)), leaf(2, shape(keysOf(layerCase), ROWS.keys))];
}

it("with drawn options, the layer is the composition of its layers with the corresponding options", () => {
  fc.assert(
    fc.property(cases, (layerCase) => {
      using _scope = new Scope();
      const [random, handRandom] = [new RandomState(3n), new RandomState(3n)];
      using module = new TransformerLayer(backend(), HIDDEN, FFN, HEADS, layerOptions(layerCase, random));
      const layers = layersOf(layerCase, handRandom);
      const parameters = [module.parameters(), layers.all.flatMap((layer) => layer.parameters())] as const;
      expect(parameters[0].length).toBe(parameters[1].length);
      for (const [i, parameter] of parameters[0].entries())
        expectSame(`initial value ${i}`, parameter.tensor, parameters[1][i]?.tensor);
      fill(layerCase.seed, module);
      fill(layerCase.seed, ...layers.all);
      const [[x, memory], [handX, handMemory]] = [leavesOf(layerCase), leavesOf(layerCase)];
      const out = module.forward(x, callsOf(layerCase, memory)[0]);
      const expected = composition(layerCase, layers, handX, callsOf(layerCase, handMemory).slice(1));
      expectSame("result", out.tensor, expected.tensor);
      if (layerCase.isBackward) {
        const grad = waves(backend(), 3, out.shape, layerCase.options.dtype);
        out.backward(grad);
        expected.backward(grad);
        expectSame("gradient of the input", x.grad, handX.grad);
        expectSame("gradient of encoderOutput", memory.grad, handMemory.grad);
        for (const [i, parameter] of parameters[0].entries())
          expectSame(`gradient ${i}`, parameter.grad, parameters[1][i]?.grad);
      }
      for (const leaf of [x, memory, handX, handMemory, ...parameters.flat()]) leaf.zeroGrad();
      for (const layer of layers.all) layer.dispose();
    }),
    { numRuns: draws(240) + EXAMPLES.length, examples: EXAMPLES.map((example) => [example]) },
  );
});
