/**
 * Runs the module programs that TransformerEngine ran. Results have TransformerEngine's names, in the order of its
 * record.
 */
import {
  add,
  autocast,
  type Backend,
  DelayedScaling,
  Float8BlockScaling,
  Float8CurrentScaling,
  LayerNormLinear,
  LayerNormMLP,
  Linear,
  type MLPActivation,
  type Module,
  type Normalization,
  type Recipe,
  Scope,
  type Shape,
  type Tensor,
  tensor,
  Variable,
  type VariableLike,
  zeros,
} from "../../../../src/index.js";
import { type DrawKind, draw } from "./draws.js";
import type { RecordedResult } from "./recorded.js";

export interface ModuleCase {
  readonly module: "Linear" | "LayerNormLinear" | "LayerNormMLP";
  readonly recipe: keyof typeof RECIPES;
  readonly tokens: number;
  readonly in: number;
  readonly hidden?: number;
  readonly out: number;
  readonly seed: number;
  readonly bias: boolean;
  readonly mainGrads: boolean;
  readonly microbatches: number;
  readonly iterations: number;
  readonly kind: DrawKind;
  readonly normalization?: Normalization;
  readonly zeroCentered?: boolean;
  readonly activation?: MLPActivation;
  readonly results: readonly RecordedIteration[];
}

export interface RecordedIteration {
  readonly microbatches: readonly Readonly<Record<string, RecordedResult>>[];
  readonly forward?: RecordedState;
  readonly backward?: RecordedState;
}

interface RecordedState {
  readonly scale: RecordedResult;
  readonly history: RecordedResult;
}

const RECIPES = {
  bf16: undefined,
  delayed: new DelayedScaling({ amaxHistoryLen: 3, reduceAmax: false }),
  "delayed-recent": new DelayedScaling({
    amaxHistoryLen: 4,
    amaxComputeAlgo: "mostRecent",
    margin: 1,
    reduceAmax: false,
  }),
  "delayed-e4m3": new DelayedScaling({ format: "E4M3", amaxHistoryLen: 1, reduceAmax: false }),
  current: new Float8CurrentScaling(),
  block: new Float8BlockScaling(),
} as const satisfies Readonly<Record<string, Recipe | undefined>>;

interface Layer extends Module {
  forward(input: VariableLike, call: { readonly isFirstMicrobatch?: boolean | undefined }): Variable;
}

function createLayer(backend: Backend, moduleCase: ModuleCase): Layer {
  const {
    bias,
    mainGrads,
    normalization = "LayerNorm",
    zeroCentered = false,
    activation = "gelu",
  } = moduleCase;
  const options = { bias, fuseWgradAccumulation: mainGrads };
  const normOptions = { ...options, normalization, zeroCenteredGamma: zeroCentered, eps: 0 };
  switch (moduleCase.module) {
    case "Linear":
      return new Linear(backend, moduleCase.in, moduleCase.out, options);
    case "LayerNormLinear":
      return new LayerNormLinear(backend, moduleCase.in, moduleCase.out, normOptions);
    case "LayerNormMLP":
      return new LayerNormMLP(backend, moduleCase.in, moduleCase.hidden ?? 0, { ...normOptions, activation });
  }
}

