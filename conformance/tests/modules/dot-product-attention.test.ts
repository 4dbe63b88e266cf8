/**
 * DotProductAttention: every option with every value of every other one gives the result and gradients of `functional.attention`
 * under the corresponding arguments; and refusals.
 */
import { describe, expect, it } from "vitest";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import * as functional from "../../../src/functional/index.js";
import { InferenceParams } from "../../../src/modules/attention/inference-params.js";
import type { AttentionCall, DotProductAttentionOptions } from "../../../src/modules/attention/options.js";
import { DotProductAttention } from "../../../src/modules/dot-product-attention.js";
import { tensor, zeros } from "../../../src/ops/create.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Shape } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { pairwise, product } from "../../arbitraries/covering.js";
import { expectSame } from "../harness/drawn-tensor.js";
import { testInScope, useBackend } from "../harness/suite.js";
import { MASKS, waves } from "./attention/drawn.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const [HEADS, BATCH, QUERIES, KEYS, SEED] = [6, 2, 5, 7, 9n];

const TABLE = {
  mask: Object.keys(MASKS) as (keyof typeof MASKS)[],
  format: ["sbhd", "bshd", "thd"],
  groups: [6, 2, 1],
  widths: [16, [16, 8], [8, 16]],
  window: [undefined, [3, 0], [1, 2], [-1, 1], [2, -1]],
  diagonal: [undefined, true, false],
  softcap: [0, 2],
  scale: [undefined, 0.5],
  softmaxType: ["vanilla", "off-by-one", "learnable"],
  drops: [false, true],
  training: [undefined, false, true],
  bias: ["no_bias", "pre_scale_bias", "post_scale_bias", "alibi", "alibi with slopes"],
  /** Whether the keys have lengths of their own. */
  ownLengths: [false, true],
  /** For "thd": gaps between the sequences of queries, or of queries and keys. */
  gaps: ["none", "queries", "both"],
  checkpoint: [false, true],
  dtype: ["bf16", "f32"],
  /** The mask options that the call passes. The module then has other values of them. */
  called: [false, true],
} as const;

type Case = { readonly [K in keyof typeof TABLE]: (typeof TABLE)[K][number] };

let state = 1;
const draw = (bound: number): number => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return (state >>> 8) % bound;
};

/** Makes options that exclude each other agree. */
function withAllowedOptions(attentionCase: Case): Case {
  const [causal, padding] = MASKS[attentionCase.mask];
  const isThd = attentionCase.format === "thd";
  const mask = isThd && !padding ? (causal ? "padding_causal" : "padding") : attentionCase.mask;
  return {
    ...attentionCase,
    mask,
    window:
      causal && attentionCase.window && attentionCase.window[1] > 0
        ? ([attentionCase.window[0], 0] as never)
        : attentionCase.window,
    bias: isThd && attentionCase.bias.endsWith("scale_bias") ? "no_bias" : attentionCase.bias,
  };
}

/** Gaps matter for "thd" only, with each choice of lengths. */
const GAPS = product({ gaps: TABLE.gaps, ownLengths: TABLE.ownLengths });

const PAIRS: readonly Case[] = pairwise(TABLE, draw);
const CASES = [
  ...PAIRS,
  ...GAPS.map((gaps, i) => ({ ...(PAIRS[i] as Case), format: "thd" as const, ...gaps })),
].map(withAllowedOptions);

const i32 = (values: readonly number[]): Tensor<"i32"> =>
  tensor(backend(), Int32Array.from(values), [values.length], "i32");

/** Two sequences: 3 and 2 queries, 4 and 3 keys, among 8 and 9 tokens of "thd". */
const LENGTHS = { q: [3, 2], k: [4, 3] } as const;
const STARTS = { q: [1, 5], k: [2, 6] } as const;

function shapeOf(attentionCase: Case, operand: "q" | "k" | "v"): Shape {
  const [heads, rows] = operand === "q" ? [HEADS, QUERIES] : [attentionCase.groups, keysOf(attentionCase)];
  const widths =
    typeof attentionCase.widths === "number"
      ? [attentionCase.widths, attentionCase.widths]
      : attentionCase.widths;
  const width = widths[operand === "v" ? 1 : 0] as number;
  if (attentionCase.format === "thd") return [operand === "q" ? 8 : 9, heads, width];
  return attentionCase.format === "sbhd" ? [rows, BATCH, heads, width] : [BATCH, rows, heads, width];
}

/** Keys without lengths of their own have the queries' lengths, so there are as many keys as queries. */
const keysOf = (attentionCase: Case): number =>
  attentionCase.format !== "thd" && MASKS[attentionCase.mask][1] && !attentionCase.ownLengths
    ? QUERIES
    : KEYS;

