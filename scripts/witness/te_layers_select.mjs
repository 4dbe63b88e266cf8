// Selects the stages that the tests replay from the recordings of te_layers.py: one stage for each call, and the stages between
// calls, which are products of the attention, sums of residuals, and copies of heads.
//
// node scripts/witness/te_layers_select.mjs FOLDER FILE
//
// FOLDER has te-layers-RECIPE.json.gz. FILE gets all stages with the bits of all tensors. `RECORD_LAYERS=FILE` of the test
// conformance/tests/te/layers.test.ts then writes conformance/vectors/te-layers.json, with the bits that are neither drawn nor
// replayed.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";

const RECIPES = ["bf16", "delayed", "current", "block"];
/** TransformerEngine's numbers of its FP8 types. */
const FORMATS = { 7: "e4m3", 8: "e5m2" };
const QUANTIZERS = {
  Float8Quantizer: "delayed",
  Float8CurrentScalingQuantizer: "current",
  Float8BlockQuantizer: "block",
};
const TILE = 128;

const [folder, path] = process.argv.slice(2);
const bits = {};
const key = (bytes) => createHash("sha256").update(bytes).digest("hex").slice(0, 32);

/** A reference to a tensor, whose bits go to the output. */
function reference(given, recorded, shape = given.shape) {
  bits[given.bits] = recorded[given.bits];
  return { type: given.type === "uint8" ? "u8" : given.type, shape, key: given.bits };
}

/** Scales of tiles without their padding, which TransformerEngine leaves undefined: [tiles of rows, tiles of columns]. */
function unpadded(given, recorded, columns) {
  const [rows, stride] = given.shape;
  const from = new Float32Array(new Uint8Array(Buffer.from(recorded[given.bits], "base64")).buffer);
  const to = new Float32Array(rows * columns);
  for (let i = 0; i < rows; i++) to.set(from.subarray(i * stride, i * stride + columns), i * columns);
  const bytes = new Uint8Array(to.buffer);
  const name = key(bytes);
  bits[name] = Buffer.from(bytes).toString("base64");
  return { type: "f32", shape: [rows, columns], key: name };
}

const matrix = (shape) => [shape.slice(0, -1).reduce((p, s) => p * s, 1), shape.at(-1)];
const transposedMatrix = (shape) => [shape[0], shape.slice(1).reduce((p, s) => p * s, 1)];

/** A quantized tensor: its copies and their scales. */
function quantized(given, recorded) {
  const [row, column] = [given.data ?? given.rowwise_data, given.transpose ?? given.columnwise_data];
  const isBlock = /Block/.test(given.quantized);
  const shape = row ? matrix(row.shape) : transposedMatrix(column.shape).reverse();
  const scales = (data, scale, columns) =>
    data &&
    scale &&
    (given.tiles ? unpadded(scale, recorded, Math.ceil(columns / TILE)) : reference(scale, recorded));
  const parts = {
    data: row && reference(row, recorded, shape),
    transpose: column && reference(column, recorded, [...shape].reverse()),
    scales: isBlock ? scales(row, given.rowwise_scale_inv, shape[1]) : reference(given.scale_inv, recorded),
    transposeScales: isBlock ? scales(column, given.columnwise_scale_inv, shape[0]) : undefined,
  };
  const present = Object.entries(parts).filter(([, part]) => part);
  const kind = isBlock ? { tile: given.tiles ? "128x128" : "1x128" } : {};
  return { format: FORMATS[given.format], ...kind, shape, ...Object.fromEntries(present) };
}

function quantizer(given, recorded) {
  if (!given) return undefined;
  return {
    kind: QUANTIZERS[given.quantizer],
    format: FORMATS[given.dtype],
    rowwise: given.rowwise_usage,
    columnwise: given.columnwise_usage,
    ...(given.force_pow_2_scales === undefined ? {} : { pow2Scales: given.force_pow_2_scales }),
    ...(given.block_scaling_dim === undefined
      ? {}
      : { tile: given.block_scaling_dim === 2 ? "128x128" : "1x128" }),
    ...(given.scale === undefined ? {} : { scale: reference(given.scale, recorded) }),
  };
}

