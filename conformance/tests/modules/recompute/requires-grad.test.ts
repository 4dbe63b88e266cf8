/** A recomputed part of a network requires gradients exactly where the same part without recomputation does. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  ArgumentError,
  autocast,
  DelayedScaling,
  encode,
  Float8CurrentScaling,
  functional,
  Linear,
  noGrad,
  normal,
  RandomState,
  type Recipe,
  recompute,
  Scope,
  type Tensor,
  tensor,
  Variable,
  zeros,
} from "../../../../src/index.js";
import { persistent } from "../../../../src/modules/parameter.js";
import { variable } from "../../../../src/tape/differentiable.js";
import { draws } from "../../harness/draws.js";
import { digest } from "../../harness/state/training.js";
import { testInScope, useBackend } from "../../harness/suite.js";

const SIZE = 16;
const PARAMETERS = 4;

/** The kinds of a value from outside of a part: a constant, a leaf, computed from a leaf, or computed by a layer. */
const OUTSIDE = ["constant", "leaf", "computed", "layer's"] as const;
type Outside = (typeof OUTSIDE)[number];

type Part =
  | { readonly layer: 0 | 1; readonly cached: boolean }
  | { readonly adds: Outside }
  | { readonly becomes: Outside }
  | { readonly again: Part }
  | { readonly noGrad: Part }
  | { readonly detached: Part }
  | readonly Part[];

interface Step {
  /** For the weight and bias of both layers. */
  readonly frozen: readonly boolean[];
  readonly trainsInput: boolean;
  readonly isFirst: boolean;
}

interface Program {
  readonly recipe: keyof typeof RECIPES;
  readonly fuses: boolean;
  readonly part: Part;
  readonly steps: readonly Step[];
}

const RECIPES = {
  none: () => undefined,
  current: () => new Float8CurrentScaling(),
  delayed: () => new DelayedScaling({ amaxHistoryLen: 3 }),
} as const satisfies Record<string, () => Recipe | undefined>;

const outside = fc.constantFrom(...OUTSIDE);
const { part } = fc.letrec<{ part: Part }>((tie) => ({
  part: fc.oneof(
    { depthSize: "medium", withCrossShrink: true },
    fc.record({ layer: fc.constantFrom(0, 1), cached: fc.boolean() }),
    fc.record({ adds: outside }),
    fc.record({ becomes: outside }),
    fc.array(tie("part"), { minLength: 1, maxLength: 3 }),
    fc.record({ again: tie("part") }),
    fc.record({ again: tie("part") }),
    fc.record({ noGrad: tie("part") }),
    fc.record({ detached: tie("part") }),
  ),
}));
const frozen = fc.oneof(
  fc.constantFrom(true, false).map((value) => Array.from({ length: PARAMETERS }, () => value)),
  fc.array(fc.boolean(), { minLength: PARAMETERS, maxLength: PARAMETERS }),
);
const programs: fc.Arbitrary<Program> = fc.record({
  recipe: fc.constantFrom("none", "current", "delayed"),
  fuses: fc.boolean(),
  part: part.map((nestedPart) => ({ again: nestedPart })),
  steps: fc.array(fc.record({ frozen, trainsInput: fc.boolean(), isFirst: fc.boolean() }), {
    minLength: 1,
    maxLength: 3,
  }),
});

const backend = useBackend();

function sample(number: number): Tensor {
  const values = normal({ seed: 7n, offset: BigInt(number) }, SIZE * SIZE, 1);
  return encode(tensor(backend(), values, [SIZE, SIZE]), { format: "bf16" });
}

function layers(fuses: boolean): readonly [Linear, Linear] {
  const [firstLayer, secondLayer] = [1n, 2n].map((seed) => {
    const layer = new Linear(backend(), SIZE, SIZE, {
      random: new RandomState(seed),
      fuseWgradAccumulation: fuses,
    });
    if (fuses) {
      layer.weight.mainGrad = persistent(zeros(backend(), "f32", [SIZE, SIZE]));
      layer.weight.mainGrad.write(new Float32Array(SIZE * SIZE).fill(3));
    }
    return layer;
  }) as [Linear, Linear];
  return [firstLayer, secondLayer];
}

