/**
 * A model of the state of linear layers during a training run, in plain numbers: regions of `autocast`, scales, cached
 * weights.
 */
import { amaxOf, type DelayedModel, Slots, type SlotsSnapshot } from "./delayed-slots.js";

export type RecipeModel =
  | DelayedModel
  | { readonly kind: "current"; readonly pow2: boolean }
  | { readonly kind: "mxfp8"; readonly square: boolean };

/** bf16 codes of a matrix. */
export type Codes = Uint16Array;

/**
 * A model of a process group: each reduction takes the maximum with the next numbers of `otherRanks`, which stand for the
 * other ranks.
 */
export class GroupModel {
  #elements = 0;
  /** The rows that each reduction received. */
  readonly calls: number[][][] = [];

  constructor(
    readonly size: number,
    readonly otherRanks: readonly number[],
  ) {}

  reduce(rows: readonly number[][]): void {
    this.calls.push(rows.map((row) => [...row]));
    for (const row of rows)
      row.forEach((amax, i) => {
        row[i] = Math.max(amax, this.otherRanks[this.#elements++ % this.otherRanks.length] as number);
      });
  }
}

/** Scales to update, with the group of each, in order of first use. */
type PendingUpdates = Map<Slots, GroupModel | undefined>;

export interface AutocastModel {
  readonly recipe: RecipeModel;
  readonly enabled: boolean;
  readonly calibrating: boolean;
  readonly group: GroupModel | undefined;
}

type Frame =
  | { readonly grad: false }
  | { readonly grad?: undefined; readonly region: AutocastModel; readonly pending?: PendingUpdates };

/** A quantized matrix: its bf16 codes, the recipe, and the scale under delayed scaling. */
export interface QuantizedOperand {
  codes: Codes;
  recipe: RecipeModel;
  scale: number;
}

export interface LayerSnapshot {
  readonly forward: SlotsSnapshot;
  readonly backward: SlotsSnapshot;
}

export interface CallModel {
  readonly first?: boolean | undefined;
  readonly skip?: 0 | 1 | undefined;
  readonly recompute: boolean;
  readonly xNeedsGrad: boolean;
}

/** One forward pass, and what it saves for the backward pass. */
export interface Pass {
  readonly layer: LayerModel;
  readonly x: Codes;
  readonly call: CallModel;
  readonly region: AutocastModel | undefined;
  /** Absent if the pass ran in high precision. */
  quantized?: {
    readonly x: QuantizedOperand;
    readonly weight: QuantizedOperand;
    readonly backward: Slots | undefined;
  };
  /** In high precision: the codes and scale of a weight that is stored quantized, at the time of the pass. */
  primary?: QuantizedOperand | undefined;
  /** The scales [input, weight, output] at the beginning of the pass. */
  readonly scales: readonly number[];
}

const [INPUT, WEIGHT] = [0, 1];

function sameRecipe(a: RecipeModel, b: RecipeModel | undefined): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

export class LayerModel {
  recipe: RecipeModel | undefined;
  delayed: { readonly forward: Slots; readonly backward: Slots } | undefined;
  restored: { readonly snapshot: LayerSnapshot | undefined } | undefined;
  cache: { readonly copy: QuantizedOperand; readonly columnwise: boolean } | undefined;
  /** The scales whose history records the amaxes of a weight that is stored quantized. */
  attached: Slots | undefined;
  warnings = 0;

  constructor(
    public weight: Codes,
    /** Present if the weight is stored quantized. */
    readonly primary?: QuantizedOperand,
  ) {}

  enter(recipe: RecipeModel): void {
    if (sameRecipe(recipe, this.recipe)) return;
    if (this.recipe && this.recipe.kind !== recipe.kind) this.warnings++;
    const snapshotBefore = this.snapshot();
    if (this.delayed) {
      this.delayed.forward.replaced = true;
      this.delayed.backward.replaced = true;
    }
    const backward = recipe.kind === "delayed" && recipe.format === "HYBRID" ? "e5m2" : "e4m3";
    this.delayed =
      recipe.kind === "delayed"
        ? {
            forward: new Slots(recipe, "e4m3", 3, snapshotBefore?.forward),
            backward: new Slots(recipe, backward, 2, snapshotBefore?.backward),
          }
        : undefined;
    this.recipe = recipe;
    this.cache = undefined;
    this.restored = undefined;
  }

  snapshot(): LayerSnapshot | undefined {
    if (this.restored) return this.restored.snapshot;
    const { delayed } = this;
    return delayed && { forward: delayed.forward.snapshot(), backward: delayed.backward.snapshot() };
  }

  restore(snapshot: LayerSnapshot | undefined): void {
    this.restored = { snapshot };
    this.recipe = undefined;
    this.cache = undefined;
  }

  /** Sets the weight. A weight that is stored quantized is quantized with its quantizer's current scale. */
  write(codes: Codes): void {
    this.weight = codes;
    if (!this.primary) return;
    this.attached?.record(WEIGHT, amaxOf(codes));
    this.primary.codes = codes;
    this.primary.scale = this.attached?.scale[WEIGHT] ?? 1;
  }

  /** Whether the weight is stored in the form that the recipe needs. */
  fits(recipe: RecipeModel): boolean {
    if (!this.primary) return true;
    if (recipe.kind === "delayed") return this.primary.recipe.kind === "delayed";
    return sameRecipe(recipe, this.primary.recipe);
  }
}

/** A model of a training program with several flows of calls. */
export class TrainingModel {
  readonly #flows: Frame[][];

  constructor(
    flows: number,
    readonly layers: readonly LayerModel[],
    readonly groups: readonly GroupModel[],
  ) {
    this.#flows = Array.from({ length: flows }, () => []);
  }

  #frames(flow: number): Frame[] {
    return this.#flows[flow] as Frame[];
  }

  depth(flow: number): number {
    return this.#frames(flow).length;
  }

  grad(flow: number): boolean {
    return this.#frames(flow).every(({ grad }) => grad === undefined);
  }

  enter(flow: number, region: AutocastModel): void {
    const frames = this.#frames(flow);
    const first = (region.enabled || region.calibrating) && this.#pending(flow) === undefined;
    frames.push(first ? { region, pending: new Map() } : { region });
  }

  enterNoGrad(flow: number): void {
    this.#frames(flow).push({ grad: false });
  }

  leave(flow: number): void {
    const frame = this.#frames(flow).pop();
    if (frame && "pending" in frame && frame.pending && this.grad(flow)) update(frame.pending);
  }

  #region(flow: number): AutocastModel | undefined {
    const frame = this.#frames(flow).findLast((each) => "region" in each);
    return frame && "region" in frame ? frame.region : undefined;
  }

