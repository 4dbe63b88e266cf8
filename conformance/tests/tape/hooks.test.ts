/** Hooks of leaves run once in each pass that reaches the leaf, when its gradient is complete and before the pass continues. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  ArgumentError,
  autocast,
  differentiable,
  encode,
  Float8CurrentScaling,
  functional,
  type HookHandle,
  Linear,
  normal,
  type Parameter,
  RandomState,
  recompute,
  Scope,
  type Tensor,
  tensor,
  Variable,
  zeros,
} from "../../../src/index.js";
import { persistent } from "../../../src/modules/parameter.js";
import { download } from "../../values/plain.js";
import { derivedSeed, draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const SIZE = 16;
const MAX_CALLS = 20;
const LAYERS = 3;

/**
 * A chain of layers: for each, its index, whether the backward pass recomputes it, and whether its input is added to its result.
 */
interface Program {
  readonly chain: readonly {
    readonly layer: number;
    readonly isRecomputed: boolean;
    readonly residual: boolean;
  }[];
  readonly frozen: readonly boolean[];
  readonly hooked: readonly boolean[];
  /** Whether a hook was registered and removed before the passes. */
  readonly removed: readonly boolean[];
  readonly fuses: boolean;
  readonly fp8: boolean;
  readonly nested: boolean;
}

const flags = fc.array(fc.boolean(), { minLength: 2 * LAYERS, maxLength: 2 * LAYERS });
const programs: fc.Arbitrary<Program> = fc.record({
  chain: fc.array(
    fc.record({ layer: fc.nat(LAYERS - 1), isRecomputed: fc.boolean(), residual: fc.boolean() }),
    {
      minLength: 1,
      maxLength: 5,
    },
  ),
  frozen: flags,
  hooked: flags,
  removed: flags,
  fuses: fc.boolean(),
  fp8: fc.boolean(),
  nested: fc.boolean(),
});

const backend = useBackend();

const textOf = (x: Tensor | undefined): string => (x ? String(download(x).codes) : "none");
const gradOf = (parameter: Parameter): string => `${textOf(parameter.grad)} / ${textOf(parameter.mainGrad)}`;

interface Observation {
  /** The gradients of all parameters after each of the two passes. */
  readonly gradsAfter: readonly (readonly string[])[];
  /** The calls of hooks: the parameter, its gradient, and all other gradients at that time. */
  readonly calls: readonly (readonly { readonly index: number; readonly grads: readonly string[] }[])[];
}

function run({ chain, frozen, hooked, removed, fuses, fp8, nested }: Program, hooks: boolean): Observation {
  using _ = new Scope();
  const layers = Array.from(
    { length: LAYERS },
    (_, i) =>
      new Linear(backend(), SIZE, SIZE, { random: new RandomState(BigInt(i)), fuseWgradAccumulation: fuses }),
  );
  try {
    if (fuses)
      for (const { weight } of layers) weight.mainGrad = persistent(zeros(backend(), "f32", [SIZE, SIZE]));
    const parameters = layers.flatMap((layer) => layer.parameters());
    let calls: { index: number; grads: string[] }[] = [];
    for (const [i, parameter] of parameters.entries()) {
      parameter.requiresGrad = !frozen[i];
      if (hooks && removed[i]) parameter.registerPostAccumulateGradHook(() => unreachable(i)).remove();
      if (hooks && hooked[i])
        parameter.registerPostAccumulateGradHook((leaf) => {
          expect(leaf).toBe(parameter);
          calls.push({ index: i, grads: parameters.map(gradOf) });
        });
    }
    const underRecipe = <R>(body: () => R): R =>
      fp8 ? autocast({ recipe: new Float8CurrentScaling() }, body) : body();
    const step = (
      hidden: Variable,
      { layer, isRecomputed, residual }: Program["chain"][number],
    ): Variable => {
      const forward = (x: Variable): Variable => (layers[layer] as Linear).forward(x);
      const y = isRecomputed ? recompute(forward, hidden) : forward(hidden);
      return residual ? functional.add(y, hidden) : y;
    };
    const passes = [0, 1].map((pass) => {
      calls = [];
      const x = new Variable(sample(pass), true);
      const runChain = (input: Variable): Variable => chain.reduce(step, input);
      const start = functional.add(x, x);
      const y = underRecipe(() => (nested ? recompute(runChain, start) : runChain(start)));
      y.backward(sample(10 + pass));
      x.zeroGrad();
      return { calls, after: parameters.map(gradOf) };
    });
    return {
      gradsAfter: passes.map(({ after: gradsAfter }) => gradsAfter),
      calls: passes.map(({ calls }) => calls),
    };
  } finally {
    for (const layer of layers) layer.dispose();
  }
}

function unreachable(index: number): never {
  throw new Error(`the removed hook of parameter ${index} was called`);
}

function sample(number: number): Tensor {
  const values = normal({ seed: 7n, offset: BigInt(number * SIZE * SIZE) }, SIZE * SIZE, 1);
  return encode(tensor(backend(), values, [SIZE, SIZE]), { format: "bf16" });
}

