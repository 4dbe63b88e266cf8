/** Computes the stages of recorded layers by this library, each on its recorded inputs. */
import {
  type ActivationName,
  activation,
  activationBackward,
  add,
  attention,
  attentionBackward,
  type Backend,
  batchedGemm,
  columnSum,
  Float8BlockQuantizer,
  Float8CurrentScalingQuantizer,
  Float8Quantizer,
  gated,
  gatedBackward,
  gemm,
  layerNorm,
  normBackward,
  type QuantizedTensor,
  type Quantizer,
  RotaryPositionEmbedding,
  rmsNorm,
  rotaryEmbedding,
  type Shape,
  softmax,
  softmaxBackward,
  sum,
  type Tensor,
  tensor,
  type WideDType,
} from "../../../../../src/index.js";
import {
  type Batch,
  type Bf16,
  fromBatch,
  joinHeads,
  matrices,
  splitHeads,
  toBatch,
  transpose,
} from "./heads.js";
import { rotaryTables } from "./rotary-tables.js";
import {
  type Bits,
  isQuantized,
  type QuantizedReference,
  type QuantizerReference,
  type Reference,
  type Stage,
} from "./witness.js";

/** This library's results by the names of the recorded ones. The suffix " by ..." names a second way to compute a result. */
export type ReplayedResults = Readonly<Record<string, Tensor | QuantizedTensor | undefined>>;

const GATED_ACTIVATIONS: Readonly<Record<string, ActivationName>> = { geglu: "gelu", swiglu: "silu" };

class Replay {
  readonly #backend: Backend;
  readonly #bits: Bits;
  readonly #stage: Stage;

  constructor(backend: Backend, bits: Bits, stage: Stage) {
    this.#backend = backend;
    this.#bits = bits;
    this.#stage = stage;
  }