/** The arguments of a case: options of the module and of the call, and arguments of the function. */
function argumentsOf(attentionCase: Case) {
  const [causal, padding, fixed] = MASKS[attentionCase.mask];
  const isThd = attentionCase.format === "thd";
  const pairs: Shape = [1, HEADS, QUERIES, keysOf(attentionCase)];
  const isBias = attentionCase.bias.endsWith("scale_bias");
  const bias = isBias ? new Variable(waves(backend(), 7, pairs, attentionCase.dtype), true) : undefined;
  const slopes =
    attentionCase.bias === "alibi with slopes"
      ? tensor(backend(), Float32Array.of(1, 0.5, 2, 0.25, 3, 0), [HEADS])
      : undefined;
  const hidden = Uint8Array.from({ length: QUERIES * keysOf(attentionCase) }, (_, i) =>
    i % 3 === 1 ? 1 : 0,
  );
  const mask =
    attentionCase.mask === "arbitrary"
      ? tensor(backend(), hidden, [1, 1, QUERIES, keysOf(attentionCase)], "u8")
      : undefined;
  const boundaries = (lengths: readonly number[]): number[] => [
    0,
    lengths[0] as number,
    (lengths[0] as number) + (lengths[1] as number),
  ];
  const kLengths = attentionCase.ownLengths ? LENGTHS.k : LENGTHS.q;
  const cu = { q: i32(boundaries(LENGTHS.q)), k: i32(boundaries(kLengths)) };
  const lengths = { q: i32(LENGTHS.q), k: i32(kLengths) };
  const gapsOfQueries = isThd && attentionCase.gaps !== "none" ? i32([...STARTS.q, 8]) : undefined;
  const gapsOfKeys = isThd && attentionCase.gaps === "both" ? i32([...STARTS.k, 9]) : undefined;
  const options = {
    attnMaskType: attentionCase.mask,
    windowSize: attentionCase.window,
    bottomRightDiagonal: attentionCase.diagonal,
    softcap: attentionCase.softcap,
    qkvFormat: attentionCase.format,
  };
  // the options that a call overrides
  const otherArguments = {
    attnMaskType: "no_mask",
    windowSize: [0, 0],
    bottomRightDiagonal: !attentionCase.diagonal,
    softcap: 7,
  } as const;
  const isReplaced =
    attentionCase.called && attentionCase.window !== undefined && attentionCase.diagonal !== undefined;
  const moduleOptions: DotProductAttentionOptions = {
    ...(isReplaced
      ? { ...otherArguments, qkvFormat: attentionCase.format === "sbhd" ? "bshd" : "sbhd" }
      : options),
    ...{
      numGqaGroups: attentionCase.groups,
      attentionDropout: attentionCase.drops ? 0.3 : 0,
      softmaxType: attentionCase.softmaxType,
    },
    ...(attentionCase.scale ? { softmaxScale: attentionCase.scale } : {}),
    dtype: attentionCase.dtype,
  };
  const call: AttentionCall = {
    ...(isReplaced ? options : {}),
    ...(attentionCase.training === undefined ? {} : { training: attentionCase.training }),
    ...{ checkpointCoreAttention: attentionCase.checkpoint, ...(mask ? { attentionMask: mask } : {}) },
    coreAttentionBiasType: attentionCase.bias === "alibi with slopes" ? "alibi" : attentionCase.bias,
    ...(bias ? { coreAttentionBias: bias } : {}),
    ...(slopes ? { alibiSlopes: slopes } : {}),
    ...(isThd ? { cuSeqlensQ: cu.q, ...(attentionCase.ownLengths ? { cuSeqlensKv: cu.k } : {}) } : {}),
    ...(gapsOfQueries ? { cuSeqlensQPadded: gapsOfQueries } : {}),
    ...(gapsOfKeys ? { cuSeqlensKvPadded: gapsOfKeys } : {}),
    ...(padding && !isThd
      ? { seqlensQ: lengths.q, ...(attentionCase.ownLengths ? { seqlensKv: lengths.k } : {}) }
      : {}),
  };
  // without lengths of their own, keys also begin at the queries' rows
  const keyStarts = gapsOfKeys ?? (attentionCase.ownLengths ? undefined : gapsOfQueries);
  const defaultSlopes = Float32Array.of(2 ** -2, 2 ** -4, 2 ** -6, 2 ** -8, 2 ** -1, 2 ** -3);
  const rule = {
    layout: attentionCase.format,
    ...{ causal, align: fixed ?? (attentionCase.diagonal === false ? ("start" as const) : ("end" as const)) },
    ...(attentionCase.window ? { window: attentionCase.window } : {}),
    ...(attentionCase.softcap ? { softcap: attentionCase.softcap } : {}),
    ...(attentionCase.scale ? { scale: attentionCase.scale } : {}),
    ...(mask ? { mask } : {}),
    ...(slopes ? { alibiSlopes: slopes } : {}),
    ...(attentionCase.bias === "alibi" ? { alibiSlopes: tensor(backend(), defaultSlopes, [HEADS]) } : {}),
    biasPlace: attentionCase.bias === "pre_scale_bias" ? ("beforeScale" as const) : ("afterScale" as const),
    ...(isThd ? { cuQueries: cu.q, cuKeys: cu.k } : {}),
    ...(gapsOfQueries ? { cuPaddedQueries: gapsOfQueries } : {}),
    ...(keyStarts ? { cuPaddedKeys: keyStarts } : {}),
    ...(padding && !isThd ? { queryLengths: lengths.q, keyLengths: lengths.k } : {}),
    ...(attentionCase.drops && attentionCase.training !== false
      ? { dropout: { probability: 0.3, seed: SEED, offset: 4n } }
      : {}),
  };
  return { moduleOptions, call, rule, bias };
}

