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
  batchOf,
  fromBatch,
  joinHeads,
  matrices,
  splitHeads,
  transposed,
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
export type Replayed = Readonly<Record<string, Tensor | QuantizedTensor | undefined>>;

const GATED: Readonly<Record<string, ActivationName>> = { geglu: "gelu", swiglu: "silu" };

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
    const given = this.#stage.inputs[name];
    if (!given || isQuantized(given)) throw new Error(`${this.#stage.stage} has no tensor ${name}`);
    return given;
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

  halves(name: string): Bf16 {
    const given = this.#reference(name);
    return { data: new Uint16Array(this.#bits.of(given).slice().buffer), shape: given.shape };
  }

  #tensor(given: Reference, shape: Shape = given.shape): Tensor<WideDType> {
    const { buffer } = this.#bits.of(given).slice();
    return given.type === "f32"
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
    return new Float32Array(this.#bits.of(this.#reference(name)).slice().buffer);
  }

  codes(name: string): Uint8Array {
    return this.#bits.of(this.#reference(name));
  }

  floats(data: Float32Array, shape: Shape): Tensor<"f32"> {
    return tensor(this.#backend, data, shape);
  }

  u8(data: Uint8Array, shape: Shape): Tensor {
    return tensor(this.#backend, data, shape, "u8");
  }

  ownTables(width: number, positions: number) {
    return new RotaryPositionEmbedding(this.#backend, width).forward(positions);
  }

  /** The recorded quantizer, and its amax for delayed scaling. */
  quantizer(): { readonly quantizer: Quantizer; readonly amax?: Tensor } | undefined {
    const given = this.#stage.options.quantizer;
    if (!given) return undefined;
    const amax = given.kind === "delayed" ? tensor(this.#backend, [0]) : undefined;
    return { quantizer: this.#quantizerOf(given, amax), ...(amax ? { amax } : {}) };
  }

  #quantizerOf(given: QuantizerReference, amax?: Tensor<"f32">): Quantizer {
    const { kind, format, rowwise, columnwise, pow2Scales, tile } = given;
    const usage = { rowwise, columnwise };
    if (kind === "block")
      return new Float8BlockQuantizer({ format, tile, pow2Scales, scaleLayout: "padded", ...usage });
    if (kind === "current") return new Float8CurrentScalingQuantizer({ format, pow2Scales, ...usage });
    const scale = given.scale ? this.#tensor(given.scale, [1]) : tensor(this.#backend, [1]);
    return new Float8Quantizer({ format, scale: scale as Tensor<"f32">, amax, ...usage });
  }

  /** An operand of a product. */
  operand(name: string): Tensor | QuantizedTensor {
    const given = this.#stage.inputs[name];
    return given && isQuantized(given) ? this.#quantized(given) : this.input(name);
  }

  #quantized(given: QuantizedReference): QuantizedTensor {
    const { format, tile, shape } = given;
    const usage = { rowwise: given.data !== undefined, columnwise: given.transpose !== undefined };
    const kind = tile ? "block" : "current";
    const out = this.#quantizerOf({ kind, format, ...usage, ...(tile ? { tile } : {}) }).makeEmpty(
      this.#backend,
      shape,
    );
    const copies = [
      [out.rowwise, given.data, given.scales],
      [out.columnwise, given.transpose, tile ? given.transposeScales : given.scales],
    ] as const;
    for (const [copy, data, scales] of copies) {
      if (!copy || !data || !scales) continue;
      copy.data.write(this.#bits.of(data));
      copy.scaleInv.write(padded(this.#bits.of(scales), scales.shape, copy.scaleInv.shape));
    }
    return out;
  }
}

/** Scales with as many columns as the target, whose additional columns are 0. */
function padded(bytes: Uint8Array, [, columns = 0]: Shape, target: Shape): Float32Array {
  const values = new Float32Array(bytes.slice().buffer);
  const [rows = 0, stride] = target;
  if (stride === undefined || stride === columns) return values;
  const out = new Float32Array(rows * stride);
  for (let i = 0; i < rows; i++) out.set(values.subarray(i * columns, (i + 1) * columns), i * stride);
  return out;
}

function norm(replay: Replay, eps: number, isLayer: boolean): Replayed {
  const [x, gamma] = [replay.input("x"), replay.input("gamma")];
  const beta = isLayer ? replay.input("beta") : undefined;
  const given = replay.quantizer();
  const result = given
    ? given.quantizer.normQuantize(x, { gamma, eps, ...(beta ? { beta } : {}) })
    : beta
      ? layerNorm(x, gamma, beta, { eps })
      : rmsNorm(x, gamma, { eps });
  return { out: result.out, mean: result.mean, rstd: result.rstd, amax: given?.amax };
}

function normGradient(replay: Replay): Replayed {
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

function activated(replay: Replay, name: string): Replayed {
  const kind = GATED[name] ?? (name as ActivationName);
  const isGated = name in GATED;
  const x = replay.input("x");
  const given = replay.quantizer();
  const out = given
    ? given.quantizer.activationQuantize(x, { kind, gated: isGated })
    : isGated
      ? gated(x, { kind })
      : activation(x, { kind });
  return { out, amax: given?.amax };
}

function activationGradient(replay: Replay, name: string, hasBias: boolean): Replayed {
  const kind = GATED[name] ?? (name as ActivationName);
  const isGated = name in GATED;
  const [x, grad] = [replay.input("x"), replay.input("grad")];
  const given = replay.quantizer();
  const dx = given
    ? given.quantizer.activationQuantize(x, { kind, gated: isGated, grad })
    : isGated
      ? gatedBackward(grad, x, { kind })
      : activationBackward(grad, x, { kind });
  // the bias gradient sums the unrounded results
  const biasGrad = hasBias
    ? columnSum(activationBackward(grad, x, { kind, outDtype: "f32" }), "bf16")
    : undefined;
  return { dx, biasGrad, amax: given?.amax };
}

/** The sum of x and a row in f32, as in a compiled function of TransformerEngine before further operations. */
function withBias(replay: Replay): Tensor<WideDType> {
  const [x, { data }] = [replay.input("x"), replay.halves("bias")];
  const rows = new Uint16Array(x.size);
  for (let i = 0; i < x.size; i += data.length) rows.set(data, i);
  return add(x, replay.bf16(rows, x.shape), { outDtype: "f32" });
}

function rotated(replay: Replay, inverse: boolean): Replayed {
  const x = replay.input("x");
  const [, positions = 0, , width = 0] = x.shape;
  const { cos, sin } = rotaryTables(replay.f32("angles"), positions);
  const shape = [positions, width / 2];
  const own = replay.ownTables(width, positions);
  return {
    out: rotaryEmbedding(x, replay.floats(cos, shape), replay.floats(sin, shape), { inverse }),
    "out by our tables": rotaryEmbedding(x, own.cos, own.sin, { inverse }),
  };
}

/** Sums the gradients of the heads of each group: [B, S, H, D] to [B, S, G, D]. */
function perGroup(replay: Replay, grad: Bf16, groups: number): Tensor {
  const [batch = 0, rows = 0, heads = 0, width = 0] = grad.shape;
  const all = replay.bf16(grad.data, [batch * rows * groups, heads / groups, width]);
  if (heads === groups) return all.reshape(grad.shape);
  return sum(all, { dim: 1 }).reshape([batch, rows, groups, width]);
}

/** The products alpha · x · wᵀ of a batch. */
function product(replay: Replay, x: Batch, w: Batch, alpha = 1): Batch {
  const { out } = batchedGemm({ x: replay.batch(x), w: replay.batch(w), alpha });
  return { data: out.dataSync() as Uint16Array, shape: out.shape as Batch["shape"] };
}

/** The gradient of the context, [B, S, H * D], as heads. */
function contextGradient(replay: Replay, width: number): Bf16 {
  const { data, shape } = replay.halves("grad");
  const [batch = 0, rows = 0, columns = 0] = shape;
  return { data, shape: [batch, rows, columns / width, width] };
}

/** The products of unfused attention. P and dS are rounded to bf16 between them. */
function attentionProduct(replay: Replay, name: string, alpha: number | undefined): Replayed {
  const shape = replay.shape(["q", "grad", "p", "ds"].find((each) => replay.has(each)) as string);
  const result = (batch: Batch, groups?: number): Replayed => {
    const heads = fromBatch(batch, shape[0] as number);
    return { out: perGroup(replay, heads, groups ?? (heads.shape[2] as number)) };
  };
  switch (name) {
    case "attention scores": {
      const q = replay.halves("q");
      const heads = q.shape[2] as number;
      const { data, shape: own } = product(
        replay,
        batchOf(q, heads),
        batchOf(replay.halves("k"), heads),
        alpha,
      );
      return { out: replay.bf16(data, [shape[0] as number, heads, own[1], own[2]]) };
    }
    case "attention context": {
      const v = batchOf(replay.halves("v"), shape[1] as number);
      return result(product(replay, matrices(replay.halves("p")), transposed(v)));
    }
    case "attention gradient: dP": {
      const v = replay.halves("v");
      const grad = contextGradient(replay, v.shape[3] as number);
      const heads = grad.shape[2] as number;
      const { data, shape: own } = product(replay, batchOf(grad, heads), batchOf(v, heads));
      return { out: replay.bf16(data, [shape[0] as number, heads, own[1], own[2]]) };
    }
    case "attention gradient: dv": {
      const p = replay.halves("p");
      const heads = p.shape[1] as number;
      const grad = contextGradient(replay, (shape[2] as number) / heads);
      return result(
        product(replay, transposed(matrices(p)), transposed(batchOf(grad, heads))),
        replay.resultShape("out")[2],
      );
    }
    case "attention gradient: dq": {
      const k = batchOf(replay.halves("k"), shape[1] as number);
      return result(product(replay, matrices(replay.halves("ds")), transposed(k), alpha));
    }
    default: {
      const scores = replay.halves("ds");
      const q = batchOf(replay.halves("q"), scores.shape[1] as number);
      const ds = transposed(matrices(scores));
      return result(product(replay, ds, transposed(q), alpha), replay.resultShape("out")[2]);
    }
  }
}

/** Fused attention, which rounds neither scores nor probabilities, in place of the steps of unfused attention. */
function fusedAttention(replay: Replay): Replayed {
  const [q, k, v] = [replay.input("q"), replay.input("k"), replay.input("v")];
  const { out, lse } = attention(q, k, v, { causal: true });
  const grad = replay.input("grad").reshape(out.shape);
  const { dq, dk, dv } = attentionBackward(grad, q, k, v, out, lse, { causal: true });
  return { out, dq, dk, dv };
}

function transposition(replay: Replay): Replayed {
  const [rows = 0, columns = 0] = replay.shape("x");
  const codes = replay.codes("x");
  const out = new Uint8Array(codes.length);
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) out[j * rows + i] = codes[i * columns + j] as number;
  return { out: replay.u8(out, [columns, rows]) };
}

function quantization(replay: Replay, hasBias: boolean): Replayed {
  const { quantizer, amax } = replay.quantizer() ?? {};
  if (!quantizer) throw new Error("a quantizer is missing");
  if (!hasBias) return { out: quantizer.quantize(replay.input("x")), amax };
  const { out, biasGrad } = quantizer.biasGradQuantize(replay.input("x"));
  return { out, biasGrad, amax };
}

function headsOfQkv(replay: Replay): Replayed {
  const shapes = { q: replay.resultShape("q"), k: replay.resultShape("k"), v: replay.resultShape("v") };
  const { q, k, v } = splitHeads(replay.halves("x").data, shapes);
  return {
    q: replay.bf16(q, shapes.q),
    k: replay.bf16(k, shapes.k),
    v: replay.bf16(v, shapes.v),
  };
}

/** The results of one stage on `backend`. The caller disposes of them. */
export function replayStage(backend: Backend, bits: Bits, given: Stage): Replayed {
  const replay = new Replay(backend, bits, given);
  const { options, stage, results } = given;
  const hasBias = "biasGrad" in results;
  const [name, of] = stage.split(" ");
  switch (stage) {
    case "layerNorm":
    case "rmsNorm":
      return norm(replay, options.eps ?? 0, stage === "layerNorm");
    case "layerNorm gradient":
    case "rmsNorm gradient":
      return normGradient(replay);
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
      return quantization(replay, hasBias);
    case "transposition":
      return transposition(replay);
    case "RoPE":
    case "RoPE gradient":
      return rotated(replay, stage === "RoPE gradient");
    case "softmax":
      return { out: softmax(replay.input("x"), { causal: true, scale: options.scale }) };
    case "softmax gradient": {
      const [grad, y] = [replay.input("grad"), replay.input("y")];
      return { dx: softmaxBackward(grad, y, { causal: true, scale: options.scale }) };
    }
    case "attention":
      return fusedAttention(replay);
    case "heads of qkv":
      return headsOfQkv(replay);
    case "gradient of qkv": {
      const parts = { q: replay.halves("q"), k: replay.halves("k"), v: replay.halves("v") };
      return { out: replay.bf16(joinHeads(parts), replay.resultShape("out")) };
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
      const unrounded = activationBackward(grad, x, { kind: "gelu", outDtype: "f32" });
      const dx = activationBackward(grad, x, { kind: "gelu", outDtype: "bf16" });
      return { dx, biasGrad: columnSum(unrounded, "bf16") };
    }
  }
  if (name === "attention") return attentionProduct(replay, stage, options.alpha);
  if (name && of === "gradient") return activationGradient(replay, name, hasBias);
  if (name && of === undefined) return activated(replay, name);
  throw new Error(`no replay of ${stage}`);
}
