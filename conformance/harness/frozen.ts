/**
 * Results that an H200 gave, kept as hashes of their bits: fixed cases of every operation, made from seeds, that any
 * backend can compute again. A product is kept with the plan that the GPU chose, and is computed by it.
 */
import { createHash } from "node:crypto";
import type { Backend } from "../../src/backends/backend.js";
import type { ActivationName } from "../../src/backends/ops.js";
import { BLOCK_FORMATS, type BlockFormatName, tileSize } from "../../src/formats/block.js";
import { ACTIVATION } from "../../src/formats/contract.gen.js";
import { type GemmOptions, gemm } from "../../src/ops/gemm.js";
import type { GemmPlan } from "../../src/ops/gemm-plan.js";
import { makeSpec } from "../../src/quantizers/quantizer.js";
import type { QuantizeSpec } from "../../src/tensor/quantized.js";
import type { WideDType } from "../../src/tensor/shape.js";
import { words } from "../arbitraries/random.js";
import type { Answer } from "./operation.js";
import { type Cases, OPERATIONS, type OperationName } from "./operations.js";
import { codeValue, download, fromCodes, nanIsClass, PlainTensor, upload } from "./plain.js";
import { operandOf, PAIRS, stepOf, wideValuesOf } from "./products.js";

/** Hashes of an answer's parts, by name. */
export type Hashes = Readonly<Record<string, string>>;

/** One operation on inputs made from a seed. */
export interface FrozenCase {
  readonly name: string;
  readonly run: (backend: Backend) => Answer;
}

/** SHA-256 of each part's codes, little-endian, every NaN of a wide type as one. */
export function hashesOf(answer: Answer): Hashes {
  return Object.fromEntries(
    Object.entries(answer).map(([name, part]) => [
      name,
      createHash("sha256").update(canonical(part)).digest("hex"),
    ]),
  );
}

function canonical(part: PlainTensor): Uint8Array {
  const { codes, dtype } = part;
  const nan = nanIsClass(dtype);
  const made = nan ? codes.map((code) => (Number.isNaN(codeValue(dtype, code)) ? 0xffffffff : code)) : codes;
  return new Uint8Array(made.buffer, made.byteOffset, made.byteLength);
}

/** Any f32, bf16 or f16: a fifth of them specials and of every size. */
function values(dtype: WideDType, shape: readonly number[], seed: number): PlainTensor<WideDType> {
  const near = wideValuesOf(dtype, shape, seed);
  const wild = words(seed + 1, near.codes.length);
  return fromCodes(
    dtype,
    shape,
    Array.from(near.codes, (code, i) => {
      const word = wild[i] as number;
      return word % 5 === 0 ? (dtype === "f32" ? word : word >>> 16) : code;
    }),
  );
}

function operation<K extends OperationName>(name: K, label: string, input: Cases[K]): FrozenCase {
  return { name: `${name} ${label}`, run: (backend) => OPERATIONS[name].run(backend, input) };
}

const BOTH = { rowwise: true, columnwise: true };
const TYPES = ["f32", "bf16", "f16"] as const;
const KINDS = Object.keys(ACTIVATION) as ActivationName[];

/** Specs that between them have every format, tile and option. */
function specs(): readonly QuantizeSpec[] {
  const plain = (Object.keys(BLOCK_FORMATS) as BlockFormatName[]).flatMap((name) =>
    BLOCK_FORMATS[name].elements.flatMap((format) =>
      BLOCK_FORMATS[name].tiles.map((tile) => makeSpec(name, { format, tile })),
    ),
  );
  return [
    ...plain,
    makeSpec("fp8-block", { compact: true, pow2Scales: false }),
    makeSpec("fp8-current", { pow2Scales: true, epsilon: 0.5 }),
    makeSpec("nvfp4", { rht: true, rhtSigns: 0xd7e8, stochastic: true }),
    makeSpec("nvfp4", { fourOverSix: "mae", e4m3Max: 256 }),
    makeSpec("nvfp4", { fourOverSix: "mse", e4m3Max: 448, tile: "16x16" }),
  ];
}

function quantizations(): readonly FrozenCase[] {
  return specs().flatMap((spec, i) =>
    TYPES.filter((dtype) => dtype === "bf16" || !spec.rht).map((dtype) => {
      const { quantizer, format, tile, rht, fourOverSix, compact, epsilon } = spec;
      const ragged = BLOCK_FORMATS[quantizer].multiple === 1;
      const label = [
        quantizer,
        format,
        tile,
        dtype,
        rht ? "rht" : "",
        fourOverSix,
        compact ? "compact" : "",
        epsilon ? "epsilon" : "",
      ];
      return operation("quantize", label.filter((part) => part && part !== "none").join(" "), {
        x: values(dtype, ragged ? [131, 267] : [160, 288], 100 + i),
        spec,
        usage: BOTH,
        scaleLayout: tileSize(tile)[1] < 128 && tile !== "tensor" ? "swizzled" : "padded",
        random: { seed: 7n, offset: BigInt(i) },
        scale: 3.5,
      });
    }),
  );
}

