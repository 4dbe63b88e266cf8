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
  fc.constantFrom(true, false).map((each) => Array.from({ length: PARAMETERS }, () => each)),
  fc.array(fc.boolean(), { minLength: PARAMETERS, maxLength: PARAMETERS }),
);
const programs: fc.Arbitrary<Program> = fc.record({
  recipe: fc.constantFrom("none", "current", "delayed"),
  fuses: fc.boolean(),
  part: part.map((each) => ({ again: each })),
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
  const [first, second] = [1n, 2n].map((seed) => {
    const made = new Linear(backend(), SIZE, SIZE, {
      random: new RandomState(seed),
      fuseWgradAccumulation: fuses,
    });
    if (fuses) {
      made.weight.mainGrad = persistent(zeros(backend(), "f32", [SIZE, SIZE]));
      made.weight.mainGrad.write(new Float32Array(SIZE * SIZE).fill(3));
    }
    return made;
  }) as [Linear, Linear];
  return [first, second];
}

/** Everything observable of a program, with or without recomputation of its parts. */
function seen({ recipe: name, fuses, part: whole, steps }: Program, again: typeof recompute) {
  using _ = new Scope();
  const [first, second] = layers(fuses);
  using _first = first;
  using _second = second;
  const recipe = RECIPES[name]();
  const under = <R>(body: () => R): R => (recipe ? autocast({ recipe }, body) : body());
  return steps.map(({ frozen, trainsInput, isFirst }, at) => {
    const parameters = [first, second].flatMap((each) => each.parameters());
    for (const [i, each] of parameters.entries()) each.requiresGrad = !frozen[i];
    const leaf = new Variable(sample(at + 10), true);
    const x = new Variable(sample(at), trainsInput);
    // For each part, the set of "<input requires a gradient> to <output requires a gradient>" over all its runs. A
    // recomputed part runs twice; if its runs differed, its set would differ from that of the part without
    // recomputation.
    const places = new Map<Part, Set<string>>();
    const run = (each: Part, h: Variable, others: Readonly<Record<Outside, Variable>>): Variable => {
      const go = (): Variable => {
        if ("layer" in each)
          return [first, second][each.layer]?.forward(
            h,
            each.cached ? { isFirstMicrobatch: isFirst } : {},
          ) as Variable;
        if ("adds" in each) return functional.add(h, others[each.adds]);
        if ("becomes" in each) return others[each.becomes];
        if ("again" in each) return again((inner) => run(each.again, inner, others), h);
        if ("noGrad" in each) return noGrad(() => run(each.noGrad, h, others));
        if ("detached" in each) return run(each.detached, h, others).detach();
        return each.reduce((before, one) => run(one, before, others), h);
      };
      const result = go();
      const here = places.get(each) ?? new Set();
      places.set(each, here.add(`${h.requiresGrad} to ${result.requiresGrad}`));
      return result;
    };
    const out = under(() => {
      const computed = functional.activation(leaf, "relu");
      const others = {
        ...{ constant: variable(sample(at + 20)), leaf, computed },
        "layer's": second.forward(sample(at + 30)),
      };
      // the last result is not a leaf, so it has a graph
      return functional.add(run(whole, x, others), others.constant);
    });
    const value = digest(out.tensor.dataSync());
    const backward = () => out.backward(sample(at + 40));
    if (out.requiresGrad) backward();
    else expect(backward).toThrow(ArgumentError);
    const gradients = [x, leaf, ...parameters].map(({ grad }) => digest(grad?.dataSync()));
    for (const each of [x, leaf, ...parameters]) each.zeroGrad();
    return {
      ...{ value, gradients, requiresGrad: out.requiresGrad },
      places: [...places.values()].map((each) => [...each]),
      mainGrads: [first, second].map(({ weight }) => digest(weight.mainGrad?.dataSync())),
      states: [first, second].map((each) =>
        [...each.namedQuantizations().values()].map((one) => one.snapshotSync()),
      ),
    };
  });
}

const CALL: Part = { layer: 0, cached: false };
const ALL_FROZEN = Array.from({ length: PARAMETERS }, () => true);
const NONE_FROZEN = ALL_FROZEN.map(() => false);
const step = { frozen: ALL_FROZEN, trainsInput: false, isFirst: true };
const plain = { recipe: "none", fuses: false, steps: [step] } as const;

describe("a recomputed part", () => {
  it("requires and gives gradients exactly as the same part does without recompute", () => {
    fc.assert(
      fc.property(programs, (program) => {
        const kept = seen(program, (body, ...inputs) => body(...inputs.map(variable)));
        expect(seen(program, recompute)).toEqual(kept);
      }),
      {
        numRuns: draws(150),
        examples: [
          [{ ...plain, part: { again: CALL } }],
          [{ ...plain, part: { again: { again: CALL } } }],
          [{ ...plain, steps: [{ ...step, trainsInput: true }], part: { again: { detached: CALL } } }],
          [{ ...plain, steps: [{ ...step, frozen: NONE_FROZEN }], part: { again: { noGrad: CALL } } }],
          [{ ...plain, part: { again: { again: { becomes: "computed" } } } }],
          // the frozen weight gets no gradient in the first microbatch, so its main gradient is not overwritten there;
          // the next microbatch adds to it
          [
            {
              ...{ ...plain, fuses: true, part: { again: { layer: 0, cached: true } } },
              steps: [step, { ...step, frozen: NONE_FROZEN, isFirst: false }],
            },
          ],
          // a weight cached with only its rowwise copy is quantized again, with other scales, when its columnwise copy
          // is needed
          [
            {
              ...{ ...plain, recipe: "delayed", part: { again: { layer: 0, cached: true } } },
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
    (around) => {
      using _ = new Scope();
      const body = (x: Variable): Variable => functional.activation(x, "relu");
      const inside: boolean[] = [];
      const call = (x: Variable): Variable => {
        const result = recompute(body, x);
        inside.push(result.requiresGrad);
        return result;
      };
      for (const trains of [true, false]) {
        const x = new Variable(sample(1), trains);
        if (around === "noGrad") noGrad(() => call(x));
        else recompute(call, x);
      }
      expect(inside).toEqual(around === "noGrad" ? [false, false] : [true, false]);
    },
  );

  testInScope("saves nothing if nothing in it requires a gradient", () => {
    using layer = new Linear(backend(), SIZE, SIZE, { random: new RandomState(1n) });
    const x = sample(1);
    const recipe = new DelayedScaling();
    const blocks = (trains: boolean): number => {
      for (const parameter of layer.parameters()) parameter.requiresGrad = trains;
      const before = backend().memoryUse().blocks;
      autocast({ recipe }, () => recompute((h) => layer.forward(h), x));
      return backend().memoryUse().blocks - before;
    };
    blocks(false); // the layer's own scales
    expect(blocks(false)).toBe(1);
    expect(blocks(true)).toBeGreaterThan(1);
  });
});