describe("a hook of a leaf", () => {
  it("runs once in each pass that reaches the leaf, sees its final gradient, and changes none", () => {
    fc.assert(
      fc.property(programs, (program) => {
        const [plainResult, observation] = [run(program, false), run(program, true)];
        expect(observation.gradsAfter).toEqual(plainResult.gradsAfter);
        // a hook that was removed has no effect on other hooks
        expect(observation.calls).toEqual(run({ ...program, removed: [] }, true).calls);
        const usedLayers = new Set(program.chain.map(({ layer }) => layer));
        const expected = program.hooked.flatMap((hooked, i) =>
          hooked && !program.frozen[i] && usedLayers.has(Math.floor(i / 2)) ? [i] : [],
        );
        for (const [pass, calls] of observation.calls.entries()) {
          expect(calls.map(({ index }) => index).sort()).toEqual(expected);
          for (const { index, grads } of calls)
            expect(grads[index]).toBe(observation.gradsAfter[pass]?.[index]);
        }
      }),
      { numRuns: draws(60), seed: derivedSeed(3) },
    );
  });

  it("runs before the gradients of earlier layers are computed", () => {
    const chain = [0, 1, 2].map((layer) => ({ layer, isRecomputed: false, residual: false }));
    const noneFrozen = Array.from({ length: 2 * LAYERS }, () => false);
    const allFrozen = noneFrozen.map(() => true);
    const { calls } = run(
      { chain, frozen: noneFrozen, hooked: allFrozen, removed: [], fuses: false, fp8: false, nested: false },
      true,
    );
    expect(calls[0]?.map(({ index }) => Math.floor(index / 2))).toEqual([2, 2, 1, 1, 0, 0]);
    for (const { index, grads } of calls[0] ?? [])
      for (const [i, grad] of grads.entries())
        if (Math.floor(i / 2) < Math.floor(index / 2)) expect(grad).toBe("none / none");
  });

  it("changes no gradient of a leaf that shares its tensor with another one's", () => {
    fc.assert(
      fc.property(fc.array(fc.boolean(), { minLength: 1, maxLength: 4 }), fc.boolean(), (hooked, isRoot) => {
        using _ = new Scope();
        const leaves = hooked.map((_, i) => new Variable(tensor(backend(), [i]), true));
        const order: number[] = [];
        for (const [i, leaf] of leaves.entries())
          if (hooked[i]) leaf.registerPostAccumulateGradHook(() => void order.push(i));
        for (let pass = 1; pass <= 2; pass++) {
          const [result] = differentiable(leaves, () => ({
            results: [tensor(backend(), [0])],
            backward: ([grad]) => leaves.map(() => grad),
          }));
          // after another operation the shared gradient is not the caller's tensor
          const y = result as Variable;
          (isRoot ? y : functional.multiply(y, tensor(backend(), [2]))).backward(tensor(backend(), [3]));
          expect(leaves.map(({ grad }) => [...(grad?.dataSync() ?? [])])).toEqual(
            leaves.map(() => [pass * (isRoot ? 3 : 6)]),
          );
        }
        expect(order.length).toBe(2 * hooked.filter(Boolean).length);
        for (const leaf of leaves) leaf.zeroGrad();
      }),
      { numRuns: draws(60, 30) },
    );
  });

  it("does not run after it was removed, and is refused on a variable that is not a leaf", () => {
    using _ = new Scope();
    const x = new Variable(tensor(backend(), [1]), true);
    const order: string[] = [];
    const handles = ["first", "second"].map((name) =>
      x.registerPostAccumulateGradHook(() => void order.push(name)),
    );
    x.registerPostAccumulateGradHook((_, pass) => pass.atEnd(() => void order.push("end")));
    functional.add(x, x).backward();
    handles[0]?.remove();
    handles[0]?.remove();
    functional.add(x, x).backward();
    expect(order).toEqual(["first", "second", "end", "second", "end"]);
    expect(() => functional.add(x, x).registerPostAccumulateGradHook(() => {})).toThrow(ArgumentError);
    expect(() => x.registerPostAccumulateGradHook("hook" as never)).toThrow(ArgumentError);
    x.zeroGrad();
  });

  it("that registers and removes hooks changes those of later passes, and not those of its own", () => {
    const action = fc.record({ adds: fc.nat(2), removes: fc.array(fc.nat(5), { maxLength: 2 }) });
    fc.assert(
      fc.property(fc.array(action, { minLength: 1, maxLength: 4 }), (actions) => {
        using _ = new Scope();
        const x = new Variable(tensor(backend(), [1]), true);
        const handles: HookHandle[] = [];
        // the numbers of the registered hooks in order, and the numbers of the hooks that a pass calls
        let registeredHooks: number[] = [];
        let calledHooks: number[] = [];
        const remove = (number: number): void => {
          handles[number]?.remove();
          registeredHooks = registeredHooks.filter((otherNumber) => otherNumber !== number);
        };
        const register = ({ adds, removes }: (typeof actions)[number]): void => {
          const number = handles.length;
          registeredHooks.push(number);
          let isNew = true;
          handles[number] = x.registerPostAccumulateGradHook(() => {
            calledHooks.push(number);
            if (calledHooks.length > MAX_CALLS)
              throw new Error("hooks that were registered in a pass ran in it");
            if (isNew) for (let i = 0; i < adds; i++) register({ adds: 0, removes: [] });
            isNew = false;
            for (const removeHook of removes) remove(removeHook);
          });
        };
        for (const action of actions) register(action);
        for (let pass = 0; pass < 3; pass++) {
          const expected = [...registeredHooks];
          calledHooks = [];
          functional.add(x, x).backward();
          expect(calledHooks).toEqual(expected);
          x.zeroGrad();
        }
      }),
      { numRuns: draws(200) },
    );
  });
});
