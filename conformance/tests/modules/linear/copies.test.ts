/** A layer makes a copy of a quantized tensor only if a product reads it, and makes each copy once. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import { loopbackOver } from "../../../../src/collectives/loopback/loopback.js";
import type { LinearCall } from "../../../../src/modules/linear/parts.js";
import { Linear } from "../../../../src/modules/linear.js";
import { recompute } from "../../../../src/modules/recompute.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { empty, tensor, zeros } from "../../../../src/ops/create.js";
import { DelayedScaling } from "../../../../src/recipes/per-tensor.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import { Variable } from "../../../../src/tape/variable.js";
import { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { draws, sampleCases } from "../../harness/draws.js";
import { rowsWhere } from "../../harness/modules/calls.js";
import type { BuiltModule } from "../../harness/modules/row.js";
import { moduleRow } from "../../harness/modules/table.js";
import { ROW_SCALED, recipeByName, STANDARD_RECIPE_NAMES } from "../../harness/step/library-recipes.js";
import { MICROBATCHES, type MicrobatchCall } from "../../harness/step/options.js";
import { useBackend } from "../../harness/suite.js";
import { CopiesBackend } from "../../harness/surface/copies-backend.js";

const reference = useBackend({ threads: 1, datapath: "hopper" });
const otherBackends = [useBackend({ threads: 1 }), useBackend({ threads: 1 })];
const [ROWS, FROM, MIDDLE, TO] = [64, 128, 256, 512];

const SIZES = { rows: ROWS, from: FROM, to: TO, middle: MIDDLE };
/** Modules whose result may be quantized, which have all forms of products. */
const LAYERS = Object.fromEntries(rowsWhere(({ call }) => call.includes("fp8Output")));
const resultOf = (builtModule: BuiltModule, x: Variable, call?: LinearCall): Variable =>
  builtModule.run([x], call)[0] as Variable;

type Forward = (x: Variable) => Variable;
const WAYS = {
  training: (forward: Forward, x: Variable) => forward(x),
  evaluation: (forward: Forward, x: Variable) => noGrad(() => forward(x)),
  recomputed: (forward: Forward, x: Variable) => recompute(forward, x),
};

const NAMES = [...STANDARD_RECIPE_NAMES, "custom"] as const;
const PER_TENSOR = NAMES.filter((name) => name.startsWith("delayed") || name.startsWith("current"));

const step = fc
  .record({
    layer: fc.constantFrom(...Object.keys(LAYERS)),
    recipe: fc.constantFrom(...NAMES),
    way: fc.constantFrom(...(Object.keys(WAYS) as (keyof typeof WAYS)[])),
    microbatches: fc.constantFrom(...Object.values<readonly MicrobatchCall[]>(MICROBATCHES)),
    bias: fc.boolean(),
    fuseWgradAccumulation: fc.boolean(),
    saveOriginalInput: fc.boolean(),
    fp8Output: fc.boolean(),
    wanted: fc.func(fc.boolean()),
  })
  .map((choices) => ({
    ...choices,
    saveOriginalInput: choices.saveOriginalInput && !choices.recipe.startsWith("delayed"),
  }));

type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

/** Sets which parameters require a gradient. Weights also get a `mainGrad`. */
function prepare({ module: layer }: BuiltModule, isWanted: Step["wanted"], name = ""): void {
  for (const [parameterName, parameter] of layer.namedParameters()) {
    parameter.requiresGrad = isWanted(name + parameterName);
    const { shape } = parameter;
    if (shape.length === 2) parameter.mainGrad = empty(layer.backend, "f32", shape);
  }
}

