/** State dictionaries have the names and shapes of TransformerEngine's modules, and loading inverts saving. */
import { describe, expect, it } from "vitest";
import type { TransformerLayerOptions } from "../../../src/modules/attention/transformer-options.js";
import { Linear } from "../../../src/modules/linear.js";
import { quantizedModelInit } from "../../../src/modules/quantized-init.js";
import { loadStateDictionary, stateDictionary } from "../../../src/modules/state-dictionary.js";
import { TransformerLayer } from "../../../src/modules/transformer-layer.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { MXFP8BlockScaling } from "../../../src/recipes/block-scaled.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Scope } from "../../../src/tensor/scope.js";
import { elementCount, type Shape } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { createInputs, rowsWhere } from "../harness/modules/calls.js";
import type { BuiltModule } from "../harness/modules/row.js";
import { testInScope, useBackend } from "../harness/suite.js";
import { fill, waves } from "./attention/drawn.js";

const backend = useBackend();
const layerOf = (options: TransformerLayerOptions) => new TransformerLayer(backend(), 32, 64, 4, options);

/** The names and shapes of TransformerEngine 2.20.2, as `state_dict()` of a layer lists them. */
const MLP = {
  "layernorm_mlp.layer_norm_weight": [32],
  "layernorm_mlp.layer_norm_bias": [32],
  "layernorm_mlp.fc1_weight": [64, 32],
  "layernorm_mlp.fc1_bias": [64],
  "layernorm_mlp.fc2_weight": [32, 64],
  "layernorm_mlp.fc2_bias": [32],
} as const;
const PROJECTION = { "self_attention.proj.weight": [32, 32], "self_attention.proj.bias": [32] } as const;
const NAMES: readonly (readonly [
  string,
  TransformerLayerOptions,
  Readonly<Record<string, readonly number[]>>,
])[] = [
  [
    "separate weights",
    { numGqaGroups: 2 },
    {
      "self_attention.layernorm_qkv.layer_norm_weight": [32],
      "self_attention.layernorm_qkv.layer_norm_bias": [32],
      "self_attention.layernorm_qkv.query_weight": [32, 32],
      "self_attention.layernorm_qkv.key_weight": [16, 32],
      "self_attention.layernorm_qkv.value_weight": [16, 32],
      "self_attention.layernorm_qkv.query_bias": [32],
      "self_attention.layernorm_qkv.key_bias": [16],
      "self_attention.layernorm_qkv.value_bias": [16],
      ...PROJECTION,
      ...MLP,
    },
  ],
  [
    "one weight, norms of heads, a learnable sink and a norm of the result",
    { fuseQkvParams: true, qkNormType: "RMSNorm", softmaxType: "learnable", outputLayernorm: true },
    {
      "self_attention.qkv.weight": [96, 32],
      "self_attention.qkv.bias": [96],
      "self_attention.q_norm.weight": [8],
      "self_attention.k_norm.weight": [8],
      "self_attention.core_attention.softmax_offset": [1, 4, 1, 1],
      ...PROJECTION,
      ...MLP,
      "layernorm.weight": [32],
      "layernorm.bias": [32],
    },
  ],
  [
    "a decoder",
    { layerType: "decoder", bias: false, normalization: "RMSNorm", activation: "swiglu" },
    {
      "self_attention.layernorm_qkv.layer_norm_weight": [32],
      "self_attention.layernorm_qkv.query_weight": [32, 32],
      "self_attention.layernorm_qkv.key_weight": [32, 32],
      "self_attention.layernorm_qkv.value_weight": [32, 32],
      "self_attention.proj.weight": [32, 32],
      "inter_attention.layernorm_query.layer_norm_weight": [32],
      "inter_attention.layernorm_query.query_weight": [32, 32],
      "inter_attention.key_value.key_weight": [32, 32],
      "inter_attention.key_value.value_weight": [32, 32],
      "inter_attention.proj.weight": [32, 32],
      "layernorm_mlp.layer_norm_weight": [32],
      "layernorm_mlp.fc1_weight": [128, 32],
      "layernorm_mlp.fc2_weight": [32, 64],
    },
  ],
];