/** Everything observable of a program, with or without recomputation of its parts. */
function resultsOf({ recipe: name, fuses, part: program, steps }: Program, wrap: typeof recompute) {
  using _ = new Scope();
  const [firstLayer, secondLayer] = layers(fuses);
  using _first = firstLayer;
  using _second = secondLayer;
  const recipe = RECIPES[name]();
  const underRecipe = <R>(body: () => R): R => (recipe ? autocast({ recipe }, body) : body());
  return steps.map(({ frozen, trainsInput, isFirst }, stepIndex) => {
    const parameters = [firstLayer, secondLayer].flatMap((layer) => layer.parameters());
    for (const [i, parameter] of parameters.entries()) parameter.requiresGrad = !frozen[i];
    const leaf = new Variable(sample(stepIndex + 10), true);
    const x = new Variable(sample(stepIndex), trainsInput);
    // For each part, the set of "<input requires a gradient> to <output requires a gradient>" over all its runs. A
    // recomputed part runs twice; if its runs differed, its set would differ from that of the part without
    // recomputation.
    const outsideByPart = new Map<Part, Set<string>>();
    const run = (part: Part, hidden: Variable, outside: Readonly<Record<Outside, Variable>>): Variable => {
      const runPart = (): Variable => {
        if ("layer" in part)
          return [firstLayer, secondLayer][part.layer]?.forward(
            hidden,
            part.cached ? { isFirstMicrobatch: isFirst } : {},
          ) as Variable;
        if ("adds" in part) return functional.add(hidden, outside[part.adds]);
        if ("becomes" in part) return outside[part.becomes];
        if ("again" in part) return wrap((inner) => run(part.again, inner, outside), hidden);
        if ("noGrad" in part) return noGrad(() => run(part.noGrad, hidden, outside));
        if ("detached" in part) return run(part.detached, hidden, outside).detach();
        return part.reduce((value, nestedPart) => run(nestedPart, value, outside), hidden);
      };
      const result = runPart();
      const outsideNames = outsideByPart.get(part) ?? new Set();
      outsideByPart.set(part, outsideNames.add(`${hidden.requiresGrad} to ${result.requiresGrad}`));
      return result;
    };
    const out = underRecipe(() => {
      const computedLeaf = functional.activation(leaf, "relu");
      const outsideValues = {
        ...{ constant: variable(sample(stepIndex + 20)), leaf, computed: computedLeaf },
        "layer's": secondLayer.forward(sample(stepIndex + 30)),
      };
      // the last result is not a leaf, so it has a graph
      return functional.add(run(program, x, outsideValues), outsideValues.constant);
    });
    const value = digest(out.tensor.dataSync());
    const backward = () => out.backward(sample(stepIndex + 40));
    if (out.requiresGrad) backward();
    else expect(backward).toThrow(ArgumentError);
    const gradients = [x, leaf, ...parameters].map(({ grad }) => digest(grad?.dataSync()));
    for (const variable of [x, leaf, ...parameters]) variable.zeroGrad();
    return {
      ...{ value, gradients, requiresGrad: out.requiresGrad },
      places: [...outsideByPart.values()].map((names) => [...names]),
      mainGrads: [firstLayer, secondLayer].map(({ weight }) => digest(weight.mainGrad?.dataSync())),
      states: [firstLayer, secondLayer].map((layer) =>
        [...layer.namedQuantizations().values()].map((quantization) => quantization.snapshotSync()),
      ),
    };
  });
}

const CALL: Part = { layer: 0, cached: false };
const ALL_FROZEN = Array.from({ length: PARAMETERS }, () => true);
const NONE_FROZEN = ALL_FROZEN.map(() => false);
const step = { frozen: ALL_FROZEN, trainsInput: false, isFirst: true };
const plainProgram = { recipe: "none", fuses: false, steps: [step] } as const;

describe("a recomputed part", () => {
  it("requires and gives gradients exactly as the same part does without recompute", () => {
    fc.assert(
      fc.property(programs, (program) => {
        const plainResults = resultsOf(program, (body, ...inputs) => body(...inputs.map(variable)));
        expect(resultsOf(program, recompute)).toEqual(plainResults);
      }),
      {
        numRuns: draws(150),
        examples: [
          [{ ...plainProgram, part: { again: CALL } }],
          [{ ...plainProgram, part: { again: { again: CALL } } }],
          [{ ...plainProgram, steps: [{ ...step, trainsInput: true }], part: { again: { detached: CALL } } }],
          [{ ...plainProgram, steps: [{ ...step, frozen: NONE_FROZEN }], part: { again: { noGrad: CALL } } }],
          [{ ...plainProgram, part: { again: { again: { becomes: "computed" } } } }],
          // the frozen weight gets no gradient in the first microbatch, so its main gradient is not overwritten there;
          // the next microbatch adds to it
          [
            {
              ...{ ...plainProgram, fuses: true, part: { again: { layer: 0, cached: true } } },
              steps: [step, { ...step, frozen: NONE_FROZEN, isFirst: false }],
            },
          ],
          // a weight cached with only its rowwise copy is quantized again, with other scales, when its columnwise copy
          // is needed
          [
            {
              ...{ ...plainProgram, recipe: "delayed", part: { again: { layer: 0, cached: true } } },
              steps: [
                { ...step, frozen: NONE_FROZEN },
                { ...step, frozen: NONE_FROZEN, isFirst: false, trainsInput: true },
              ],
            },
          ],
        ],
      },
    );
  });

  it.each(["noGrad", "a part that is computed again"])(
    "inside %s requires a gradient only where gradients are recorded",
    (mode) => {
      using _ = new Scope();
      const body = (x: Variable): Variable => functional.activation(x, "relu");
      const modes: boolean[] = [];
      const call = (x: Variable): Variable => {
        const result = recompute(body, x);
        modes.push(result.requiresGrad);
        return result;
      };
      for (const trains of [true, false]) {
        const x = new Variable(sample(1), trains);
        if (mode === "noGrad") noGrad(() => call(x));
        else recompute(call, x);
      }
      expect(modes).toEqual(mode === "noGrad" ? [false, false] : [true, false]);
    },
  );

  testInScope("saves nothing if nothing in it requires a gradient", () => {
    using layer = new Linear(backend(), SIZE, SIZE, { random: new RandomState(1n) });
    const x = sample(1);
    const recipe = new DelayedScaling();
    const blocks = (trains: boolean): number => {
      for (const parameter of layer.parameters()) parameter.requiresGrad = trains;
      const blocksBefore = backend().memoryUse().blocks;
      autocast({ recipe }, () => recompute((input) => layer.forward(input), x));
      return backend().memoryUse().blocks - blocksBefore;
    };
    blocks(false); // the layer's own scales
    expect(blocks(false)).toBe(1);
    expect(blocks(true)).toBeGreaterThan(1);
  });
});
