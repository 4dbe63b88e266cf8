/** The quantizers of FP8 attention under each recipe (numerics.md §10.9), and the state of delayed scaling. */
import { amaxOf } from "../core/scale.js";
import type { QuantizeSpec, WideName } from "../quantize/quantize.js";
import { type DelayedModel, Slots } from "./delayed-slots.js";
import { cast, type Matrix } from "./matrix.js";
import { QuantizedModel } from "./quantized.js";
import type { QuantizedName, Rounding } from "./quantized-attention.js";
import type { CurrentRecipe, MXFP8Recipe } from "./recipes.js";

export type AttentionRecipe = DelayedModel | CurrentRecipe | MXFP8Recipe;

const FORWARD: readonly QuantizedName[] = ["qkv", "o", "s"];
const BACKWARD: readonly QuantizedName[] = ["dqkv", "do", "dp"];

/** The scales of one attention, and what its quantizers have recorded. */
export class AttentionScales {
  readonly forward: Slots | undefined;
  readonly backward: Slots | undefined;

  constructor(readonly recipe: AttentionRecipe) {
    if (recipe.kind !== "delayed") return;
    this.forward = new Slots(recipe, this.#formatOf("qkv"), FORWARD.length);
    this.backward = new Slots(recipe, this.#formatOf("dqkv"), BACKWARD.length);
  }

  #formatOf(name: QuantizedName): "e4m3" | "e5m2" {
    return this.recipe.format === "HYBRID" && BACKWARD.includes(name) ? "e5m2" : "e4m3";
  }

  /** Rounds by the current scales. */
  rounding(): Rounding {
    return (name, tensors, type) => {
      if (this.recipe.kind === "mxfp8" && (name === "s" || name === "dp"))
        return tensors.map((x) => cast(x, type));
      const spec = this.spec(name, tensors);
      const isColumnwise = (i: number) => this.recipe.kind === "mxfp8" && i === 2;
      return tensors.map((x, i) =>
        roundTripValues(x, spec, type, isColumnwise(i) ? "columnwise" : "rowwise"),
      );
    };
  }

  /** Returns how tensors that share a scale are quantized now, and records their amax. */
  spec(name: QuantizedName, tensors: readonly Matrix[]): QuantizeSpec {
    const { recipe } = this;
    const format = this.#formatOf(name);
    if (recipe.kind === "mxfp8") return { quantizer: "mxfp8", format };
    const amax = amaxOf(tensors.flatMap(({ data }) => [...data]));
    if (recipe.kind === "current")
      return {
        quantizer: "fp8-current",
        format,
        pow2Scales: recipe.pow2,
        amaxEpsilon: recipe.amaxEpsilon,
        amax,
      };
    const isForward = FORWARD.includes(name);
    const slots = (isForward ? this.forward : this.backward) as Slots;
    const slot = (isForward ? FORWARD : BACKWARD).indexOf(name);
    slots.record(slot, amax);
    return { quantizer: "fp8-delayed", format, scale: slots.scale[slot] as number };
  }
}

function roundTripValues(
  x: Matrix,
  spec: QuantizeSpec,
  type: WideName,
  usage: "rowwise" | "columnwise",
): Matrix {
  return new QuantizedModel({ x, computed: false }, spec).wide(type, usage);
}
