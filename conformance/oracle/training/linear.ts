/** A model of a linear layer: three products, in high precision or under a recipe, and the layer's state between calls. */
import type { DatapathFamily } from "../../../src/formats/datapath.js";
import { amaxOf } from "../core/scale.js";
import type { WideName } from "../quantize/quantize.js";
import { type DelayedModel, Slots, type SlotsSnapshot } from "./delayed-slots.js";
import { type Divided, dividedProduct, dividedSums, withBias } from "./divided.js";
import { cast, columnSums, type Matrix, ofRows } from "./matrix.js";
import { type Operand, product, wideOperand } from "./products.js";
import { type Quantizable, QuantizedModel } from "./quantized.js";
import { overrideOf, type ProductModel, type RoleModel, type StepRecipe, specOf, splits } from "./recipes.js";
import { type Passed, type Value, wideOf } from "./tape.js";

/** The state that all calls of a program share. */
export interface Run {
  /**
   * The datapath of products with quantized operands. Products of f32 without a recipe use `fp32`, unless `family` is
   * exact.
   */
  readonly family: DatapathFamily;
  /** The offset grows by one with each stochastic quantization. */
  readonly random: { readonly seed: bigint; offset: bigint };
  /** The recipe of the enclosing `autocast` region; undefined outside of one. */
  recipe: StepRecipe | undefined;
  /** The scales used since their last update, for the forward and the backward pass. */
  readonly used: { readonly forward: Set<Slots>; readonly backward: Set<Slots> };
}

export interface CallModel {
  readonly isFirstMicrobatch?: boolean | undefined;
  /** Unless it is 1, the cached weight is quantized again. */
  readonly skip?: 0 | 1 | undefined;
  readonly fp8Output?: boolean;
  readonly fp8Grad?: boolean;
}

/** A leaf variable that an optimizer updates. */
export interface ParameterModel extends Value {
  mainGrad?: Matrix | undefined;
}

export interface LinearInputModel {
  /** The input for quantizers and products. */
  readonly from: Quantizable | QuantizedModel;
  /** The input in the activation type, for products in high precision. */
  readonly wide: () => Matrix;
  readonly dtype: WideName;
  readonly requiresGrad: boolean;
}

export interface LinearGradientsModel {
  readonly x?: Passed | undefined;
  readonly weight?: Matrix | undefined;
  readonly bias?: Matrix | undefined;
}

export interface LinearResultModel {
  readonly out: Passed;
  /**
   * The backward function. `computed` has the f32 values of a gradient that is quantized in a fused kernel; the bias gradient
   * sums them.
   */
  readonly backward: (grad: Passed, computed?: Quantizable) => LinearGradientsModel;
}

const SLOTS: Readonly<Record<RoleModel, readonly ["forward" | "backward", number]>> = {
  input: ["forward", 0],
  weight: ["forward", 1],
  output: ["forward", 2],
  gradOutput: ["backward", 0],
  gradInput: ["backward", 1],
};

export class LinearModel {
  #recipe: StepRecipe | undefined;
  slots: { readonly forward: Slots; readonly backward: Slots } | undefined;
  #cached: { readonly weight: QuantizedModel; readonly columnwise: boolean } | undefined;
  /** True if the next weight gradient overwrites the main gradient instead of being added to it. */
  #fresh = false;

  constructor(
    readonly weight: ParameterModel,
    readonly bias: ParameterModel | undefined,
    readonly fuses: boolean,
    /** How the layer is divided among ranks. Undefined if it is not divided. */
    readonly divided?: Divided | undefined,
  ) {}

  forward(run: Run, input: LinearInputModel, call: CallModel): LinearResultModel {
    const recorded = input.requiresGrad || this.weight.requiresGrad || this.bias?.requiresGrad === true;
    const required = { dgrad: recorded && input.requiresGrad, wgrad: recorded && this.weight.requiresGrad };
    const result = run.recipe
      ? this.#quantized(run, run.recipe, input, call, required)
      : this.#plain(run, input, required);
    if (call.isFirstMicrobatch && required.wgrad) this.#fresh = true;
    return result;
  }

