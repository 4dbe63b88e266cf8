/** The layers, groups and flows of the library that are compared with the model. */
import { expect } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import {
  type AmaxReductionGroup,
  Linear,
  quantizedModelInit,
  Scope,
  type Tensor,
  type Variable,
} from "../../../../src/index.js";
import type { QuantizationSnapshot } from "../../../../src/modules/quantization-state.js";
import {
  type Codes,
  GroupModel,
  LayerModel,
  type LayerSnapshot,
  type Pass,
  type RecipeModel,
  TrainingModel,
} from "../../../oracle/training/delayed-training.js";
import { recipeOf, SIZE } from "./draws.js";
import { Flow } from "./flow.js";

/** A group in which other ranks recorded fixed amaxes. */
class FakeGroup implements AmaxReductionGroup {
  #elements = 0;
  readonly calls: number[][][] = [];

  constructor(
    readonly size: number,
    private readonly others: readonly number[],
  ) {}

  reduceMax(tensors: readonly Tensor<"f32">[]): void {
    this.calls.push(tensors.map((row) => [...row.dataSync()]));
    for (const row of tensors) {
      const { others } = this;
      row.write(
        row.dataSync().map((amax) => Math.max(amax, others[this.#elements++ % others.length] as number)),
      );
    }
  }
}

/** A graph of several forward passes. */
export interface Graph {
  readonly passes: readonly Pass[];
  readonly inputs: readonly Variable[];
  readonly out: Variable;
}

export interface Start {
  readonly weights: readonly Codes[];
  /** The recipes that regions choose from. The last layer's weight is quantized by the first recipe. */
  readonly recipes: readonly [RecipeModel, ...RecipeModel[]];
  /** The amaxes of the other ranks in the two groups. */
  readonly others: readonly number[];
}

const FLOWS = 2;
const GROUP_SIZES = [2, 2, 1];

export class World {
  readonly recipes: readonly RecipeModel[];
  readonly layers: readonly Linear[];
  readonly groups: readonly FakeGroup[];
  readonly flows = Array.from({ length: FLOWS }, () => new Flow());
  readonly graphs: Graph[] = [];
  readonly saved: {
    readonly real: QuantizationSnapshot | undefined;
    readonly model: LayerSnapshot | undefined;
  }[] = [];
  warnings = 0;
  readonly #scope = new Scope();

  constructor(
    readonly backend: Backend,
    { weights, recipes, others }: Start,
  ) {
    this.recipes = recipes;
    const [primary] = recipes;
    const quantized = weights.length - 1;
    this.layers = weights.map((codes, i) => {
      const initMethod = () => valuesOf(codes);
      const make = () => new Linear(backend, SIZE, SIZE, { bias: false, initMethod });
      return i === quantized ? quantizedModelInit({ recipe: recipeOf(primary) }, make) : make();
    });
    this.groups = GROUP_SIZES.map((size) => new FakeGroup(size, others));
  }

  /** Checks that every state of the library equals the model's. */
  check(model: TrainingModel): void {
    for (const [i, layer] of this.layers.entries())
      expect(snapshotOf(layer), `the state of layer ${i}`).toEqual(
        plainSnapshot(model.layers[i]?.snapshot()),
      );
    expect(this.groups.map(({ calls }) => calls)).toEqual(model.groups.map(({ calls }) => calls));
    expect(this.warnings).toBe(model.layers.reduce((sum, { warnings }) => sum + warnings, 0));
  }

  async end(model: TrainingModel): Promise<void> {
    for (const [i, flow] of this.flows.entries()) {
      while (model.depth(i) > 0) {
        model.leave(i);
        await flow.leave();
      }
      void flow.leave();
      await flow.ended;
    }
    this.check(model);
  }

  dispose(): void {
    for (const layer of this.layers) layer.dispose();
    this.#scope.dispose();
  }
}

export function modelOf({ weights, recipes: [primary], others }: Start): TrainingModel {
  const layers = weights.map((codes, i) =>
    i === weights.length - 1
      ? new LayerModel(codes, { codes, recipe: primary, scale: 1 })
      : new LayerModel(codes),
  );
  const groups = GROUP_SIZES.map((size) => new GroupModel(size, others));
  return new TrainingModel(FLOWS, layers, groups);
}

export function quantizationOf(layer: Linear) {
  const quantization = layer.namedQuantizations().get("linear");
  if (!quantization) throw new Error("a linear layer has one quantization");
  return quantization;
}

/** The state of a layer as plain numbers. */
function snapshotOf(layer: Linear) {
  return plainOf(quantizationOf(layer).snapshotSync());
}

export function plainOf(snapshot: QuantizationSnapshot | undefined) {
  if (!snapshot) return undefined;
  const { forward, backward } = snapshot;
  const plain = ({ scale, amaxHistory }: typeof forward) => ({
    scale: [...scale],
    amaxHistory: [...amaxHistory],
  });
  return { forward: plain(forward), backward: plain(backward) };
}

function plainSnapshot(snapshot: LayerSnapshot | undefined) {
  if (!snapshot) return undefined;
  const plain = ({ scale, history }: LayerSnapshot["forward"]) => ({
    scale: [...scale],
    amaxHistory: history.flat(),
  });
  return { forward: plain(snapshot.forward), backward: plain(snapshot.backward) };
}

function valuesOf(codes: Codes): Float32Array {
  return new Float32Array(Uint32Array.from(codes, (code) => code * 0x10000).buffer);
}
