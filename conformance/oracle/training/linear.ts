/** A model of a linear layer: three products, in high precision or under a recipe, and the layer's state between calls. */
import type { DatapathFamily } from "../../../src/formats/datapath.js";
import { amaxOf } from "../core/scale.js";
import type { WideName } from "../quantize/quantize.js";
import { type DelayedModel, Slots, type SlotsSnapshot } from "./delayed-slots.js";
import { type DivisionModel, dividedProduct, dividedSums, withBias } from "./divided.js";
import { cast, columnSums, type Matrix, ofRows } from "./matrix.js";
import { type Operand, product, wideOperand } from "./products.js";
import { CopiesModel, type Quantizable, QuantizedModel } from "./quantized.js";
import {
  copiesSpecOf,
  type ProductModel,
  type RoleModel,
  type StepRecipe,
  specOf,
  splits,
} from "./recipes.js";
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
  readonly usedSlots: { readonly forward: Set<Slots>; readonly backward: Set<Slots> };
}

export interface CallModel {
  readonly isFirstMicrobatch?: boolean | undefined;
  /** 1: the cached weight is used. Otherwise the weight is quantized again. */
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

/** The quantized copies of a weight. A copy in high precision is undefined. */
interface CachedWeight {
  readonly rowwise: QuantizedModel | undefined;
  readonly columnwise: QuantizedModel | undefined;
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
  #cached: (CachedWeight & { readonly servesBackward: boolean }) | undefined;
  /** True if the next weight gradient overwrites the main gradient instead of being added to it. */
  #fresh = false;

  constructor(
    readonly weight: ParameterModel,
    readonly bias: ParameterModel | undefined,
    readonly fuses: boolean,
    /** How the layer is divided among ranks. Undefined if it is not divided. */
    readonly divided?: DivisionModel | undefined,
  ) {}

  forward(run: Run, input: LinearInputModel, call: CallModel): LinearResultModel {
    const isRecorded = input.requiresGrad || this.weight.requiresGrad || this.bias?.requiresGrad === true;
    const requiredGrads = {
      dgrad: isRecorded && input.requiresGrad,
      wgrad: isRecorded && this.weight.requiresGrad,
    };
    const result = run.recipe
      ? this.#quantized(run, run.recipe, input, call, requiredGrads)
      : this.#plain(run, input, requiredGrads);
    if (call.isFirstMicrobatch && requiredGrads.wgrad) this.#fresh = true;
    return result;
  }