const bytes = (x: Tensor): string => [...(x.dataSync() as Uint16Array)].join();

describe("a state dictionary", () => {
  it.each(NAMES)(
    "of %s has TransformerEngine's names and shapes, and loads into another layer",
    (_, options, names) => {
      using _scope = new Scope();
      using layer = layerOf(options);
      using otherLayer = layerOf(options);
      fill(3, layer);
      const state = stateDictionary(layer);
      expect(Object.fromEntries([...state].map(([name, { shape }]) => [name, shape]))).toEqual(names);
      loadStateDictionary(
        otherLayer,
        new Map([...state, ["self_attention.proj._extra_state", waves(backend(), 1, [1])]]),
      );
      const [actual, expected] = [layer, otherLayer].map((layer) =>
        layer.parameters().map(({ tensor }) => bytes(tensor)),
      );
      expect(expected).toEqual(actual);
      const otherState = stateDictionary(otherLayer);
      for (const [name, tensor] of state)
        expect(bytes(otherState.get(name) as Tensor), name).toBe(bytes(tensor));
    },
  );

  testInScope("with missing, unknown or misshapen entries changes nothing", () => {
    using layer = layerOf({});
    const bytesBefore = layer.parameters().map(({ tensor }) => bytes(tensor));
    const state = stateDictionary(layer);
    const [firstName] = state.keys();
    const without = new Map([...state].filter(([name]) => name !== firstName));
    expect(() => loadStateDictionary(layer, without)).toThrow(firstName as string);
    expect(() => loadStateDictionary(layer, new Map([...state, ["more", waves(backend(), 1, [1])]]))).toThrow(
      "more",
    );
    const invalidState = new Map([...state, [firstName as string, waves(backend(), 1, [3])]]);
    expect(() => loadStateDictionary(layer, invalidState)).toThrow("[3]");
    expect(layer.parameters().map(({ tensor }) => bytes(tensor))).toEqual(bytesBefore);
  });

  testInScope("of a quantized parameter is refused", () => {
    using layer = quantizedModelInit(
      { recipe: new MXFP8BlockScaling() },
      () => new Linear(backend(), 32, 32),
    );
    expect(() => stateDictionary(layer)).toThrow("saveCheckpoint");
  });
});

const hopper = useBackend({ threads: 1, datapath: "hopper" });
const SIZES = { rows: 16, from: 32, to: 32, middle: 64 };

describe.each(rowsWhere(({ hasNoParameters }) => !hasNoParameters))("a state dictionary of %s", (_, row) => {
  testInScope(
    "has all elements of the parameters, and loads into another module, which then has its results",
    () => {
      const [from, to] = [1n, 2n].map((seed) =>
        row.build(hopper(), SIZES, { random: new RandomState(seed) }),
      ) as [BuiltModule, BuiltModule];
      fill(3, from.module);
      const state = stateDictionary(from.module);
      const sizeOf = (tensors: Iterable<{ readonly shape: Shape }>): number =>
        [...tensors].reduce((sum, { shape }) => sum + elementCount(shape), 0);
      expect(sizeOf(state.values())).toBe(sizeOf(from.module.parameters()));
      for (const name of state.keys()) expect(name).toMatch(/^[a-z0-9_.]+$/);
      loadStateDictionary(to.module, state);
      const inputs = createInputs(hopper(), from, SIZES);
      const bitsOf = ({ module, run }: BuiltModule) => [
        ...module.parameters().map(({ tensor }) => bytes(tensor)),
        ...noGrad(() => run(inputs)).map(({ tensor }) => bytes(tensor)),
      ];
      expect(bitsOf(to)).toEqual(bitsOf(from));
      for (const { module } of [from, to]) module.dispose();
    },
  );
});