  #reference(name: string): Reference {
    const reference = this.#stage.inputs[name];
    if (!reference || isQuantized(reference)) throw new Error(`${this.#stage.stage} has no tensor ${name}`);
    return reference;
  }

  has(name: string): boolean {
    return name in this.#stage.inputs;
  }

  shape(name: string): Shape {
    return this.#reference(name).shape;
  }

  /** The shape of a recorded result that is not quantized. */
  resultShape(name: string): Shape {
    return this.#stage.results[name]?.shape ?? [];
  }

  toBf16(name: string): Bf16 {
    const reference = this.#reference(name);
    return { data: new Uint16Array(this.#bits.require(reference).slice().buffer), shape: reference.shape };
  }

  #tensor(reference: Reference, shape: Shape = reference.shape): Tensor<WideDType> {
    const { buffer } = this.#bits.require(reference).slice();
    return reference.type === "f32"
      ? tensor(this.#backend, new Float32Array(buffer), shape)
      : this.bf16(new Uint16Array(buffer), shape);
  }

  bf16(data: Uint16Array, shape: Shape): Tensor<"bf16"> {
    return tensor(this.#backend, data, shape, "bf16");
  }

  batch({ data, shape }: Batch): Tensor<"bf16"> {
    return this.bf16(data, shape);
  }

  input(name: string): Tensor<WideDType> {
    return this.#tensor(this.#reference(name));
  }

  f32(name: string): Float32Array {
    return new Float32Array(this.#bits.require(this.#reference(name)).slice().buffer);
  }

  codes(name: string): Uint8Array {
    return this.#bits.require(this.#reference(name));
  }

  floats(data: Float32Array, shape: Shape): Tensor<"f32"> {
    return tensor(this.#backend, data, shape);
  }

  u8(data: Uint8Array, shape: Shape): Tensor {
    return tensor(this.#backend, data, shape, "u8");
  }

  computeTables(width: number, positions: number) {
    return new RotaryPositionEmbedding(this.#backend, width).forward(positions);
  }

  /** The recorded quantizer, and its amax for delayed scaling. */
  quantizer(): { readonly quantizer: Quantizer; readonly amax?: Tensor } | undefined {
    const reference = this.#stage.options.quantizer;
    if (!reference) return undefined;
    const amax = reference.kind === "delayed" ? tensor(this.#backend, [0]) : undefined;
    return { quantizer: this.#createQuantizer(reference, amax), ...(amax ? { amax } : {}) };
  }

  #createQuantizer(reference: QuantizerReference, amax?: Tensor<"f32">): Quantizer {
    const { kind, format, rowwise, columnwise, pow2Scales, tile } = reference;
    const usage = { rowwise, columnwise };
    if (kind === "block")
      return new Float8BlockQuantizer({ format, tile, pow2Scales, scaleLayout: "padded", ...usage });
    if (kind === "current") return new Float8CurrentScalingQuantizer({ format, pow2Scales, ...usage });
    const scale = reference.scale ? this.#tensor(reference.scale, [1]) : tensor(this.#backend, [1]);
    return new Float8Quantizer({ format, scale: scale as Tensor<"f32">, amax, ...usage });
  }

  /** An operand of a product. */
  operand(name: string): Tensor | QuantizedTensor {
    const reference = this.#stage.inputs[name];
    return reference && isQuantized(reference) ? this.#uploadQuantized(reference) : this.input(name);
  }

  #uploadQuantized(reference: QuantizedReference): QuantizedTensor {
    const { format, tile, shape } = reference;
    const usage = { rowwise: reference.data !== undefined, columnwise: reference.transpose !== undefined };
    const kind = tile ? "block" : "current";
    const out = this.#createQuantizer({ kind, format, ...usage, ...(tile ? { tile } : {}) }).makeEmpty(
      this.#backend,
      shape,
    );
    const copies = [
      [out.rowwise, reference.data, reference.scales],
      [out.columnwise, reference.transpose, tile ? reference.transposeScales : reference.scales],
    ] as const;
    for (const [copy, data, scales] of copies) {
      if (!copy || !data || !scales) continue;
      copy.data.write(this.#bits.require(data));
      copy.scaleInv.write(padScales(this.#bits.require(scales), scales.shape, copy.scaleInv.shape));
    }
    return out;
  }
}

/** Scales with as many columns as the target, whose additional columns are 0. */
function padScales(bytes: Uint8Array, [, columns = 0]: Shape, target: Shape): Float32Array {
  const values = new Float32Array(bytes.slice().buffer);
  const [rows = 0, stride] = target;
  if (stride === undefined || stride === columns) return values;
  const out = new Float32Array(rows * stride);
  for (let i = 0; i < rows; i++) out.set(values.subarray(i * columns, (i + 1) * columns), i * stride);
  return out;
}

function replayNorm(replay: Replay, eps: number, isLayer: boolean): ReplayedResults {
  const [x, gamma] = [replay.input("x"), replay.input("gamma")];
  const beta = isLayer ? replay.input("beta") : undefined;
  const recorded = replay.quantizer();
  const result = recorded
    ? recorded.quantizer.normQuantize(x, { gamma, eps, ...(beta ? { beta } : {}) })
    : beta
      ? layerNorm(x, gamma, beta, { eps })
      : rmsNorm(x, gamma, { eps });
  return { out: result.out, mean: result.mean, rstd: result.rstd, amax: recorded?.amax };
}

function replayNormGradient(replay: Replay): ReplayedResults {
  const optional = (name: string): Tensor<"f32"> | undefined =>
    replay.has(name) ? (replay.input(name) as Tensor<"f32">) : undefined;
  const { dx, dgamma, dbeta } = normBackward({
    grad: replay.input("grad"),
    x: replay.input("x"),
    gamma: replay.input("gamma"),
    mean: optional("mean"),
    rstd: replay.input("rstd") as Tensor<"f32">,
  });
  return { dx, dgamma, dbeta };
}

function replayActivation(replay: Replay, name: string): ReplayedResults {
  const kind = GATED_ACTIVATIONS[name] ?? (name as ActivationName);
  const isGated = name in GATED_ACTIVATIONS;
  const x = replay.input("x");
  const recorded = replay.quantizer();
  const out = recorded
    ? recorded.quantizer.activationQuantize(x, { kind, gated: isGated })
    : isGated
      ? gated(x, { kind })
      : activation(x, { kind });
  return { out, amax: recorded?.amax };
}

function replayActivationGradient(replay: Replay, name: string, hasBias: boolean): ReplayedResults {
  const kind = GATED_ACTIVATIONS[name] ?? (name as ActivationName);
  const isGated = name in GATED_ACTIVATIONS;
  const [x, grad] = [replay.input("x"), replay.input("grad")];
  const recorded = replay.quantizer();
  const dx = recorded
    ? recorded.quantizer.activationQuantize(x, { kind, gated: isGated, grad })
    : isGated
      ? gatedBackward(grad, x, { kind })
      : activationBackward(grad, x, { kind });
  // the bias gradient sums the unrounded results
  const biasGrad = hasBias
    ? columnSum(activationBackward(grad, x, { kind, outDtype: "f32" }), "bf16")
    : undefined;
  return { dx, biasGrad, amax: recorded?.amax };
}

/** The sum of x and a row in f32, as in a compiled function of TransformerEngine before further operations. */
function withBias(replay: Replay): Tensor<WideDType> {
  const [x, { data }] = [replay.input("x"), replay.toBf16("bias")];
  const rows = new Uint16Array(x.size);
  for (let i = 0; i < x.size; i += data.length) rows.set(data, i);
  return add(x, replay.bf16(rows, x.shape), { outDtype: "f32" });
}

function replayRotary(replay: Replay, inverse: boolean): ReplayedResults {
  const x = replay.input("x");
  const [, positions = 0, , width = 0] = x.shape;
  const { cos, sin } = rotaryTables(replay.f32("angles"), positions);
  const shape = [positions, width / 2];
  const tables = replay.computeTables(width, positions);
  return {
    out: rotaryEmbedding(x, replay.floats(cos, shape), replay.floats(sin, shape), { inverse }),
    "out by our tables": rotaryEmbedding(x, tables.cos, tables.sin, { inverse }),
  };
}

/** Sums the gradients of the heads of each group: [B, S, H, D] to [B, S, G, D]. */
function sumGroups(replay: Replay, grad: Bf16, groups: number): Tensor {
  const [batch = 0, rows = 0, heads = 0, width = 0] = grad.shape;
  const grouped = replay.bf16(grad.data, [batch * rows * groups, heads / groups, width]);
  if (heads === groups) return grouped.reshape(grad.shape);
  return sum(grouped, { dim: 1 }).reshape([batch, rows, groups, width]);
}

/** The products alpha · x · wᵀ of a batch. */
function product(replay: Replay, x: Batch, w: Batch, alpha = 1): Batch {
  const { out } = batchedGemm({ x: replay.batch(x), w: replay.batch(w), alpha });
  return { data: out.dataSync() as Uint16Array, shape: out.shape as Batch["shape"] };
}

/** The gradient of the context, [B, S, H * D], as heads. */
function contextGradient(replay: Replay, width: number): Bf16 {
  const { data, shape } = replay.toBf16("grad");
  const [batch = 0, rows = 0, columns = 0] = shape;
  return { data, shape: [batch, rows, columns / width, width] };
}

/** The products of unfused attention. P and dS are rounded to bf16 between them. */
function attentionProduct(replay: Replay, name: string, alpha: number | undefined): ReplayedResults {
  const shape = replay.shape(["q", "grad", "p", "ds"].find((input) => replay.has(input)) as string);
  const result = (batch: Batch, groups?: number): ReplayedResults => {
    const heads = fromBatch(batch, shape[0] as number);
    return { out: sumGroups(replay, heads, groups ?? (heads.shape[2] as number)) };
  };
  switch (name) {
    case "attention scores": {
      const q = replay.toBf16("q");
      const heads = q.shape[2] as number;
      const { data, shape: productShape } = product(
        replay,
        toBatch(q, heads),
        toBatch(replay.toBf16("k"), heads),
        alpha,
      );
      return { out: replay.bf16(data, [shape[0] as number, heads, productShape[1], productShape[2]]) };
    }
    case "attention context": {
      const v = toBatch(replay.toBf16("v"), shape[1] as number);
      return result(product(replay, matrices(replay.toBf16("p")), transpose(v)));
    }
    case "attention gradient: dP": {
      const v = replay.toBf16("v");
      const grad = contextGradient(replay, v.shape[3] as number);
      const heads = grad.shape[2] as number;
      const { data, shape: productShape } = product(replay, toBatch(grad, heads), toBatch(v, heads));
      return { out: replay.bf16(data, [shape[0] as number, heads, productShape[1], productShape[2]]) };
    }
    case "attention gradient: dv": {
      const p = replay.toBf16("p");
      const heads = p.shape[1] as number;
      const grad = contextGradient(replay, (shape[2] as number) / heads);
      return result(
        product(replay, transpose(matrices(p)), transpose(toBatch(grad, heads))),
        replay.resultShape("out")[2],
      );
    }
    case "attention gradient: dq": {
      const k = toBatch(replay.toBf16("k"), shape[1] as number);
      return result(product(replay, matrices(replay.toBf16("ds")), transpose(k), alpha));
    }
    default: {
      const scores = replay.toBf16("ds");
      const q = toBatch(replay.toBf16("q"), scores.shape[1] as number);
      const ds = transpose(matrices(scores));
      return result(product(replay, ds, transpose(q), alpha), replay.resultShape("out")[2]);
    }
  }
}

/** Fused attention, which rounds neither scores nor probabilities, in place of the steps of unfused attention. */
function fusedAttention(replay: Replay): ReplayedResults {
  const [q, k, v] = [replay.input("q"), replay.input("k"), replay.input("v")];
  const { out, lse } = attention(q, k, v, { causal: true });
  const grad = replay.input("grad").reshape(out.shape);
  const { dq, dk, dv } = attentionBackward(grad, q, k, v, out, lse, { causal: true });
  return { out, dq, dk, dv };
}

function replayTransposition(replay: Replay): ReplayedResults {
  const [rows = 0, columns = 0] = replay.shape("x");
  const codes = replay.codes("x");
  const out = new Uint8Array(codes.length);
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) out[j * rows + i] = codes[i * columns + j] as number;
  return { out: replay.u8(out, [columns, rows]) };
}

function replayQuantization(replay: Replay, hasBias: boolean): ReplayedResults {
  const { quantizer, amax } = replay.quantizer() ?? {};
  if (!quantizer) throw new Error("a quantizer is missing");
  if (!hasBias) return { out: quantizer.quantize(replay.input("x")), amax };
  const { out, biasGrad } = quantizer.biasGradQuantize(replay.input("x"));
  return { out, biasGrad, amax };
}

function splitQkv(replay: Replay): ReplayedResults {
  const shapes = { q: replay.resultShape("q"), k: replay.resultShape("k"), v: replay.resultShape("v") };
  const { q, k, v } = splitHeads(replay.toBf16("x").data, shapes);
  return {
    q: replay.bf16(q, shapes.q),
    k: replay.bf16(k, shapes.k),
    v: replay.bf16(v, shapes.v),
  };
}

/** The results of one stage on `backend`. The caller disposes of them. */
export function replayStage(backend: Backend, bits: Bits, recorded: Stage): ReplayedResults {
  const replay = new Replay(backend, bits, recorded);
  const { options, stage, results } = recorded;
  const hasBias = "biasGrad" in results;
  const [name, suffix] = stage.split(" ");
  switch (stage) {
    case "layerNorm":
    case "rmsNorm":
      return replayNorm(replay, options.eps ?? 0, stage === "layerNorm");
    case "layerNorm gradient":
    case "rmsNorm gradient":
      return replayNormGradient(replay);
    case "gemm": {
      const { layout, useSplitAccumulator } = options;
      const bias = replay.has("bias") ? { bias: replay.input("bias") } : {};
      const { out, biasGradient } = gemm({
        ...{ a: replay.operand("a"), b: replay.operand("b"), layout, useSplitAccumulator },
        ...{ outDtype: "bf16", biasGradient: hasBias, ...bias },
      });
      return { out, biasGrad: biasGradient };
    }
    case "quantizer":
      return replayQuantization(replay, hasBias);
    case "transposition":
      return replayTransposition(replay);
    case "RoPE":
    case "RoPE gradient":
      return replayRotary(replay, stage === "RoPE gradient");
    case "softmax":
      return { out: softmax(replay.input("x"), { causal: true, scale: options.scale }) };
    case "softmax gradient": {
      const [grad, y] = [replay.input("grad"), replay.input("y")];
      return { dx: softmaxBackward(grad, y, { causal: true, scale: options.scale }) };
    }
    case "attention":
      return fusedAttention(replay);
    case "heads of qkv":
      return splitQkv(replay);
    case "gradient of qkv": {
      const projections = { q: replay.toBf16("q"), k: replay.toBf16("k"), v: replay.toBf16("v") };
      return { out: replay.bf16(joinHeads(projections), replay.resultShape("out")) };
    }
    case "residual":
    case "residual gradient":
      return { out: add(replay.input("x"), replay.input("y")) };
    case "bias and residual":
      return { out: add(withBias(replay), replay.input("y"), { outDtype: "bf16" }) };
    case "bias gradient":
      return { out: columnSum(replay.input("x")) };
    case "bias and gelu":
      return { out: activation(withBias(replay), { kind: "gelu", outDtype: "bf16" }) };
    case "bias and gelu gradient": {
      const [grad, x] = [replay.input("grad"), withBias(replay)];
      const f32Gradient = activationBackward(grad, x, { kind: "gelu", outDtype: "f32" });
      const dx = activationBackward(grad, x, { kind: "gelu", outDtype: "bf16" });
      return { dx, biasGrad: columnSum(f32Gradient, "bf16") };
    }
  }
  if (name === "attention") return attentionProduct(replay, stage, options.alpha);
  if (name && suffix === "gradient") return replayActivationGradient(replay, name, hasBias);
  if (name && suffix === undefined) return replayActivation(replay, name);
  throw new Error(`no replay of ${stage}`);
}
