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
import { createRecipe, SIZE } from "./draws.js";
import { Flow } from "./flow.js";

/** A group in which other ranks recorded fixed amaxes. */
class FakeGroup implements AmaxReductionGroup {
  #elements = 0;
  readonly calls: number[][][] = [];

  constructor(
    readonly size: number,
    private readonly otherAmaxes: readonly number[],
  ) {}

  reduceMax(tensors: readonly Tensor<"f32">[]): void {
    this.calls.push(tensors.map((row) => [...row.dataSync()]));
    for (const row of tensors) {
      const { otherAmaxes } = this;
      row.write(
        row
          .dataSync()
          .map((amax) => Math.max(amax, otherAmaxes[this.#elements++ % otherAmaxes.length] as number)),
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

export interface InitialState {
  readonly weights: readonly Codes[];
  /** The recipes that regions choose from. The last layer's weight is quantized by the first recipe. */
  readonly recipes: readonly [RecipeModel, ...RecipeModel[]];
  /** The amaxes of the other ranks in the two groups. */
  readonly otherAmaxes: readonly number[];
}

const FLOWS = 2;
const GROUP_SIZES = [2, 2, 1];

export class World {
  readonly recipes: readonly RecipeModel[];
  readonly layers: readonly Linear[];
  readonly groups: readonly FakeGroup[];
  readonly flows = Array.from({ length: FLOWS }, () => new Flow());
  readonly graphs: Graph[] = [];
  readonly snapshots: {
    readonly library: QuantizationSnapshot | undefined;
    readonly model: LayerSnapshot | undefined;
  }[] = [];
  warnings = 0;
  readonly #scope = new Scope();

  constructor(
    readonly backend: Backend,
    { weights, recipes, otherAmaxes }: InitialState,
  ) {
    this.recipes = recipes;
    const [firstRecipe] = recipes;
    const quantizedLayer = weights.length - 1;
    this.layers = weights.map((codes, i) => {
      const initMethod = () => bf16Values(codes);
      const make = () => new Linear(backend, SIZE, SIZE, { bias: false, initMethod });
      return i === quantizedLayer ? quantizedModelInit({ recipe: createRecipe(firstRecipe) }, make) : make();
    });
    this.groups = GROUP_SIZES.map((size) => new FakeGroup(size, otherAmaxes));
  }

  /** Checks that every state of the library equals the model's. */
  check(model: TrainingModel): void {
    for (const [i, layer] of this.layers.entries())
      expect(libraryState(layer), `the state of layer ${i}`).toEqual(
        plainSnapshot(model.layers[i]?.snapshot()),
      );
    expect(this.groups.map(({ calls }) => calls)).toEqual(model.groups.map(({ calls }) => calls));
    expect(this.warnings).toBe(model.layers.reduce((sum, { warnings }) => sum + warnings, 0));
  }

  async leaveRegions(model: TrainingModel): Promise<void> {
    for (const [i, flow] of this.flows.entries()) {
      while (model.depth(i) > 0) {
        model.leave(i);
        await flow.leave();
      }
      void flow.leave();
      await flow.completion;
    }
    this.check(model);
  }

  dispose(): void {
    for (const layer of this.layers) layer.dispose();
    this.#scope.dispose();
  }
}

export function createModel({ weights, recipes: [primary], otherAmaxes }: InitialState): TrainingModel {
  const layers = weights.map((codes, i) =>
    i === weights.length - 1
      ? new LayerModel(codes, { codes, recipe: primary, scale: 1 })
      : new LayerModel(codes),
  );
  const groups = GROUP_SIZES.map((size) => new GroupModel(size, otherAmaxes));
  return new TrainingModel(FLOWS, layers, groups);
}

export function linearQuantization(layer: Linear) {
  const quantization = layer.namedQuantizations().get("linear");
  if (!quantization) throw new Error("a linear layer has one quantization");
  return quantization;
}

/** The state of a layer as plain numbers. */
function libraryState(layer: Linear) {
  return toPlainState(linearQuantization(layer).snapshotSync());
}

export function toPlainState(snapshot: QuantizationSnapshot | undefined) {
  if (!snapshot) return undefined;
  const { forward, backward } = snapshot;
  const toPlainPass = ({ scale, amaxHistory }: typeof forward) => ({
    scale: [...scale],
    amaxHistory: [...amaxHistory],
  });
  return { forward: toPlainPass(forward), backward: toPlainPass(backward) };
}

function plainSnapshot(snapshot: LayerSnapshot | undefined) {
  if (!snapshot) return undefined;
  const toPlainPass = ({ scale, history }: LayerSnapshot["forward"]) => ({
    scale: [...scale],
    amaxHistory: history.flat(),
  });
  return { forward: toPlainPass(snapshot.forward), backward: toPlainPass(snapshot.backward) };
}

function bf16Values(codes: Codes): Float32Array {
  return new Float32Array(Uint32Array.from(codes, (code) => code * 0x10000).buffer);
}