describe("DotProductAttention is functional.attention with the arguments that its options stand for", () => {
  const titled = CASES.map(
    (attentionCase) =>
      [
        `${attentionCase.mask}, ${attentionCase.format}, ${attentionCase.bias}, ${attentionCase.softmaxType}`,
        attentionCase,
      ] as const,
  );
  it.each(titled)("%s", (_name, attentionCase) => {
    using _scope = new Scope();
    const { moduleOptions, call, rule, bias } = argumentsOf(attentionCase);
    const random = new RandomState(SEED);
    for (let i = 0; i < 4; i++) random.next();
    const widths = attentionCase.widths as number | readonly [number, number];
    using module = new DotProductAttention(backend(), HEADS, widths, { ...moduleOptions, random });
    module.softmaxOffset?.tensor.paste(waves(backend(), 5, [1, HEADS, 1, 1], "f32"), 0);
    const inputs = () =>
      (["q", "k", "v"] as const).map(
        (operand, i) =>
          new Variable(waves(backend(), i + 1, shapeOf(attentionCase, operand), attentionCase.dtype), true),
      ) as [Variable, Variable, Variable];
    const logits =
      attentionCase.softmaxType === "learnable"
        ? waves(backend(), 5, [HEADS], "f32")
        : zeros(backend(), "f32", [HEADS]);
    const sinks =
      attentionCase.softmaxType === "vanilla"
        ? undefined
        : new Variable(logits, attentionCase.softmaxType === "learnable");
    const ofBias = bias && new Variable(bias.tensor, true);
    const [ownInputs, hand] = [inputs(), inputs()];
    const out = module.forward(...ownInputs, call);
    const expected = functional.attention(...hand, {
      ...rule,
      ...(sinks ? { sinks } : {}),
      ...(ofBias ? { bias: ofBias } : {}),
    });
    const shape = [...expected.shape.slice(0, -2), HEADS * (expected.shape.at(-1) as number)];
    expectSame("result", out.tensor, functional.reshape(expected, shape).tensor);
    const grad = waves(backend(), 6, shape, attentionCase.dtype);
    out.backward(grad);
    expected.backward(grad.reshape(expected.shape));
    for (const [i, variable] of ownInputs.entries())
      expectSame(`gradient of ${"qkv"[i]}`, variable.grad, hand[i]?.grad);
    if (bias) expectSame("gradient of the bias", bias.grad, ofBias?.grad);
    if (module.softmaxOffset)
      expectSame("gradient of the sinks", module.softmaxOffset.grad?.reshape([HEADS]), sinks?.grad);
    expect(random.offset).toBe(attentionCase.drops && attentionCase.training !== false ? 5n : 4n);
    for (const variable of [...ownInputs, ...hand, bias, ofBias, sinks, module.softmaxOffset])
      variable?.zeroGrad();
  });
});