/** The stages of a case, in an order in which each stage's inputs precede it. */
function stagesOf(given, recorded) {
  const stages = [];
  const { calls } = given;
  const value = (x, shape) => {
    if (!x) return undefined;
    if (x.quantized) return quantized(x, recorded);
    return reference(x, recorded, shape ?? (x.shape.length > 1 ? matrix(x.shape) : x.shape));
  };
  const present = (record) =>
    Object.fromEntries(Object.entries(record).filter(([, each]) => each !== undefined));
  const add = (stage, inputs, results, options = {}) =>
    stages.push({ stage, inputs: present(inputs), options: present(options), results: present(results) });
  const moduleNamed = (name) => calls.find((each) => each.module === name);
  const layer = given.module === "TransformerLayer";
  const attention = layer && calls.find((each) => each.class === "UnfusedDotProductAttention");
  const heads = attention && {
    q: attention.arguments[1],
    k: attention.arguments[2],
    v: attention.arguments[3],
  };
  const gradients = attention && {
    ...{ dq: attention.gradients["argument 1"], dk: attention.gradients["argument 2"] },
    ...{ dv: attention.gradients["argument 3"], context: attention.gradients["result 0"] },
  };
  const whole = (x) => x && value(x, x.shape);
  const alpha = layer ? 1 / Math.sqrt(given.hidden / given.heads) : 1;
  const ropes = calls.filter((each) => each.call === "fused_rope_forward");
  const ropesBack = calls.filter((each) => each.call === "fused_rope_backward");
  const probabilities = calls.find((each) => each.call === "scaled_masked_softmax_forward")?.results;
  let norms = 0;

  for (const call of calls) {
    const { arguments: args, results } = call;
    // the amax that delayed scaling records
    const amaxOf = (index) => {
      const { amax } = (call.argumentsAfter ?? args)[index] ?? {};
      return amax && value(amax);
    };
    const name = call.call ?? call.class;
    const activation = /^(dbias_)?(d?)(gelu|geglu|silu|swiglu)$/.exec(name);
    if (/^(rms|layer)norm_fwd$/.test(name)) {
      const isLayer = name === "layernorm_fwd";
      const rest = args.slice(isLayer ? 3 : 2);
      add(
        isLayer ? "layerNorm" : "rmsNorm",
        { x: value(args[0]), gamma: value(args[1]), beta: isLayer ? value(args[2]) : undefined },
        {
          out: value(results[0]),
          mean: value(results[1]),
          rstd: value(results[2]),
          amax: amaxOf(isLayer ? 5 : 4),
        },
        { eps: rest[0], quantizer: quantizer(rest[2], recorded) },
      );
    } else if (/^(rms|layer)norm_bwd$/.test(name)) {
      const isLayer = name === "layernorm_bwd";
      const [mean, rstd, gamma] = isLayer ? args.slice(2) : [undefined, ...args.slice(2)];
      add(
        `${isLayer ? "layerNorm" : "rmsNorm"} gradient`,
        {
          grad: value(args[0]),
          x: value(args[1]),
          gamma: value(gamma),
          mean: value(mean),
          rstd: value(rstd),
        },
        { dx: value(results[0]), dgamma: value(results[1]), dbeta: value(results[2]) },
      );
      if (layer) {
        const [residual, total] = [
          [moduleNamed("").gradients["result 0"], moduleNamed("layernorm_mlp").gradients["argument 0"]],
          [moduleNamed("self_attention").gradients["result 0"], moduleNamed("").gradients["argument 0"]],
        ][norms++];
        add("residual gradient", { x: value(results[0]), y: value(residual) }, { out: value(total) });
      }
    } else if (name === "generic_gemm") {
      const [a, transA, b, transB] = args;
      const isGrad = args[11];
      add(
        "gemm",
        { a: value(a), b: value(b), bias: transA && !transB ? value(args[7]) : undefined },
        { out: value(results[0]), biasGrad: isGrad || transB ? value(results[1]) : undefined },
        {
          layout: `${transA ? "T" : "N"}${transB ? "T" : "N"}`,
          useSplitAccumulator: args[15],
          algorithm: call.algorithms[0],
        },
      );
    } else if (/^fused_rope/.test(name)) {
      const isForward = name === "fused_rope_forward";
      add(
        isForward ? "RoPE" : "RoPE gradient",
        { x: whole(args[0]), angles: whole(args[1]) },
        { out: whole(results) },
      );
    } else if (name === "scaled_masked_softmax_forward") {
      add("attention scores", { q: whole(heads.q), k: whole(heads.k) }, { out: whole(args[0]) }, { alpha });
      add("softmax", { x: whole(args[0]) }, { out: whole(results) }, { scale: args[2] });
    } else if (name === "scaled_masked_softmax_backward") {
      const p = whole(probabilities);
      const d = whole(gradients.context);
      add("attention gradient: dP", { grad: d, v: whole(heads.v) }, { out: whole(args[0]) });
      add("attention gradient: dv", { grad: d, p }, { out: whole(gradients.dv) });
      add(
        "softmax gradient",
        { grad: whole(args[0]), y: whole(args[1]) },
        { dx: whole(results) },
        { scale: args[2] },
      );
      const ds = whole(results);
      add("attention gradient: dq", { ds, k: whole(heads.k) }, { out: whole(gradients.dq) }, { alpha });
      add("attention gradient: dk", { ds, q: whole(heads.q) }, { out: whole(gradients.dk) }, { alpha });
      add(
        "attention",
        { q: whole(heads.q), k: whole(heads.k), v: whole(heads.v), grad: d },
        {
          ...{ out: whole(attention.results[0]), dq: whole(gradients.dq), dk: whole(gradients.dk) },
          ...{ dv: whole(gradients.dv) },
        },
      );
    } else if (name === "UnfusedDotProductAttention") {
      add("attention context", { p: whole(probabilities), v: whole(heads.v) }, { out: whole(results[0]) });
    } else if (activation) {
      const [, bias, gradient, kind] = activation;
      const at = gradient ? 2 : 1;
      const out = bias ? results[1] : results;
      add(
        gradient ? `${kind} gradient` : kind,
        gradient ? { grad: value(args[0]), x: value(args[1]) } : { x: value(args[0]) },
        {
          [gradient ? "dx" : "out"]: value(out),
          biasGrad: bias ? value(results[0]) : undefined,
          amax: amaxOf(at),
        },
        { quantizer: quantizer(args[at], recorded) },
      );
    } else if (name === "compiled bias_gelu_fused") {
      add("bias and gelu", { x: value(args[0]), bias: value(args[1]) }, { out: value(results) });
    } else if (name === "compiled bgrad_dgelu_fused") {
      add(
        "bias and gelu gradient",
        { grad: value(args[0]), x: value(args[1]), bias: value(args[2]) },
        { dx: value(results[1]), biasGrad: value(results[0]) },
      );
    } else if (name === "compiled bias_dropout_add_fused_train") {
      add(
        "bias and residual",
        { x: value(args[0]), bias: value(args[1]), y: value(args[2]) },
        { out: value(results) },
      );
    } else if (name === "quantize" || name === "bgrad_quantize") {
      const out = name === "quantize" ? results : results[1];
      const biasGrad = name === "quantize" ? undefined : value(results[0]);
      const options = { quantizer: quantizer(args[1], recorded) };
      add("quantizer", { x: value(args[0]) }, { out: value(out), biasGrad, amax: amaxOf(1) }, options);
    } else if (name === "fp8_transpose") {
      add("transposition", { x: value(args[0]) }, { out: value(results) });
    } else if (name === "LayerNormLinear" && layer) {
      const [q, k] = ropes.length > 0 ? ropes.map((each) => each.arguments[0]) : [heads.q, heads.k];
      add("heads of qkv", { x: value(results[0]) }, { q: whole(q), k: whole(k), v: whole(heads.v) });
    } else if (name === "Linear" && layer && !given.bias) {
      const [input, total] = [moduleNamed("").arguments[0], moduleNamed("layernorm_mlp").arguments[0]];
      add("residual", { x: value(results[0]), y: value(input) }, { out: value(total) });
    } else if (name === "LayerNormMLP" && layer && !given.bias) {
      add(
        "residual",
        { x: value(results[0]), y: value(args[0]) },
        { out: value(moduleNamed("").results[0]) },
      );
    }
    if (name === "TransformerLayer" && given.bias) {
      const of = moduleNamed("layernorm_mlp").gradients;
      add("bias gradient", { x: value(of["result 0"]) }, { out: value(of["result 1"]) });
    }
    if (/^layernorm_bwd$/.test(name) && layer && given.bias && norms === 1) {
      const of = moduleNamed("self_attention").gradients;
      add("bias gradient", { x: value(of["result 0"]) }, { out: value(of["result 1"]) });
    }
    const isLastOfHeads =
      ropesBack.length > 0 ? call === ropesBack.at(-1) : name === "scaled_masked_softmax_backward";
    if (layer && isLastOfHeads) {
      const [dq, dk] =
        ropesBack.length > 0 ? ropesBack.map((each) => each.results).reverse() : [gradients.dq, gradients.dk];
      const total = moduleNamed("self_attention.layernorm_qkv").gradients["result 0"];
      add("gradient of qkv", { q: whole(dq), k: whole(dk), v: whole(gradients.dv) }, { out: value(total) });
    }
  }
  return stages;
}

const layers = [];
let origin;
for (const recipe of RECIPES) {
  const file = JSON.parse(gunzipSync(readFileSync(join(folder, `te-layers-${recipe}.json.gz`))));
  origin = file.origin;
  for (const given of file.layers) {
    if (given.refused) throw new Error(`${given.module} ${recipe}: ${given.refused}`);
    const { calls: _, results, angles: __, iterations, ...options } = given;
    const parameters = Object.entries(results).filter(([name]) => name.startsWith("d "));
    layers.push({
      ...options,
      iteration: iterations - 1,
      parameters: Object.fromEntries(parameters.map(([name, { shape }]) => [name.slice(2), shape])),
      stages: stagesOf(given, file.tensors),
    });
  }
}
writeFileSync(path, JSON.stringify({ origin, layers, bits }));
