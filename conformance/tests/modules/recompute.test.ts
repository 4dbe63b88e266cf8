/** A layer whose activations are recomputed equals the layer that saves them, bit for bit. */
import * as fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { autocast } from "../../../src/autocast.js";
import { Linear } from "../../../src/modules/linear.js";
import { recompute } from "../../../src/modules/recompute.js";
import { encode } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { normal } from "../../../src/random.js";
import { MXFP8BlockScaling } from "../../../src/recipes/block-scaled.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../src/recipes/recipe.js";
import { variable } from "../../../src/tape/differentiable.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const SIZE = 32;
const STEPS = 3;

/** A part of a network: a call of one of two layers, a sequence of parts, or a recomputed part. */
type Part = LayerCall | readonly Part[] | { readonly again: Part };

interface LayerCall {
  readonly layer: 0 | 1;
  /**
   * Whether the weight is cached. The cache is renewed in every other step, and discarded when another recipe is used
   * in between.
   */
  readonly cached: boolean;
}

/** An event between a layer's forward and backward pass: another pass, or a restored state. */
type Event =
  | (LayerCall & { readonly recipe: keyof typeof MAKE; readonly trained: boolean })
  | { readonly restored: 0 | 1 };

interface Program {
  readonly recipe: keyof typeof MAKE;
  readonly part: Part;
  /** The events of each step. */
  readonly events: readonly (readonly Event[])[];
}

const MAKE = {
  delayed: () => new DelayedScaling({ amaxHistoryLen: 3 }),
  longer: () => new DelayedScaling({ amaxHistoryLen: 5, amaxComputeAlgo: "mostRecent" }),
  current: () => new Float8CurrentScaling(),
  mxfp8: () => new MXFP8BlockScaling(),
} as const satisfies Record<string, () => Recipe>;

const layer = fc.constantFrom(0, 1);
const recipe = fc.constantFrom("delayed", "longer", "current", "mxfp8");
const cached = fc.boolean();
const { part } = fc.letrec<{ part: Part }>((tie) => ({
  part: fc.oneof(
    { depthSize: "medium", withCrossShrink: true },
    fc.record({ layer, cached }),
    fc.array(tie("part"), { minLength: 1, maxLength: 3 }),
    fc.record({ again: tie("part") }),
  ),
}));
const happens: fc.Arbitrary<Event> = fc.oneof(
  fc.record({ layer, cached, recipe, trained: fc.boolean() }),
  fc.record({ restored: layer }),
);
const events = fc.array(fc.array(happens, { maxLength: 2 }), { maxLength: STEPS });

describe("a recomputed part", () => {
  const backend = useBackend();

  beforeEach(() => {
    vi.spyOn(console, "warn").mockImplementation(() => undefined);
  });
  afterEach(() => vi.restoreAllMocks());

  function sample(number: number): Tensor {
    const values = normal({ seed: 3n, offset: BigInt(number) }, SIZE * SIZE, 1 + number);
    return encode(tensor(backend(), values, [SIZE, SIZE]), { format: "bf16" });
  }

  /** The states of layers and all gradients after every step, with or without recomputation. */
  function trainProgram({ recipe, part, events }: Program, wrap: typeof recompute) {
    using _ = new Scope();
    const currentRecipe = MAKE[recipe]();
    using firstLayer = new Linear(backend(), SIZE, SIZE, { random: new RandomState(1n) });
    using secondLayer = new Linear(backend(), SIZE, SIZE, { random: new RandomState(2n) });
    const layers = [firstLayer, secondLayer] as const;
    const call = ({ layer, cached }: LayerCall, x: Variable, isFirstMicrobatch: boolean): Variable =>
      layers[layer].forward(x, cached ? { isFirstMicrobatch } : {});
    const run = (part: Part, x: Variable, isFirst: boolean): Variable => {
      if ("layer" in part) return call(part, x, isFirst);
      if ("again" in part) return wrap((hidden) => run(part.again, hidden, isFirst), x);
      return part.reduce((hidden, step) => run(step, hidden, isFirst), x);
    };
    const applyEvent = (event: Event): void => {
      if ("restored" in event) {
        for (const quantization of layers[event.restored].namedQuantizations().values())
          quantization.restore(quantization.snapshotSync());
        return;
      }
      const pass = () =>
        autocast({ recipe: MAKE[event.recipe]() }, () =>
          call(event, variable(sample(9)), event.recipe !== recipe),
        );
      if (event.trained) pass();
      else noGrad(pass);
    };
    return Array.from({ length: STEPS }, (_, step) => {
      const x = new Variable(sample(step), true);
      const out = autocast({ recipe: currentRecipe }, () => run(part, x, step % 2 === 0));
      for (const event of events[step] ?? []) applyEvent(event);
      out.backward(sample(step + STEPS));
      const gradients = [x, ...layers.flatMap((layer) => layer.parameters())].map(({ grad }) =>
        grad?.dataSync(),
      );
      x.zeroGrad();
      for (const parameter of layers.flatMap((layer) => layer.parameters())) parameter.zeroGrad();
      return {
        seen: gradients,
        states: layers.map((layer) =>
          [...layer.namedQuantizations().values()].map((quantization) => quantization.snapshotSync()),
        ),
      };
    });
  }

  it("leaves the same states and gives the same gradients as without recompute, for any nesting and any calls in between", () => {
    const call: LayerCall = { layer: 0, cached: false };
    const change = { ...call, trained: false };
    fc.assert(
      fc.property(fc.record({ recipe, part, events }), (program) => {
        const plainResults = trainProgram(program, (body, ...inputs) => body(...inputs.map(variable)));
        expect(trainProgram(program, recompute)).toEqual(plainResults);
      }),
      {
        numRuns: draws(60),
        examples: [
          [{ recipe: "delayed", part: { again: { again: { again: call } } }, events: [] }],
          [{ recipe: "delayed", part: { again: call }, events: [[], [{ ...change, recipe: "mxfp8" }]] }],
        ],
      },
    );
  });
});

describe("a gradient that a layer quantized", () => {
  const backend = useBackend();

  it("is accepted by the layer before it, whose weight gradient is near that from an unquantized gradient", () => {
    const gradient = (fp8Grad: boolean): Float32Array => {
      using _ = new Scope();
      const random = new RandomState(1n);
      using firstLayer = new Linear(backend(), SIZE, SIZE, { random, dtype: "f32" });
      using secondLayer = new Linear(backend(), SIZE, SIZE, { random, dtype: "f32" });
      const x = tensor(backend(), normal({ seed: 3n, offset: 0n }, SIZE * SIZE, 1), [SIZE, SIZE]);
      const out = autocast({ recipe: new DelayedScaling() }, () =>
        secondLayer.forward(firstLayer.forward(x), { fp8Grad }),
      );
      out.backward(x);
      return firstLayer.weight.grad?.dataSync() as Float32Array;
    };
    const [wide, quantizedResults] = [gradient(false), gradient(true)];
    const distance = Math.hypot(...wide.map((value, i) => value - (quantizedResults[i] as number)));
    expect(distance).toBeLessThan(0.1 * Math.hypot(...wide));
  });
});
