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
const said = ({ out, c, beta, splitAccumulator }: GemmArgs, isPart: boolean): string =>
  `[${out.shape}] ${out.dtype}${c ? ` + ${beta} c` : ""}${isPart ? ` in parts: ${splitAccumulator}` : ""}`;

it("modules compute a product only if its result is needed, with its own options, and a gradient only if it is required", () => {
  fc.assert(
    fc.property(steps, ({ layer: name, recipe: kind, split, wanted, isFirstMicrobatch, ...drawn }) => {
      using _scope = new Scope();
      const backend = new RecordingBackend(reference());
      const row = moduleRow(name);
      const products = row.products?.(SIZES) ?? [];
      const options = { ...drawn, saveOriginalInput: drawn.saveOriginalInput && kind !== "delayed" };
      using built = row.build(backend, SIZES, options);
      const recipe = recipeOf(kind, split);
      const parameters = built.module.namedParameters();
      for (const [each, parameter] of parameters) {
        parameter.requiresGrad = wanted(each);
        const { shape } = parameter;
        if (shape.length === 2) parameter.mainGrad = empty(backend, "f32", shape);
      }
      const isWanted = (each: string): boolean =>
        each === "" ? wanted("") : parameters.get(each)?.requiresGrad === true;
      const x = new Variable(empty(backend, "bf16", [ROWS, FROM]), wanted(""));
      const gemms = (): string[] => {
        const isPart = kind === "delayed" || kind === "current";
        const found = backend.calls.flatMap(({ op, args }) => (op === "gemm" ? [said(args, isPart)] : []));
        backend.calls.length = 0;
        return found.sort();
      };
      const part = (product: keyof Split): string =>
        kind === "delayed" || kind === "current"
          ? ` in parts: ${split?.[product] ?? product !== "fprop"}`
          : "";
      backend.calls.length = 0;
      const call = isFirstMicrobatch === undefined ? {} : { isFirstMicrobatch };
      // the weight is cached in the first microbatch
      const y = autocast(regionOptions(recipe), () => combineResults(built.run([x], call)));
      expect(gemms()).toEqual(products.map(({ to }) => `[${ROWS},${to}] bf16${part("fprop")}`).sort());
      const anyone = ["", ...parameters.keys()].some(isWanted);
      expect(y.requiresGrad).toBe(anyone);
      if (!anyone) return;
      y.backward(empty(backend, "bf16", y.shape) as Tensor<"bf16">);
      const { fuseWgradAccumulation: fuses } = options;
      const backward = products.flatMap(({ weight, predecessors, from, to }) => [
        ...(predecessors.some(isWanted) ? [`[${ROWS},${from}] bf16${part("dgrad")}`] : []),
        ...(isWanted(weight)
          ? [`[${to},${from}] ${fuses ? `f32${isFirstMicrobatch ? "" : " + 1 c"}` : "bf16"}${part("wgrad")}`]
          : []),
      ]);
      expect(gemms()).toEqual(backward.sort());
      const weights = products.map(({ weight }) => weight);
      for (const [each, { grad }] of parameters)
        expect(grad !== undefined, each).toBe(isWanted(each) && !(fuses && weights.includes(each)));
      expect(x.grad !== undefined).toBe(isWanted(""));
      for (const each of [x, ...parameters.values()]) each.zeroGrad();
    }),
    { numRuns: draws(150) },
  );
});