/** Runs all microbatches of a step. `begin` is called before each run of the layer, also before a recomputation. */
function run(
  builtModule: BuiltModule,
  { recipe: name, way, microbatches, fp8Output, wanted: isWanted }: Step,
  [rows, columns]: readonly [number, number],
  begin: () => void,
): void {
  const layer = builtModule.module;
  const { backend } = layer;
  const recipe = recipeByName(name);
  for (const { isFirstMicrobatch, skip, rewritten } of microbatches) {
    const skipFp8WeightUpdate = skip === undefined ? undefined : zeros(backend, "f32", [1]);
    if (rewritten) for (const { tensor } of layer.parameters()) tensor.paste(tensor.clone(), 0);
    const x = new Variable(empty(backend, "bf16", [rows, columns]), isWanted(""));
    const forward = (hidden: Variable): Variable => {
      begin();
      const y = resultOf(builtModule, hidden, { isFirstMicrobatch, skipFp8WeightUpdate, fp8Output });
      // these codes are a result (fp8Output, fp8Grad)
      if (y.value instanceof QuantizedTensor && backend instanceof CopiesBackend)
        backend.asResult(y.value.members);
      return y;
    };
    const y = autocast({ recipe }, () => WAYS[way](forward, x));
    if (y.requiresGrad) y.backward(empty(backend, "bf16", y.shape) as Tensor<"bf16">);
    for (const variable of [x, ...layer.parameters()]) variable.zeroGrad();
  }
}

it("each copy of a quantized tensor is made once, and a product reads it", () => {
  fc.assert(
    fc.property(step, (choices) => {
      using _scope = new Scope();
      const backend = new CopiesBackend(reference());
      const { layer: name, bias, fuseWgradAccumulation, saveOriginalInput, wanted: isWanted } = choices;
      const options = { bias, fuseWgradAccumulation, saveOriginalInput };
      using layer = moduleRow(name).build(backend, SIZES, options);
      prepare(layer, isWanted);
      run(layer, choices, [ROWS, FROM], () => backend.begin());
      expect(backend.createdCopies).toBeGreaterThan(0);
      expect(backend.finish()).toEqual([]);
    }),
    { numRuns: draws(200) },
  );
});

it.each(Object.entries(LAYERS))(
  "%s makes no copy in a region that is off, and to calibrate only to record amaxes",
  (layerName, row) => {
    for (const name of sampleCases(NAMES, 2, layerName.length)) {
      using _scope = new Scope();
      const backend = new CopiesBackend(reference());
      using layer = row.build(backend, SIZES);
      const x = empty(backend, "bf16", [ROWS, FROM]);
      const copyCount = (isCalibrating: boolean): number => {
        const copiesBefore = backend.createdCopies;
        autocast({ recipe: recipeByName(name), enabled: false, calibrating: isCalibrating }, () =>
          resultOf(layer, new Variable(x)),
        );
        return backend.createdCopies - copiesBefore;
      };
      const weights = layer.module.parameters().filter(({ shape }) => shape.length === 2).length;
      expect([copyCount(false), copyCount(true)], name).toEqual([
        0,
        name.startsWith("delayed") ? 2 * weights : 0,
      ]);
    }
  },
);

it.each(Object.keys(LAYERS))(
  "%s in a region that is off leaves the scales and histories of its layers",
  (name) => {
    using _scope = new Scope();
    const recipe = new DelayedScaling({ amaxHistoryLen: 3 });
    using layer = moduleRow(name).build(reference(), SIZES);
    const states = (): unknown =>
      [...layer.module.namedQuantizations()].map(([, quantization]) => quantization.snapshotSync());
    const input = (value: number): Variable =>
      new Variable(
        castTo(tensor(reference(), new Float32Array(ROWS * FROM).fill(value), [ROWS, FROM]), "bf16"),
      );
    autocast({ recipe }, () => resultOf(layer, input(0)));
    const statesBefore = states();
    autocast({ recipe, enabled: false }, () => resultOf(layer, input(3)));
    expect(states()).toEqual(statesBefore);
    // the recorded amax identifies the tensor: the norm of equal elements is beta, whose amax differs
    for (const parameter of layer.module.parameters())
      parameter.tensor.paste(
        castTo(tensor(reference(), new Float32Array(parameter.tensor.size).fill(5), parameter.shape), "bf16"),
        0,
      );
    autocast({ recipe, enabled: false, calibrating: true }, () => resultOf(layer, input(3)));
    expect(states()).not.toEqual(statesBefore);
  },
);

