/** Layers under a recipe put together by hand: quantizers from a table of its own, products, and scales from amaxes. */
import type { Backend } from "../../src/backends/backend.js";
import { castTo } from "../../src/ops/cast.js";
import { tensor, zeros } from "../../src/ops/create.js";
import { type GemmLayout, gemm } from "../../src/ops/gemm.js";
import { Float8CurrentScalingQuantizer, Float8Quantizer } from "../../src/quantizers/float8.js";
import { Float8BlockQuantizer } from "../../src/quantizers/float8-block.js";
import { MXFP8Quantizer } from "../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../src/quantizers/nvfp4.js";
import type { Quantizer, RandomState } from "../../src/quantizers/quantizer.js";
import { Float8BlockScaling, MXFP8BlockScaling, NVFP4BlockScaling } from "../../src/recipes/block-scaled.js";
import { CustomRecipe } from "../../src/recipes/custom.js";
import { DelayedScaling, Float8CurrentScaling } from "../../src/recipes/per-tensor.js";
import type { Recipe } from "../../src/recipes/recipe.js";
import type { Role } from "../../src/recipes/table.js";
import { QuantizedTensor, type Usage } from "../../src/tensor/quantized.js";
import type { Shape, WideDType } from "../../src/tensor/shape.js";
import type { Tensor } from "../../src/tensor/tensor.js";
import { assertSame } from "./difference.js";
import { gridValues } from "./gradients.js";
import { download } from "./plain.js";

/** Which products split their accumulator: fprop, dgrad, wgrad (numerics.md §6.2). */
type Split = readonly [fprop: boolean, dgrad: boolean, wgrad: boolean];

interface Row {
  readonly recipe: () => Recipe;
  readonly split: Split;
  /** Delayed scaling aside, which needs state (numerics.md §8). `amax` takes the place of the tensor's own. */
  readonly quantizer: (role: Role, random: RandomState, amax?: Tensor<"f32">) => Quantizer;
  /** What an activation is computed and quantized at once by sees its f32 values for the amax (numerics.md §7.3). */
  readonly fusedAmax?: true;
}

const FAST_FORWARD: Split = [false, true, true];
const isBackward = (role: Role): boolean => role === "gradOutput" || role === "gradInput";
const hybrid = (role: Role) => (isBackward(role) ? "e5m2" : "e4m3");