function elementwise(): readonly FrozenCase[] {
  return TYPES.flatMap((dtype, i) => {
    const x = values(dtype, [67, 258], 200 + i);
    const [grad, half] = [values("bf16", [67, 258], 210 + i), values("bf16", [67, 129], 220 + i)];
    const gamma = wideValuesOf(dtype, [258], 230 + i);
    const near = wideValuesOf(dtype, [67, 258], 240 + i);
    const row = wideValuesOf("f32", [67], 250 + i) as PlainTensor<"f32">;
    const targets = new PlainTensor(
      "i32",
      [67],
      Int32Array.from(words(260 + i, 67), (word) => word % 258),
    );
    const step = { parameter: values("f32", [67, 258], 270 + i) as PlainTensor<"f32">, grad: x };
    const m = values("f32", [67, 258], 280 + i) as PlainTensor<"f32">;
    const loss = { logits: near, targets, smoothing: 0.1, ignore: -100 };
    return [
      ...KINDS.flatMap((kind) => [
        operation("activation", `${kind} ${dtype}`, { x, kind, outDtype: dtype }),
        operation("activationBackward", `${kind} ${dtype}`, { x, grad, kind, outDtype: "f32" }),
        operation("gated", `${kind} ${dtype}`, { x, kind, outDtype: "bf16" }),
        operation("gatedBackward", `${kind} ${dtype}`, { x, grad: half, kind, outDtype: dtype }),
      ]),
      operation("norm", dtype, {
        x: near,
        gamma,
        beta: gamma,
        zeroCentered: true,
        epsilon: 1e-5,
        outDtype: dtype,
      }),
      operation("normBackward", dtype, { grad, x: near, gamma, zeroCentered: false, mean: row, rstd: row }),
      operation("columnSum", dtype, { x: near, outDtype: "f32" }),
      operation("crossEntropy", dtype, loss),
      operation("crossEntropyBackward", dtype, { ...loss, grad: row, maximum: row, total: row }),
      operation("sgd", dtype, {
        ...step,
        m,
        options: {
          learningRate: 0.1,
          weightDecay: 0.01,
          momentum: 0.9,
          dampening: 0,
          nesterov: true,
          first: false,
        },
      }),
      operation("amax", dtype, { x }),
    ];
  });
}

/** Every frozen case but the products. */
export const FROZEN: readonly FrozenCase[] = [...quantizations(), ...elementwise()];

/** A product of a pair of operands. */
export interface FrozenProduct {
  readonly name: string;
  readonly pair: string;
  readonly size: readonly [m: number, n: number, k: number];
  readonly seed: number;
  readonly options: Pick<GemmOptions, "alpha" | "beta" | "useSplitAccumulator" | "splitK" | "outDtype">;
  readonly bias: boolean;
}

/** Aligned, ragged, and so deep that K is split. */
const SIZES: readonly (readonly [number, number, number])[] = [
  [64, 128, 256],
  [37, 75, 131],
  [128, 64, 384],
  [16, 48, 8192],
];

export const FROZEN_PRODUCTS: readonly FrozenProduct[] = Object.entries(PAIRS).flatMap(([pair, sources], p) =>
  SIZES.map((size, i) => {
    const step = stepOf(sources);
    const [m, n, k] = size.map((length) => Math.max(step, length - (length % step))) as [
      number,
      number,
      number,
    ];
    const deep = k > 4096;
    return {
      name: `${pair} ${m}x${n}x${k}${deep ? " split as the GPU chose" : ""}`,
      pair,
      size: [m, n, k] as const,
      seed: 1000 + 10 * p + i,
      bias: i === 1,
      options: {
        alpha: i === 2 ? 0.3 : 1,
        useSplitAccumulator: i % 2 === 1,
        splitK: deep ? ("auto" as const) : 1,
        outDtype: i === 0 ? ("bf16" as const) : ("f32" as const),
        ...(i === 2 ? { beta: -0.7 } : {}),
      },
    };
  }),
);

/** The product, by `plan` where one is given, and the plan it was computed by. */
export function frozenProduct(
  backend: Backend,
  { pair, size, seed, options, bias }: FrozenProduct,
  plan?: GemmPlan,
): { readonly hashes: Hashes; readonly plan: GemmPlan } {
  const [m, n, k] = size;
  const [ofB, ofA] = PAIRS[pair] as (typeof PAIRS)[string];
  const { splitK, useSplitAccumulator, ...rest } = options;
  const result = gemm({
    ...rest,
    ...(plan ? { plan } : { splitK, useSplitAccumulator, datapath: backend.datapath }),
    b: operandOf(backend, ofB, [m, k], seed),
    a: operandOf(backend, ofA, [n, k], seed + 1),
    ...(options.beta === undefined ? {} : { c: upload(backend, wideValuesOf("bf16", [m, n], seed + 2)) }),
    ...(bias ? { bias: upload(backend, wideValuesOf("bf16", [n], seed + 3)) } : {}),
  });
  return { hashes: hashesOf({ out: download(result.out) }), plan: result.plan };
}

/** conformance/vectors/h200-results.json. */
export interface FrozenFile {
  readonly origin: { readonly project: string; readonly version: string };
  readonly results: readonly { readonly name: string; readonly sha256: Hashes }[];
  readonly products: readonly { readonly name: string; readonly plan: GemmPlan; readonly sha256: Hashes }[];
}

export const FROZEN_PATH = new URL("../vectors/h200-results.json", import.meta.url);