it("codes that a layer passes to the next one, or a gradient's codes, are read", () => {
  const choices = fc.record({
    layer: fc.constantFrom(...Object.keys(LAYERS)),
    recipe: fc.constantFrom(...PER_TENSOR),
    fp8Output: fc.boolean(),
    fp8Grad: fc.boolean(),
    bias: fc.boolean(),
    wanted: fc.func(fc.boolean()),
  });
  fc.assert(
    fc.property(choices, ({ layer: name, recipe: named, fp8Output, fp8Grad, bias, wanted: isWanted }) => {
      using _scope = new Scope();
      const backend = new CopiesBackend(reference());
      using layer = moduleRow(name).build(backend, SIZES, { bias });
      using next = new Linear(backend, "inFeatures" in moduleRow(name).sizes ? TO : FROM, FROM, { bias });
      prepare(layer, isWanted);
      for (const [parameterName, parameter] of next.namedParameters())
        parameter.requiresGrad = isWanted(`next${parameterName}`);
      const x = new Variable(empty(backend, "bf16", [ROWS, FROM]), isWanted(""));
      const recipe = recipeByName(named);
      const y = autocast({ recipe }, () => next.forward(resultOf(layer, x, { fp8Output }), { fp8Grad }));
      if (y.requiresGrad) y.backward(empty(backend, "bf16", y.shape) as Tensor<"bf16">);
      for (const variable of [x, ...layer.module.parameters(), ...next.parameters()]) variable.zeroGrad();
      expect(backend.finish()).toEqual([]);
    }),
    { numRuns: draws(150) },
  );
});

it("each rank of a divided layer makes each copy once, with rows or columns of each rank", async () => {
  const parallel = fc.record({
    step: step
      .filter(({ recipe }) => recipe !== ROW_SCALED)
      .map((choices) => ({ ...choices, fp8Output: false })),
    row: fc.boolean(),
    sequenceParallel: fc.boolean(),
    rows: fc.constantFrom(ROWS, 4 * ROWS, 48),
  });
  await fc.assert(
    fc.asyncProperty(parallel, async ({ step: choices, row, sequenceParallel, rows }) => {
      const { layer: name, bias, fuseWgradAccumulation, saveOriginalInput, wanted: isWanted } = choices;
      const backends = otherBackends.map((createBackend) => new CopiesBackend(createBackend()));
      const groups = loopbackOver(backends, 20_000);
      const isRow = row && name === "Linear";
      const parallelMode = isRow ? ("row" as const) : ("column" as const);
      const ofLayer = { parallelMode };
      await Promise.all(
        groups.map(async (group) => {
          using _scope = new Scope();
          const options = { ...{ bias, fuseWgradAccumulation, saveOriginalInput }, ...ofLayer };
          using layer = moduleRow(name).build(group.backend, SIZES, { ...options, group, sequenceParallel });
          prepare(layer, isWanted);
          const isDivided = sequenceParallel && !isRow;
          const size = [isDivided ? rows / 2 : rows, isRow ? FROM / 2 : FROM] as const;
          run(layer, choices, size, () => undefined);
          await group.barrier();
        }),
      );
      // work is enqueued, so the two runs of a recomputed layer cannot be distinguished; and an unquantized saved input is
      // quantized again in the backward pass, also rowwise if its columnwise copy is derived after the rows are gathered
      const hasFaultAgain = (fault: string): boolean =>
        choices.way === "recomputed" ||
        (saveOriginalInput && sequenceParallel && !isRow && fault.startsWith("rowwise "));
      const faults = backends.flatMap((backend) => backend.finish());
      expect(faults.filter((fault) => !fault.endsWith("made twice") || !hasFaultAgain(fault))).toEqual([]);
    }),
    { numRuns: draws(40) },
  );
});