  #pending(flow: number): PendingUpdates | undefined {
    for (const frame of this.#frames(flow)) if ("pending" in frame && frame.pending) return frame.pending;
    return undefined;
  }

  /** The recipe of the next forward pass of a flow. */
  recipe(flow: number): RecipeModel | undefined {
    const region = this.#region(flow);
    return region && (region.enabled || region.calibrating) ? region.recipe : undefined;
  }

  forward(flow: number, layer: LayerModel, x: Codes, call: CallModel): Pass {
    const region = this.#region(flow);
    const active = region?.enabled || region?.calibrating;
    if (region && active) {
      layer.enter(region.recipe);
      if (layer.primary) layer.attached = layer.delayed?.forward;
      const pending = this.#pending(flow);
      if (layer.delayed && pending && !pending.has(layer.delayed.forward))
        pending.set(layer.delayed.forward, region.group);
    }
    const scales = [...(layer.delayed?.forward.scale ?? [])];
    const pass: Pass = { layer, x, call, region, scales };
    if (active) layer.delayed?.forward.record(INPUT, amaxOf(x));
    if (region && !region.enabled && active && !layer.primary)
      layer.delayed?.forward.record(WEIGHT, amaxOf(layer.weight));
    if (region?.enabled) {
      const columnwise = this.grad(flow) && call.xNeedsGrad;
      pass.quantized = quantizedPass(pass, columnwise);
    }
    pass.primary = layer.primary && { ...layer.primary };
    return pass;
  }

  /** One backward pass. `visit` is called for every forward pass in reverse order, with the scale of the gradient. */
  backward(passes: readonly Pass[], grad: Codes, visit: (pass: Pass, scale: number) => void): void {
    const pending: PendingUpdates = new Map();
    for (const pass of passes.toReversed()) {
      const { region, layer, call } = pass;
      // a recomputed pass uses the current weight: as stored in high precision, or quantized again
      if (call.recompute) {
        pass.primary = layer.primary && { ...layer.primary };
        if (pass.quantized && !layer.primary && !caches(call)) pass.quantized.weight.codes = layer.weight;
      }
      const slots = pass.quantized?.backward;
      slots?.record(0, amaxOf(grad));
      visit(pass, slots?.scale[0] ?? 1);
      if (slots && !pending.has(slots)) pending.set(slots, region?.group);
    }
    update(pending);
  }
}

/** The quantized operands of a pass. */
function quantizedPass(pass: Pass, columnwise: boolean) {
  const { layer, x, call, scales } = pass;
  const recipe = layer.recipe as RecipeModel;
  const weight = chooseWeight(layer, call, { columnwise, scale: scales[WEIGHT] ?? 1 });
  return {
    x: { codes: x, recipe, scale: scales[INPUT] ?? 1 },
    weight,
    backward: layer.delayed?.backward,
  };
}

interface WeightNeed {
  readonly columnwise: boolean;
  readonly scale: number;
}

/** Whether a pass stores its quantized weight in the cache or reads it from there. */
function caches({ first, skip }: CallModel): boolean {
  return first !== undefined || skip !== undefined;
}

function chooseWeight(layer: LayerModel, call: CallModel, weightNeed: WeightNeed): QuantizedOperand {
  if (layer.primary) return layer.primary;
  const { columnwise, scale } = weightNeed;
  const quantize = (): QuantizedOperand => {
    layer.delayed?.forward.record(WEIGHT, amaxOf(layer.weight));
    return { codes: layer.weight, recipe: layer.recipe as RecipeModel, scale };
  };
  const usable = layer.cache && (layer.cache.columnwise || !columnwise) ? layer.cache.copy : undefined;
  if (!caches(call) || !usable) {
    const copy = quantize();
    if (caches(call)) layer.cache = { copy, columnwise };
    return copy;
  }
  if (call.first || call.skip === 0) Object.assign(usable, quantize());
  return usable;
}

/** Reduces the amaxes of each group in one call, then updates the scales. */
function update(pending: PendingUpdates): void {
  const live = [...pending].filter(([slots]) => !slots.replaced);
  for (const group of new Set(live.map(([, each]) => each))) {
    const groupSlots = live.filter(([slots, each]) => each === group && slots.recipe.reduces);
    if (group && group.size > 1 && groupSlots.length > 0)
      group.reduce(groupSlots.map(([slots]) => slots.recorded));
  }
  for (const [slots] of live) slots.update();
}