  #plain(run: Run, input: LinearInputModel, requiredGrads: RequiredGradientsModel): LinearResultModel {
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
        const productOptions = { family, split: false };
        const dx = (): Matrix =>
          divided?.mode === "column"
            ? dividedProduct(columns, rows, productOptions, divided, dtype)
            : ofRows(form(columns, rows), w.shape[1], dtype);
        return {
          x: requiredGrads.dgrad ? dx() : undefined,
          weight: requiredGrads.wgrad
            ? this.#weightGradient(
                wideOperand(x, "columnwise"),
                wideOperand(dy, "columnwise"),
                productOptions,
                dtype,
              )
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
    requiredGrads: RequiredGradientsModel,
  ): LinearResultModel {
    this.#enter(run, recipe);
    const { dtype } = input;
    const plainFamily = dtype === "f32" && run.family !== "exact" ? "fp32" : run.family;
    const productOptions = (name: ProductModel, isQuantized: boolean) =>
      isQuantized
        ? { family: run.family, split: splits(recipe, name) }
        : { family: plainFamily, split: false };
    const quantize = (role: RoleModel, from: Quantizable) => this.#quantize(run, recipe, role, from);
    const x = this.#copies(run, recipe, "input", input.from, dtype, requiredGrads.wgrad);
    const w = this.#weightCopies(run, recipe, call, dtype, requiredGrads.dgrad);
    const isQuantized = x.isQuantized("rowwise");
    const bias = this.bias && cast(this.bias.wide, dtype === "f32" && isQuantized ? "bf16" : dtype);
    const [outFeatures, inFeatures] = this.weight.wide.shape;
    const { divided } = this;
    const form = productOptions("fprop", isQuantized);
    const fprop = (): number[][] =>
      product(w.operand("rowwise"), x.operand("rowwise"), { ...form, bias: bias?.data });
    // the copies for the backward pass are computed now, because their sources may change later
    const columns = requiredGrads.wgrad ? x.operand("columnwise") : undefined;
    const weightColumns = requiredGrads.dgrad ? w.operand("columnwise") : undefined;
    const result = (
      rows: number[][],
      count: number,
      role: RoleModel,
      usesFp8: boolean | undefined,
    ): Passed => {
      if (!usesFp8 || copiesSpecOf(recipe, role).rowwise === "identity") return ofRows(rows, count, dtype);
      // delayed scaling quantizes the f32 sums; other recipes quantize the rounded result (numerics.md §6.3)
      if (recipe.kind !== "delayed")
        return quantize(role, { x: ofRows(rows, count, dtype), computed: false });
      return quantize(role, { x: { ...ofRows(rows, count, "f32"), dtype }, computed: "norm" });
    };
    const out =
      divided?.mode === "row"
        ? withBias(
            dividedProduct(w.operand("rowwise"), x.operand("rowwise"), form, divided, dtype),
            this.bias?.wide,
          )
        : result(fprop(), outFeatures, "output", call.fp8Output);
    return {
      out,
      backward: (grad, computed) => {
        const dbias = this.#biasGradient(computed?.x ?? grad);
        if (!requiredGrads.dgrad && !requiredGrads.wgrad) return { bias: dbias };
        const { rowwise } = copiesSpecOf(recipe, "gradOutput");
        if (this.slots && rowwise !== "identity") run.usedSlots.backward.add(this.slots.backward);
        const from = grad instanceof QuantizedModel ? grad : (computed ?? { x: grad, computed: false });
        const dy = this.#copies(run, recipe, "gradOutput", from, dtype, requiredGrads.wgrad);
        const dx = (weight: Operand): Passed => {
          const ofDgrad = productOptions("dgrad", dy.isQuantized("rowwise"));
          const rows = dy.operand("rowwise");
          return divided?.mode === "column"
            ? dividedProduct(weight, rows, ofDgrad, divided, dtype)
            : result(product(weight, rows, ofDgrad), inFeatures, "gradInput", call.fp8Grad);
        };
        const ofWgrad = productOptions("wgrad", dy.isQuantized("columnwise"));
        return {
          x: weightColumns && dx(weightColumns),
          weight: columns && this.#weightGradient(columns, dy.operand("columnwise"), ofWgrad, dtype),
          bias: dbias,
        };
      },
    };
  }