/** The snake-case name: `layer_norm_weight` for `layerNormWeight`. */
function snakeCaseName(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** The parameters in the order of TransformerEngine's names. */
function sortedParameters(layer: Module) {
  const parameters = [...layer.namedParameters()].map(
    ([name, parameter]) => [snakeCaseName(name), parameter] as const,
  );
  return parameters.sort(([a], [b]) => (a < b ? -1 : 1));
}

/**
 * The recipes under which TransformerEngine rounds main gradients twice: cuBLASLt's FP8 kernels round the product to f32 before
 * they add it. The library avoids that (datapath.md §2), so this program computes the product separately and adds it.
 */
const DOUBLE_ROUNDING_RECIPES: readonly ModuleCase["recipe"][] = [
  "delayed",
  "delayed-recent",
  "delayed-e4m3",
  "current",
];

/** The results of one forward and backward pass, by TransformerEngine's names. */
export type MicrobatchResults = ReadonlyMap<string, Tensor>;

export interface IterationResults {
  readonly microbatches: readonly MicrobatchResults[];
  /** The scales, [slots], and the amax history, [length, slots], of delayed scaling in each pass. */
  readonly forward?: StateResults | undefined;
  readonly backward?: StateResults | undefined;
}

export interface StateResults {
  readonly scale: Float32Array;
  readonly history: Float32Array;
}

/** The concatenated states of several products, as TransformerEngine stores them for one module. */
function concatenateStates(layer: Module, pass: "forward" | "backward"): StateResults | undefined {
  const snapshots = [...layer.namedQuantizations().values()].map(
    (quantization) => quantization.snapshotSync()?.[pass],
  );
  if (snapshots.some((snapshot) => snapshot === undefined)) return undefined;
  const states = snapshots.map((snapshot) => snapshot as NonNullable<typeof snapshot>);
  const scale = Float32Array.from(states.flatMap((state) => [...state.scale]));
  const rows = (states[0]?.amaxHistory.length ?? 0) / (states[0]?.scale.length ?? 1);
  const row = (i: number): number[] =>
    states.flatMap((state) => [
      ...state.amaxHistory.subarray(i * state.scale.length, (i + 1) * state.scale.length),
    ]);
  return { scale, history: Float32Array.from(Array.from({ length: rows }, (_, i) => row(i)).flat()) };
}

/** Runs the program. `onIteration` receives the results of each iteration before they are disposed of. */
export async function runModule(
  backend: Backend,
  moduleCase: ModuleCase,
  onIteration: (results: IterationResults, iteration: number) => Promise<void>,
): Promise<void> {
  using layer = createLayer(backend, moduleCase);
  const bits = (kind: DrawKind, seed: number, shape: Shape): Tensor<"bf16"> =>
    tensor(backend, draw(kind, "bf16", seed, shape), shape, "bf16");
  const parameters = sortedParameters(layer);
  const isFused = (name: string): boolean =>
    moduleCase.mainGrads && name.includes("weight") && !name.includes("layer_norm");
  for (const [name, parameter] of parameters)
    if (isFused(name)) parameter.mainGrad = zeros(backend, "f32", parameter.shape);
  for (let iteration = 0; iteration < moduleCase.iterations; iteration++) {
    using scope = new Scope();
    const base = moduleCase.seed + 100 * iteration;
    parameters.forEach(([name, parameter], i) => {
      const kind = name.includes("layer_norm") ? "bell" : "small";
      parameter.tensor.write(draw(kind, "bf16", base + 10 + i, parameter.shape));
    });
    const microbatches = Array.from({ length: moduleCase.microbatches }, (_, index): MicrobatchResults => {
      const x = new Variable(
        bits(moduleCase.kind, base + 50 + 2 * index, [moduleCase.tokens, moduleCase.in]),
        true,
      );
      const dy = bits("bell", base + 51 + 2 * index, [moduleCase.tokens, moduleCase.out]);
      const recipe = RECIPES[moduleCase.recipe];
      const call = moduleCase.microbatches === 1 ? {} : { isFirstMicrobatch: index === 0 };
      const y = autocast({ enabled: recipe !== undefined, ...(recipe ? { recipe } : {}) }, () =>
        layer.forward(x, call),
      );
      const out = y.tensor.clone();
      const previousGrads = new Map<string, Tensor>();
      for (const [name, { mainGrad }] of parameters) {
        if (!mainGrad || index === 0 || !DOUBLE_ROUNDING_RECIPES.includes(moduleCase.recipe)) continue;
        previousGrads.set(name, mainGrad.clone());
        mainGrad.write(new Float32Array(mainGrad.size));
      }
      y.backward(dy);
      for (const [name, { mainGrad }] of parameters) {
        const previousGrad = previousGrads.get(name);
        if (mainGrad && previousGrad) add(previousGrad, mainGrad, { out: mainGrad });
      }
      const results = new Map<string, Tensor>([
        ["y", out],
        ["dx", (x.grad as Tensor).clone()],
      ]);
      for (const [name, parameter] of parameters) {
        const grad = isFused(name) ? parameter.mainGrad : parameter.grad;
        results.set(`d ${name}`, (grad as Tensor).clone());
        parameter.zeroGrad();
      }
      x.zeroGrad();
      return results;
    });
    const states = {
      forward: concatenateStates(layer, "forward"),
      backward: concatenateStates(layer, "backward"),
    };
    await onIteration({ microbatches, ...states }, iteration);
    scope.dispose();
  }
}