/** numerics.md §8 and §6.2, row by row. */
const TABLE = {
  delayed: {
    recipe: () => new DelayedScaling({ amaxHistoryLen: 3 }),
    split: FAST_FORWARD,
    quantizer: () => {
      throw new Error("delayed scaling has state");
    },
  },
  current: {
    recipe: () => new Float8CurrentScaling(),
    split: FAST_FORWARD,
    quantizer: (role, _, amax) =>
      new Float8CurrentScalingQuantizer({ format: hybrid(role), ...(amax && { amax }) }),
    fusedAmax: true,
  },
  "current, E4M3 and powers of two": {
    recipe: () => new Float8CurrentScaling({ format: "E4M3", usePower2Scales: true }),
    split: FAST_FORWARD,
    quantizer: (_, __, amax) =>
      new Float8CurrentScalingQuantizer({ format: "e4m3", pow2Scales: true, ...(amax && { amax }) }),
    fusedAmax: true,
  },
  "current scaling of the caller's own": {
    recipe: () =>
      new CustomRecipe({
        quantizerFactory: (role) => new Float8CurrentScalingQuantizer({ format: hybrid(role) }),
      }),
    split: FAST_FORWARD,
    quantizer: (role) => new Float8CurrentScalingQuantizer({ format: hybrid(role) }),
  },
  block: {
    recipe: () => new Float8BlockScaling(),
    split: [true, true, true],
    quantizer: (role) => new Float8BlockQuantizer({ tile: role === "weight" ? "128x128" : "1x128" }),
  },
  "block, HYBRID and f32 scales": {
    recipe: () => new Float8BlockScaling({ format: "HYBRID", useF32Scales: true }),
    split: [true, true, true],
    quantizer: (role) =>
      new Float8BlockQuantizer({
        format: hybrid(role),
        tile: role === "weight" ? "128x128" : "1x128",
        pow2Scales: false,
      }),
  },
  "block, square activations": {
    recipe: () => new Float8BlockScaling({ xBlockScalingDim: 2, wBlockScalingDim: 1 }),
    split: [true, true, true],
    quantizer: (role) =>
      new Float8BlockQuantizer({ tile: role === "input" || role === "output" ? "128x128" : "1x128" }),
  },
  "block, square gradients": {
    recipe: () => new Float8BlockScaling({ wBlockScalingDim: 1, gradBlockScalingDim: 2 }),
    split: [true, true, true],
    quantizer: (role) => new Float8BlockQuantizer({ tile: isBackward(role) ? "128x128" : "1x128" }),
  },
  mxfp8: {
    recipe: () => new MXFP8BlockScaling(),
    split: FAST_FORWARD,
    quantizer: () => new MXFP8Quantizer(),
  },
  "mxfp8, square weights": {
    recipe: () => new MXFP8BlockScaling({ enable2dQuantization: true, format: "HYBRID" }),
    split: FAST_FORWARD,
    quantizer: (role) =>
      new MXFP8Quantizer({ format: hybrid(role), tile: role === "weight" ? "32x32" : "1x32" }),
  },
  nvfp4: {
    recipe: () => new NVFP4BlockScaling(),
    split: FAST_FORWARD,
    quantizer: (role, random) =>
      role === "weight"
        ? new NVFP4Quantizer({ tile: "16x16" })
        : new NVFP4Quantizer({ rht: true, stochastic: isBackward(role), random }),
  },
  "nvfp4, all switched off": {
    recipe: () =>
      new NVFP4BlockScaling({
        disableRht: true,
        disableStochasticRounding: true,
        disable2dQuantization: true,
        fourOverSix: "weights",
        fourOverSixErrMode: "mse",
      }),
    split: FAST_FORWARD,
    quantizer: (role, _, amax) =>
      new NVFP4Quantizer({
        fourOverSix: role === "weight" ? "mse" : "none",
        ...(amax && { amax, amaxColumnwise: amax }),
      }),
    fusedAmax: true,
  },
  "nvfp4, 4over6 of all, 256 for activations": {
    recipe: () =>
      new NVFP4BlockScaling({
        disableRht: true,
        disableStochasticRounding: true,
        fourOverSix: "all",
        e4m3Use256: "activations",
      }),
    split: FAST_FORWARD,
    quantizer: (role, _, amax) =>
      new NVFP4Quantizer({
        tile: role === "weight" ? "16x16" : "1x16",
        fourOverSix: isBackward(role) ? "none" : "mae",
        e4m3Max: role === "input" || role === "output" ? 256 : 448,
        ...(amax && { amax, amaxColumnwise: amax }),
      }),
    fusedAmax: true,
  },
  "nvfp4, 4over6 of activations": {
    recipe: () =>
      new NVFP4BlockScaling({ disableRht: true, fourOverSix: "activations", fourOverSixErrMode: "mse" }),
    split: FAST_FORWARD,
    quantizer: (role, random, amax) =>
      isBackward(role)
        ? new NVFP4Quantizer({ stochastic: true, random, ...(amax && { amax, amaxColumnwise: amax }) })
        : new NVFP4Quantizer({
            tile: role === "weight" ? "16x16" : "1x16",
            fourOverSix: role === "weight" ? "none" : "mse",
            ...(amax && { amax, amaxColumnwise: amax }),
          }),
    fusedAmax: true,
  },
} satisfies Record<string, Row>;

export type HandName = keyof typeof TABLE;
export const ROWS: Readonly<Record<HandName, Row>> = TABLE;
export const HAND_NAMES = Object.keys(TABLE) as readonly HandName[];

const HISTORY = 3;

/** One scale of delayed scaling: 448 or 57344 over the largest amax of the last steps, 1 at first. */
class HandScale {
  readonly scale: Tensor<"f32">;
  readonly amax: Tensor<"f32">;
  #history: readonly number[] = [];

  constructor(
    backend: Backend,
    private readonly max: number,
  ) {
    this.scale = tensor(backend, [1]);
    this.amax = zeros(backend, "f32", [1]);
  }