  /** The copies of a tensor. The columnwise one is made only if it is read. */
  #copies(
    run: Run,
    recipe: StepRecipe,
    role: RoleModel,
    from: Quantizable | QuantizedModel,
    dtype: WideName,
    readsColumnwise: boolean,
  ): CopiesModel {
    const { rowwise, columnwise, source } = copiesSpecOf(recipe, role);
    const wide = (): Matrix => {
      if (from instanceof QuantizedModel) return from.wide(dtype);
      return { ...cast(from.x, dtype), data: from.x.data.slice() };
    };
    const quantized =
      rowwise === "identity"
        ? undefined
        : from instanceof QuantizedModel
          ? from
          : this.#quantize(run, recipe, role, from);
    if (quantized && rowwise === columnwise) return new CopiesModel(quantized, quantized);
    const firstOperand = quantized ?? wide();
    if (!readsColumnwise) return new CopiesModel(firstOperand, firstOperand);
    const values = quantized && source === "rowwiseDequantized" ? quantized.wide(dtype) : wide();
    if (columnwise === "identity") return new CopiesModel(firstOperand, values);
    return new CopiesModel(firstOperand, new QuantizedModel({ x: values, computed: false }, columnwise));
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
    productOptions: { readonly family: DatapathFamily; readonly split: boolean },
    dtype: WideName,
  ): Matrix | undefined {
    const { weight } = this;
    const columns = weight.wide.shape[1];
    if (!this.fuses) return cast(ofRows(product(x, dy, productOptions), columns, dtype), weight.wide.dtype);
    const addend = this.#fresh ? undefined : weight.mainGrad;
    weight.mainGrad = ofRows(product(x, dy, { ...productOptions, addend }), columns, "f32");
    this.#fresh = false;
    return undefined;
  }

  /**
   * Switches the layer to a recipe. Scales and histories survive if both recipes use delayed scaling, even with different
   * options; otherwise they are dropped.
   */
  #enter(run: Run, recipe: StepRecipe): void {
    if (JSON.stringify(recipe) !== JSON.stringify(this.#recipe)) {
      const previousSlots = this.slots;
      const keepsScale = recipe.kind === "delayed" && previousSlots;
      const snapshots = keepsScale
        ? ([keepsScale.forward.snapshot(), keepsScale.backward.snapshot()] as const)
        : [];
      this.slots = recipe.kind === "delayed" ? createSlots(recipe, snapshots) : undefined;
      this.#cached = undefined;
      this.#recipe = recipe;
    }
    if (this.slots) run.usedSlots.forward.add(this.slots.forward);
  }

  /** Returns a function that restores the current scales and histories and drops cached weights, as loading a checkpoint does. */
  saved(): () => void {
    const recipe = this.#recipe;
    const { forward, backward } = this.slots ?? {};
    const snapshots = [forward?.snapshot(), backward?.snapshot()] as const;
    return () => {
      this.slots = recipe?.kind === "delayed" ? createSlots(recipe, snapshots) : undefined;
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

  #weightCopies(
    run: Run,
    recipe: StepRecipe,
    call: CallModel,
    dtype: WideName,
    readsColumnwise: boolean,
  ): CopiesModel {
    const { rowwise, columnwise, source } = copiesSpecOf(recipe, "weight");
    const wide = (): Matrix => snapshot(cast(this.weight.wide, dtype));
    const quantizesColumnwise = columnwise !== "identity";
    const cachedWeight = this.#quantizedWeight(run, recipe, call, readsColumnwise && quantizesColumnwise);
    const rowwiseOperand = rowwise === "identity" ? wide() : (cachedWeight.rowwise as QuantizedModel);
    if (!readsColumnwise) return new CopiesModel(rowwiseOperand, rowwiseOperand);
    if (quantizesColumnwise)
      return new CopiesModel(rowwiseOperand, cachedWeight.columnwise as QuantizedModel);
    const isDequantized = rowwiseOperand instanceof QuantizedModel && source === "rowwiseDequantized";
    return new CopiesModel(rowwiseOperand, isDequantized ? rowwiseOperand.wide(dtype) : wide());
  }

  #quantizedWeight(run: Run, recipe: StepRecipe, call: CallModel, columnwise: boolean): CachedWeight {
    const anew = (): CachedWeight => this.#newWeight(run, recipe, columnwise);
    const { isFirstMicrobatch, skip } = call;
    if (isFirstMicrobatch === undefined && skip === undefined) return anew();
    const cached = this.#cached;
    const keeps = !isFirstMicrobatch && skip !== 0;
    if (cached && keeps && (cached.servesBackward || !columnwise)) return cached;
    const servesBackward = columnwise || cached?.servesBackward === true;
    this.#cached = { ...this.#newWeight(run, recipe, servesBackward), servesBackward };
    return this.#cached;
  }

  #newWeight(run: Run, recipe: StepRecipe, readsColumnwise: boolean): CachedWeight {
    const { rowwise, columnwise, source } = copiesSpecOf(recipe, "weight");
    const x = snapshot(this.weight.wide);
    const first =
      rowwise === "identity" ? undefined : this.#quantize(run, recipe, "weight", { x, computed: false });
    if (rowwise === columnwise) return { rowwise: first, columnwise: first };
    if (columnwise === "identity" || !readsColumnwise) return { rowwise: first, columnwise: undefined };
    const values = first && source === "rowwiseDequantized" ? first.wide(x.dtype) : x;
    return { rowwise: first, columnwise: new QuantizedModel({ x: values, computed: false }, columnwise) };
  }
}

function createSlots(recipe: DelayedModel, [forward, backward]: readonly (SlotsSnapshot | undefined)[]) {
  const ofGradients = recipe.format === "HYBRID" ? "e5m2" : "e4m3";
  return {
    forward: new Slots(recipe, "e4m3", 3, forward),
    backward: new Slots(recipe, ofGradients, 2, backward),
  };
}

interface RequiredGradientsModel {
  readonly dgrad: boolean;
  readonly wgrad: boolean;
}

/** A copy of the values that later optimizer steps do not change. */
function snapshot(x: Matrix): Matrix {
  return { ...x, data: x.data.slice() };
}

/** Ends an `autocast` region or a backward pass: updates all scales that were used in it. */
export function endPass({ usedSlots }: Run, pass: "forward" | "backward"): void {
  for (const slots of usedSlots[pass]) slots.update();
  usedSlots[pass].clear();
}
