/** The products that a layer runs on a backend: only those whose results are needed, each with the parameters of its pass. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import type { GemmArgs } from "../../../../src/backends/ops/gemm.js";
import { empty } from "../../../../src/ops/create.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { draws } from "../../harness/draws.js";
import { combineResults, regionOptions, rowsWhere } from "../../harness/modules/calls.js";
import { moduleRow } from "../../harness/modules/table.js";
import { recipeByName } from "../../harness/step/library-recipes.js";
import { useBackend } from "../../harness/suite.js";
import { RecordingBackend } from "../../harness/surface/asked-backend.js";

const reference = useBackend({ threads: 1, datapath: "hopper" });
const [ROWS, FROM, MIDDLE, TO] = [32, 64, 96, 128];

const SIZES = { rows: ROWS, from: FROM, to: TO, middle: MIDDLE };
/** Modules whose products have weights of these names. */
const LAYERS = Object.fromEntries(rowsWhere(({ products }) => products !== undefined));

const splits = fc.option(fc.record({ fprop: fc.boolean(), dgrad: fc.boolean(), wgrad: fc.boolean() }), {
  nil: undefined,
});
const steps = fc.record({
  layer: fc.constantFrom(...Object.keys(LAYERS)),
  recipe: fc.constantFrom("none", "delayed", "current", "block", "mxfp8", "nvfp4", "custom"),
  split: splits,
  bias: fc.boolean(),
  fuseWgradAccumulation: fc.boolean(),
  saveOriginalInput: fc.boolean(),
  isFirstMicrobatch: fc.option(fc.boolean(), { nil: undefined }),
  wanted: fc.func(fc.boolean()),
});

type Split = Readonly<Record<"fprop" | "dgrad" | "wgrad", boolean>>;

/** A recipe. If `split`, its products use the split accumulator. */
function recipeOf(name: Parameters<typeof recipeByName>[0], split: Split | undefined): Recipe | undefined {
  const products = split && {
    ...{ fprop: { useSplitAccumulator: split.fprop }, dgrad: { useSplitAccumulator: split.dgrad } },
    wgrad: { useSplitAccumulator: split.wgrad },
  };
  if (name === "none") return undefined;
  if (name === "delayed") return new DelayedScaling({ ...products, amaxHistoryLen: 2 });
  if (name === "current") return new Float8CurrentScaling({ ...products });
  return recipeByName(name);
}

/** A description of a product: the shape and dtype of its result, and its options. */
const productName = ({ out, c: addend, beta, splitAccumulator }: GemmArgs, isPart: boolean): string =>
  `[${out.shape}] ${out.dtype}${addend ? ` + ${beta} c` : ""}${isPart ? ` in parts: ${splitAccumulator}` : ""}`;

it("modules compute a product only if its result is needed, with its own options, and a gradient only if it is required", () => {
  fc.assert(
    fc.property(steps, ({ layer: name, recipe: kind, split, wanted, isFirstMicrobatch, ...choices }) => {
      using _scope = new Scope();
      const backend = new RecordingBackend(reference());
      const row = moduleRow(name);
      const products = row.products?.(SIZES) ?? [];
      const options = { ...choices, saveOriginalInput: choices.saveOriginalInput && kind !== "delayed" };
      using builtModule = row.build(backend, SIZES, options);
      const recipe = recipeOf(kind, split);
      const parameters = builtModule.module.namedParameters();
      for (const [parameterName, parameter] of parameters) {
        parameter.requiresGrad = wanted(parameterName);
        const { shape } = parameter;
        if (shape.length === 2) parameter.mainGrad = empty(backend, "f32", shape);
      }
      const isWanted = (parameterName: string): boolean =>
        parameterName === "" ? wanted("") : parameters.get(parameterName)?.requiresGrad === true;
      const x = new Variable(empty(backend, "bf16", [ROWS, FROM]), wanted(""));
      const gemms = (): string[] => {
        const isPart = kind === "delayed" || kind === "current";
        const productNames = backend.calls.flatMap(({ op, args }) =>
          op === "gemm" ? [productName(args, isPart)] : [],
        );
        backend.calls.length = 0;
        return productNames.sort();
      };
      const partOf = (product: keyof Split): string =>
        kind === "delayed" || kind === "current"
          ? ` in parts: ${split?.[product] ?? product !== "fprop"}`
          : "";
      backend.calls.length = 0;
      const call = isFirstMicrobatch === undefined ? {} : { isFirstMicrobatch };
      // the weight is cached in the first microbatch
      const y = autocast(regionOptions(recipe), () => combineResults(builtModule.run([x], call)));
      expect(gemms()).toEqual(products.map(({ to }) => `[${ROWS},${to}] bf16${partOf("fprop")}`).sort());
      const anyone = ["", ...parameters.keys()].some(isWanted);
      expect(y.requiresGrad).toBe(anyone);
      if (!anyone) return;
      y.backward(empty(backend, "bf16", y.shape) as Tensor<"bf16">);
      const { fuseWgradAccumulation: fuses } = options;
      const backward = products.flatMap(({ weight, predecessors, from, to }) => [
        ...(predecessors.some(isWanted) ? [`[${ROWS},${from}] bf16${partOf("dgrad")}`] : []),
        ...(isWanted(weight)
          ? [
              `[${to},${from}] ${fuses ? `f32${isFirstMicrobatch ? "" : " + 1 c"}` : "bf16"}${partOf("wgrad")}`,
            ]
          : []),
      ]);
      expect(gemms()).toEqual(backward.sort());
      const weights = products.map(({ weight }) => weight);
      for (const [parameterName, { grad }] of parameters)
        expect(grad !== undefined, parameterName).toBe(
          isWanted(parameterName) && !(fuses && weights.includes(parameterName)),
        );
      expect(x.grad !== undefined).toBe(isWanted(""));
      for (const variable of [x, ...parameters.values()]) variable.zeroGrad();
    }),
    { numRuns: draws(150) },
  );
});