  update(): void {
    const [amax = 0] = this.amax.dataSync();
    if (amax === 0) return;
    this.#history = [...this.#history, amax].slice(-HISTORY);
    this.scale.write(Float32Array.of(this.max / Math.max(...this.#history)));
    this.amax.write(Float32Array.of(0));
  }
}

type Directions = "rowwise" | "columnwise" | "both";

function usageOf(directions: Directions): Usage {
  return { rowwise: directions !== "columnwise", columnwise: directions !== "rowwise" };
}

/** One linear layer's quantizers and products under a row of the table. */
export class HandLayer {
  readonly #scales = new Map<Role, HandScale>();
  readonly #quantizers = new Map<Role, Quantizer>();

  constructor(
    readonly backend: Backend,
    readonly name: HandName,
    private readonly random: RandomState,
  ) {}

  get split(): Split {
    return ROWS[this.name].split;
  }

  quantizer(role: Role, usage: Usage): Quantizer {
    const known = this.#quantizers.get(role) ?? this.#make(role);
    this.#quantizers.set(role, known);
    return known.setUsage(usage);
  }

  quantize(role: Role, x: Tensor, directions: Directions): QuantizedTensor {
    return this.quantizer(role, usageOf(directions)).quantize(x);
  }

  /** Of a norm's f32 values, which would be `dtype` as a tensor, as one step with their quantization. */
  quantizeNormed(
    role: Role,
    x: Tensor<WideDType>,
    dtype: WideDType,
    directions: Directions,
  ): QuantizedTensor {
    return this.quantize(role, this.name === "delayed" ? x : castTo(x, dtype), directions);
  }

  /** The same of an activation's values. */
  quantizeComputed(
    role: Role,
    x: Tensor<WideDType>,
    dtype: WideDType,
    directions: Directions,
  ): QuantizedTensor {
    if (this.name === "delayed") return this.quantize(role, x, directions);
    const rounded = castTo(x, dtype);
    const { fusedAmax, quantizer } = ROWS[this.name];
    if (!fusedAmax) return this.quantize(role, rounded, directions);
    const amax = tensor(this.backend, [
      Array.from(x.dataSync()).reduce((a, b) => Math.max(a, Math.abs(b)), 0),
    ]);
    return quantizer(role, this.random, amax).setUsage(usageOf(directions)).quantize(rounded);
  }

  #make(role: Role): Quantizer {
    if (this.name !== "delayed") return ROWS[this.name].quantizer(role, this.random);
    const state = new HandScale(this.backend, isBackward(role) ? 57344 : 448);
    this.#scales.set(role, state);
    return new Float8Quantizer({ format: hybrid(role), scale: state.scale, amax: state.amax });
  }

  /** The scale a role has now. */
  scale(role: Role): number {
    return this.#scales.get(role)?.scale.dataSync()[0] ?? 1;
  }

  /** The end of a forward, or of a backward, pass. */
  update(pass: "forward" | "backward"): void {
    for (const [role, scale] of this.#scales) if (isBackward(role) === (pass === "backward")) scale.update();
  }

  /** One of the three products, by its number: fprop 0, dgrad 1, wgrad 2. */
  product(
    number: 0 | 1 | 2,
    a: QuantizedTensor,
    b: QuantizedTensor,
    outDtype: WideDType,
    bias?: Tensor,
  ): Tensor<WideDType> {
    const layout = (["TN", "NN", "NT"] as const satisfies readonly GemmLayout[])[number] as GemmLayout;
    const useSplitAccumulator = this.split[number] as boolean;
    const options = { a, b, layout, outDtype, useSplitAccumulator };
    return gemm(bias ? { ...options, bias } : options).out as Tensor<WideDType>;
  }
}

/** A tensor of drawn numbers, of about `scale`. */
export function drawnTensor(
  backend: Backend,
  seed: number,
  shape: Shape,
  dtype: WideDType,
  scale = 2,
): Tensor<WideDType> {
  const count = shape.reduce((a, b) => a * b, 1);
  return castTo(tensor(backend, gridValues(seed, count, scale), shape), dtype);
}

/** Throws unless both have the same type, shape and bits, copy by copy where they are quantized. */
export function expectSame(
  name: string,
  actual: Tensor | QuantizedTensor | undefined,
  expected: Tensor | QuantizedTensor | undefined,
): void {
  const [ours, theirs] = [partsOf(actual), partsOf(expected)];
  if (ours.length !== theirs.length)
    throw new Error(`${name}: ${ours.length} parts; there have to be ${theirs.length}`);
  ours.forEach((part, i) => {
    assertSame(`${name}[${i}]`, download(part), download(theirs[i] as Tensor));
  });
}

function partsOf(x: Tensor | QuantizedTensor | undefined): readonly Tensor[] {
  if (x === undefined) return [];
  return x instanceof QuantizedTensor ? x.members : [x];
}