  #plain(run: Run, input: LinearInputModel, required: Wanted): LinearResultModel {
    const { dtype } = input;
    const family = dtype === "f32" && run.family !== "exact" ? "fp32" : run.family;
    const [x, w] = [input.wide(), this.weight.wide];
    const form = (a: Operand, b: Operand, bias?: Matrix): number[][] =>
      product(a, b, { family, split: false, bias: bias?.data });
    const { divided } = this;
    const out =
      divided?.mode === "row"
        ? withBias(
            dividedProduct(
              wideOperand(w, "rowwise"),
              wideOperand(x, "rowwise"),
              { family, split: false },
              divided,
              dtype,
            ),
            this.bias?.wide,
          )
        : ofRows(
            form(wideOperand(w, "rowwise"), wideOperand(x, "rowwise"), this.bias?.wide),
            w.shape[0],
            dtype,
          );
    return {
      out,
      backward: (grad) => {
        const dy = wideOf(grad);
        const [columns, rows] = [wideOperand(w, "columnwise"), wideOperand(dy, "rowwise")];
        const joined = { family, split: false };
        const dx = (): Matrix =>
          divided?.mode === "column"
            ? dividedProduct(columns, rows, joined, divided, dtype)
            : ofRows(form(columns, rows), w.shape[1], dtype);
        return {
          x: required.dgrad ? dx() : undefined,
          weight: required.wgrad
            ? this.#weightGradient(wideOperand(x, "columnwise"), wideOperand(dy, "columnwise"), joined, dtype)
            : undefined,
          bias: this.#biasGradient(dy),
        };
      },
    };
  }

  #quantized(
    run: Run,
    recipe: StepRecipe,
    input: LinearInputModel,
    call: CallModel,
    required: Wanted,
  ): LinearResultModel {
    this.#enter(run, recipe);
    const { dtype } = input;
    const override = overrideOf(recipe);
    const overrides = override !== "none";
    const joined = (name: ProductModel) => ({ family: run.family, split: splits(recipe, name) });
    const quantize = (role: RoleModel, from: Quantizable) => this.#quantize(run, recipe, role, from);
    const x = input.from instanceof QuantizedModel ? input.from : quantize("input", input.from);
    const w = this.#quantizedWeight(run, recipe, call, required.dgrad && !overrides);
    const bias = this.bias && cast(this.bias.wide, dtype === "f32" ? "bf16" : dtype);
    const [outFeatures, inFeatures] = this.weight.wide.shape;
    const { divided } = this;
    const fprop = (): number[][] =>
      product(w.operand("rowwise"), x.operand("rowwise"), { ...joined("fprop"), bias: bias?.data });
    // the copy for the backward pass is computed now, because its source may change later
    const columns = required.wgrad && !overrides ? x.operand("columnwise") : undefined;
    const result = (
      rows: number[][],
      count: number,
      role: RoleModel,
      narrow: boolean | undefined,
    ): Passed => {
      if (!narrow) return ofRows(rows, count, dtype);
      // delayed scaling quantizes the f32 sums; other recipes quantize the rounded result (numerics.md §6.3)
      if (recipe.kind !== "delayed")
        return quantize(role, { x: ofRows(rows, count, dtype), computed: false });
      return quantize(role, { x: { ...ofRows(rows, count, "f32"), dtype }, computed: "norm" });
    };
    const out =
      divided?.mode === "row"
        ? withBias(
            dividedProduct(w.operand("rowwise"), x.operand("rowwise"), joined("fprop"), divided, dtype),
            this.bias?.wide,
          )
        : result(fprop(), outFeatures, "output", call.fp8Output);
    if (overrides) {
      // a quantized input has no values but those of its codes
      const wideX =
        override === "dequantized" || input.from instanceof QuantizedModel
          ? x.wide(dtype)
          : { ...input.wide(), data: input.wide().data.slice() };
      const heldWeight = override === "dequantized" ? w.wide(dtype) : undefined;
      const read = () => heldWeight ?? cast(this.weight.wide, dtype);
      return {
        out,
        backward: (grad) => this.#wideGradients(run, { x: wideX, w: read }, grad, required, dtype),
      };
    }
    return {
      out,
      backward: (grad, computed) => {
        const dbias = this.#biasGradient(computed?.x ?? grad);
        if (!required.dgrad && !required.wgrad) return { bias: dbias };
        if (this.slots) run.used.backward.add(this.slots.backward);
        const dy =
          grad instanceof QuantizedModel
            ? grad
            : quantize("gradOutput", computed ?? { x: grad, computed: false });
        const rows = dy.operand("rowwise");
        const dx = (): Passed =>
          divided?.mode === "column"
            ? dividedProduct(w.operand("columnwise"), rows, joined("dgrad"), divided, dtype)
            : result(
                product(w.operand("columnwise"), rows, joined("dgrad")),
                inFeatures,
                "gradInput",
                call.fp8Grad,
              );
        return {
          x: required.dgrad ? dx() : undefined,
          weight: columns && this.#weightGradient(columns, dy.operand("columnwise"), joined("wgrad"), dtype),
          bias: dbias,
        };
      },
    };
  }

  /** The gradients of a call by products in high precision. `w` is read during the backward pass. */
  #wideGradients(
    run: Run,
    { x, w }: { readonly x: Matrix; readonly w: () => Matrix },
    grad: Passed,
    required: Wanted,
    dtype: WideName,
  ): LinearGradientsModel {
    const family = dtype === "f32" && run.family !== "exact" ? "fp32" : run.family;
    const joined = { family, split: false };
    const dy = cast(wideOf(grad), dtype);
    const dx = (): Matrix => {
      const [columns, rows] = [wideOperand(w(), "columnwise"), wideOperand(dy, "rowwise")];
      return this.divided?.mode === "column"
        ? dividedProduct(columns, rows, joined, this.divided, dtype)
        : ofRows(product(columns, rows, joined), this.weight.wide.shape[1], dtype);
    };
    return {
      x: required.dgrad ? dx() : undefined,
      weight: required.wgrad
        ? this.#weightGradient(wideOperand(x, "columnwise"), wideOperand(dy, "columnwise"), joined, dtype)
        : undefined,
      bias: this.#biasGradient(dy),
    };
  }

  #biasGradient(grad: Passed): Matrix | undefined {
    if (!this.bias?.requiresGrad) return undefined;
    const { dtype } = this.bias.wide;
    const { mode, sequence, ranks = 1 } = this.divided ?? {};
    return mode === "row" && sequence
      ? dividedSums(wideOf(grad), ranks, dtype)
      : columnSums(wideOf(grad), dtype);
  }

  #weightGradient(
    x: Operand,
    dy: Operand,
    joined: { readonly family: DatapathFamily; readonly split: boolean },
    dtype: WideName,
  ): Matrix | undefined {
    const { weight } = this;
    const columns = weight.wide.shape[1];
    if (!this.fuses) return cast(ofRows(product(x, dy, joined), columns, dtype), weight.wide.dtype);
    const addend = this.#fresh ? undefined : weight.mainGrad;
    weight.mainGrad = ofRows(product(x, dy, { ...joined, addend }), columns, "f32");
    this.#fresh = false;
    return undefined;
  }

  /**
   * Switches the layer to a recipe. Scales and histories survive if both recipes use delayed scaling, even with different
   * options; otherwise they are dropped.
   */
  #enter(run: Run, recipe: StepRecipe): void {
    if (JSON.stringify(recipe) !== JSON.stringify(this.#recipe)) {
      const before = this.slots;
      const kept = recipe.kind === "delayed" && before;
      const snapshots = kept ? ([kept.forward.snapshot(), kept.backward.snapshot()] as const) : [];
      this.slots = recipe.kind === "delayed" ? slotsOf(recipe, snapshots) : undefined;
      this.#cached = undefined;
      this.#recipe = recipe;
    }
    if (this.slots) run.used.forward.add(this.slots.forward);
  }

  /** Returns a function that restores the current scales and histories, as loading a checkpoint does. It drops cached weights. */
  saved(): () => void {
    const recipe = this.#recipe;
    const { forward, backward } = this.slots ?? {};
    const snapshots = [forward?.snapshot(), backward?.snapshot()] as const;
    return () => {
      this.slots = recipe?.kind === "delayed" ? slotsOf(recipe, snapshots) : undefined;
      this.#recipe = undefined;
      this.#cached = undefined;
    };
  }

  #quantize(run: Run, recipe: StepRecipe, role: RoleModel, from: Quantizable): QuantizedModel {
    const spec = specOf(recipe, role);
    if (spec.stochastic) {
      const { seed } = run.random;
      return new QuantizedModel(from, { ...spec, seed, offset: run.random.offset++ });
    }
    const [pass, slot] = SLOTS[role];
    const slots = this.slots?.[pass];
    if (!slots) return new QuantizedModel(from, spec);
    const scale = slots.scale[slot] as number;
    slots.record(slot, amaxOf(from.x.data));
    return new QuantizedModel(from, { ...spec, scale });
  }

  #quantizedWeight(run: Run, recipe: StepRecipe, call: CallModel, columnwise: boolean): QuantizedModel {
    const anew = (): QuantizedModel =>
      this.#quantize(run, recipe, "weight", { x: snapshot(this.weight.wide), computed: false });
    const { isFirstMicrobatch, skip } = call;
    if (isFirstMicrobatch === undefined && skip === undefined) return anew();
    const cached = this.#cached;
    const keeps = !isFirstMicrobatch && skip !== 0;
    if (cached && keeps && (cached.columnwise || !columnwise)) return cached.weight;
    this.#cached = { weight: anew(), columnwise: columnwise || cached?.columnwise === true };
    return this.#cached.weight;
  }
}

function slotsOf(recipe: DelayedModel, [forward, backward]: readonly (SlotsSnapshot | undefined)[]) {
  const ofGradients = recipe.format === "HYBRID" ? "e5m2" : "e4m3";
  return {
    forward: new Slots(recipe, "e4m3", 3, forward),
    backward: new Slots(recipe, ofGradients, 2, backward),
  };
}

interface Wanted {
  readonly dgrad: boolean;
  readonly wgrad: boolean;
}

/** A copy of the values that later optimizer steps do not change. */
function snapshot(x: Matrix): Matrix {
  return { ...x, data: x.data.slice() };
}

/** Ends an `autocast` region or a backward pass: updates all scales that were used in it. */
export function endPass({ used }: Run, pass: "forward" | "backward"): void {
  for (const slots of used[pass]) slots.update();
  used[pass].clear();
}