describe("DotProductAttention", () => {
  testInScope("has the defaults of its documents", () => {
    using module = new DotProductAttention(backend(), HEADS, 16);
    const [q, k, v] = [1, 2, 3].map((i) => waves(backend(), i, [4, BATCH, HEADS, 16])) as [
      Tensor,
      Tensor,
      Tensor,
    ];
    const expected = functional.attention(q, k, v, { layout: "sbhd", causal: true });
    expectSame("result", module.forward(q, k, v).tensor, functional.reshape(expected, [4, BATCH, 96]).tensor);
    expect([module.numGqaGroups, module.widths, module.parameters()]).toEqual([HEADS, [16, 16], []]);
  });

  testInScope("keeps less for the backward pass of a checkpointed call", () => {
    using module = new DotProductAttention(backend(), HEADS, 16, { attentionDropout: 0.2 });
    const keptResults = [false, true].map((checkpointCoreAttention) => {
      using _scope = new Scope();
      const x = new Variable(waves(backend(), 1, [16, BATCH, HEADS, 16]), true);
      const { live } = backend().memoryUse();
      module.forward(x, x, x, { checkpointCoreAttention });
      return backend().memoryUse().live - live;
    }) as [number, number];
    expect(keptResults[1]).toBeLessThan(keptResults[0]);
  });

  const BAD_OPTIONS = [
    ["an unknown mask", { attnMaskType: "casual" as never }, ArgumentError],
    ["an unknown softmax", { softmaxType: "sink" as never }, ArgumentError],
    ["heads that groups do not divide", { numGqaGroups: 4 }, ArgumentError],
    ["a probability of 1", { attentionDropout: 1 }, ArgumentError],
    ["a scale of 0", { softmaxScale: 0 }, ArgumentError],
    ["a negative softcap", { softcap: -1 }, ArgumentError],
    ["a window of one number", { windowSize: [1] as never }, ArgumentError],
    ["rows that no ranks divide", { sequenceParallel: true }, ArgumentError],
    ["an unknown option", { heads: 2 } as never, ArgumentError],
  ] as const;
  it.each(BAD_OPTIONS)("refuses %s", (_, options, error) => {
    expect(() => new DotProductAttention(backend(), HEADS, 16, options)).toThrow(error);
  });

  const CALLS: readonly (readonly [
    string,
    () => AttentionCall,
    typeof ArgumentError | typeof ShapeError | typeof DTypeError,
  ])[] = [
    ["padding without lengths", () => ({ attnMaskType: "padding" }), ArgumentError],
    ["lengths without padding", () => ({ seqlensQ: i32([1, 1]) }), ArgumentError],
    ["lengths of another batch", () => ({ attnMaskType: "padding", seqlensQ: i32([1]) }), ShapeError],
    ["sums of lengths for sbhd", () => ({ cuSeqlensQ: i32([0, 1, 2]) }), ArgumentError],
    ["an arbitrary mask without its tensor", () => ({ attnMaskType: "arbitrary" }), ArgumentError],
    [
      "the tensor of a mask that is not arbitrary",
      () => ({ attentionMask: zeros(backend(), "u8", [1, 1, 4, 4]) }),
      ArgumentError,
    ],
    [
      "a mask that is not u8",
      () => ({ attnMaskType: "arbitrary", attentionMask: i32([0]) as never }),
      DTypeError,
    ],
    ["a causal mask with later keys", () => ({ windowSize: [1, 1] }), ArgumentError],
    [
      "a bias without its place",
      () => ({ coreAttentionBias: waves(backend(), 1, [1, 1, 4, 4]) }),
      ArgumentError,
    ],
    ["a place without a bias", () => ({ coreAttentionBiasType: "pre_scale_bias" }), ArgumentError],
    ["slopes without ALiBi", () => ({ alibiSlopes: zeros(backend(), "f32", [HEADS]) }), ArgumentError],
    ["thd without sums of lengths", () => ({ qkvFormat: "thd", attnMaskType: "padding" }), ArgumentError],
    ["an unknown option", () => ({ dropout: 0.1 }) as never, ArgumentError],
  ];
  it.each(CALLS)("refuses a call with %s", (_, call, error) => {
    using _scope = new Scope();
    using module = new DotProductAttention(backend(), HEADS, 16);
    const x = waves(backend(), 1, [4, BATCH, HEADS, 16]);
    expect(() => module.forward(x, x, x, call())).toThrow(error);
  });

  testInScope("refuses tensors of other heads and widths, and a cache with gradients", () => {
    using module = new DotProductAttention(backend(), HEADS, [16, 8], { numGqaGroups: 2 });
    const make = (heads: number, width: number): Tensor => waves(backend(), 1, [4, BATCH, heads, width]);
    const [q, k, v] = [make(HEADS, 16), make(2, 16), make(2, 8)];
    expect(module.forward(q, k, v).shape).toEqual([4, BATCH, HEADS * 8]);
    for (const invalidOptions of [
      [make(2, 16), k, v],
      [q, make(HEADS, 16), v],
      [q, k, make(2, 16)],
      [q, make(2, 8), v],
    ] as const)
      expect(() => module.forward(...invalidOptions)).toThrow(ShapeError);
    using cache = new InferenceParams(backend(), BATCH, 8, { numHeadsKv: 2, headDimK: 16, headDimV: 8 });
    const call = { inferenceParams: cache, attnMaskType: "padding_causal" } as const;
    expect(() => module.forward(new Variable(q, true), k, v, call)).toThrow("noGrad");
    cache.preStep(new Map([["a", 3]]));
    const tokens = [q, k, v].map((x) => x.reshape([4 * BATCH, ...x.shape.slice(2)])) as [
      Tensor,
      Tensor,
      Tensor,
    ];
    expect(() => noGrad(() => module.forward(...tokens, { ...call, qkvFormat: "thd" }))).toThrow(ShapeError);
  });
});
