/**
 * The hooks of leaves that are in memory only while an operation uses them. They are called around every forward and backward
 * function, with the handles that the operation may have kept and the order of the backward pass.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { add, differentiable, Scope, type Tensor, tensor, Variable } from "../../../src/index.js";
import {
  currentPass,
  type Operation,
  runOperation,
  transientValue,
  USE_HOOKS,
  type UseHooks,
} from "../../../src/tape/uses.js";
import type { Value } from "../../../src/tape/value.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();

/** One call of a leaf's `UseHooks`, or of a function of an operation, in the order of time. */
type Call =
  | {
      readonly call: "before";
      readonly leaf: number;
      readonly retained: boolean;
      readonly operation: Operation;
    }
  | { readonly call: "after"; readonly leaf: number; readonly operation: Operation }
  | {
      readonly call: "accumulate";
      readonly leaf: number;
      readonly earlierUses: readonly (number | undefined)[];
    }
  | { readonly call: "body"; readonly step: number; readonly backward: boolean };

/** A leaf that can only be read while an operation uses it. */
class TransientLeaf extends Variable implements UseHooks {
  #uses = 0;
  #read = false;

  constructor(
    x: Tensor,
    readonly number: number,
    readonly log: Call[],
    readonly gradients: () => readonly (number | undefined)[],
  ) {
    super(x, true);
    this[USE_HOOKS] = this;
  }

  override get value(): Value {
    this.#read = true;
    return this.transientValue();
  }

  transientValue(): Value {
    expect(this.#uses).toBeGreaterThan(0);
    return super.value;
  }

  override get backend(): Tensor["backend"] {
    return super.value.backend;
  }

  override get shape(): Tensor["shape"] {
    return super.value.shape;
  }

  beforeUse(retained: boolean, operation: Operation): void {
    this.#uses++;
    this.log.push({ call: "before", leaf: this.number, retained, operation });
  }

  afterUse(operation: Operation): boolean {
    const readValue = this.#read;
    if (--this.#uses === 0) this.#read = false;
    this.log.push({ call: "after", leaf: this.number, operation });
    return readValue;
  }

  beforeAccumulate(): void {
    this.log.push({ call: "accumulate", leaf: this.number, earlierUses: this.gradients() });
  }
}

const LEAVES = 4;

/** A chain of sums. Each step adds leaves to the result so far, and keeps the handles of some of them. */
interface Program {
  /** Which leaves are transient. The others are plain. */
  readonly transient: readonly boolean[];
  readonly steps: readonly { readonly leaves: readonly number[]; readonly keeps: readonly boolean[] }[];
}

const programs: fc.Arbitrary<Program> = fc.record({
  transient: fc.array(fc.boolean(), { minLength: LEAVES, maxLength: LEAVES }),
  steps: fc.array(
    fc.record({
      leaves: fc.uniqueArray(fc.nat(LEAVES - 1), { minLength: 1, maxLength: LEAVES }),
      keeps: fc.array(fc.boolean(), { minLength: LEAVES, maxLength: LEAVES }),
    }),
    { minLength: 1, maxLength: 5 },
  ),
});

const gradOf = (x: Variable): number | undefined => x.grad && Number(x.grad.dataSync()[0]);

/** Runs the program and its backward pass, and returns all calls and the leaves' gradients. */
function run({ transient, steps }: Program): { log: Call[]; gradients: readonly (number | undefined)[] } {
  const log: Call[] = [];
  const leaves: Variable[] = [];
  const gradients = (): readonly (number | undefined)[] => leaves.map(gradOf);
  for (const [i, leaf] of transient.entries()) {
    const x = tensor(backend(), [1]);
    leaves.push(leaf ? new TransientLeaf(x, i, log, gradients) : new Variable(x, true));
  }
  let total = new Variable(tensor(backend(), [0]));
  for (const [step, { leaves: numbers, keeps }] of steps.entries()) {
    const usedLeaves = numbers.map((i) => leaves[i] as Variable);
    const totalBefore = total;
    const [sum] = differentiable([totalBefore, ...usedLeaves], () => {
      log.push({ call: "body", step, backward: false });
      const values = usedLeaves.map((x, i) => (keeps[i] ? x.value : transientValue(x)) as Tensor);
      return {
        results: [values.reduce((x, y) => add(x, y), totalBefore.tensor)],
        backward: ([grad]) => {
          log.push({ call: "body", step, backward: true });
          for (const x of usedLeaves) transientValue(x);
          return [grad, ...usedLeaves.map(() => grad)];
        },
      };
    });
    total = sum as Variable;
  }
  total.backward();
  const result = { log, gradients: gradients() };
  for (const leaf of leaves) leaf.zeroGrad();
  return result;
}

describe("a leaf with hooks", () => {
  it("is in memory in every forward and backward function, and its hooks get both runs and the order of the backward pass", () => {
    fc.assert(
      fc.property(programs, (program) => {
        using _ = new Scope();
        const { log, gradients } = run(program);
        const { transient, steps } = program;
        expect(gradients).toEqual(
          transient.map((_, i) => steps.filter(({ leaves }) => leaves.includes(i)).length || undefined),
        );

        // the transient leaves of each step, and whether the step keeps their handles
        const leavesOfStep = steps.map(({ leaves, keeps }) =>
          leaves.flatMap((leaf, i) => (transient[leaf] ? [{ leaf, retained: keeps[i] === true }] : [])),
        );
        const operationOf = (step: number, backward: boolean): Operation | undefined => {
          const index = log.findIndex(
            (entry) => entry.call === "body" && entry.step === step && entry.backward === backward,
          );
          const previousEntry = log[index - 1];
          return leavesOfStep[step]?.length && previousEntry?.call === "before"
            ? previousEntry.operation
            : undefined;
        };
        const expected: unknown[] = [];
        const passes = [...steps.keys()].map((step) => ({ step, backward: false }));
        for (const { step, backward } of [
          ...passes,
          ...passes.toReversed().map(({ step }) => ({ step, backward: true })),
        ]) {
          const operation = operationOf(step, backward);
          for (const { leaf, retained } of leavesOfStep[step] ?? [])
            expected.push({ call: "before", leaf, retained: backward && retained, operation });
          expected.push({ call: "body", step, backward });
          for (const { leaf } of leavesOfStep[step] ?? []) expected.push({ call: "after", leaf, operation });
        }
        const calls = log.filter(({ call }) => call !== "accumulate");
        expect(calls.length).toBe(expected.length);
        for (const [i, call] of calls.entries()) expect({ ...call }).toEqual({ ...(expected[i] as object) });

        let next: Operation | undefined;
        for (const [step, leaves] of leavesOfStep.entries()) {
          if (leaves.length === 0) continue;
          const [forward, backward] = [operationOf(step, false), operationOf(step, true)] as Operation[];
          expect(forward).not.toBe(backward);
          expect(forward?.leaves.map((leaf) => (leaf as TransientLeaf).number)).toEqual(
            leaves.map(({ leaf }) => leaf),
          );
          expect(backward?.leaves).toEqual(forward?.leaves);
          expect(forward?.forward).toBe(undefined);
          expect(backward?.forward).toBe(forward);
          expect(forward?.nextInBackward).toBe(next);
          expect(backward?.nextInBackward).toBe(undefined);
          next = forward;
        }

        // `beforeAccumulate` is called once, before the leaf has a gradient
        for (const [leaf, leafUses] of transient.entries()) {
          const calls = log.filter((entry) => entry.call === "accumulate" && entry.leaf === leaf);
          expect(calls.length).toBe(leafUses && steps.some(({ leaves }) => leaves.includes(leaf)) ? 1 : 0);
          for (const call of calls)
            if (call.call === "accumulate") expect(call.earlierUses[leaf]).toBe(undefined);
        }
      }),
      { numRuns: draws(60) },
    );
  });

  it("gets afterUse if a use fails, as do the leaves before it but none after it", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 4 }), fc.nat(4), (count, failingStep) => {
        using _ = new Scope();
        const log: string[] = [];
        const leaves = Array.from({ length: count }, (_, i) => {
          const leaf = new Variable(tensor(backend(), [1]), true);
          leaf[USE_HOOKS] = {
            beforeUse: () => {
              log.push(`before ${i}`);
              if (i === failingStep) throw new Error("no memory");
            },
            afterUse: () => {
              log.push(`after ${i}`);
              return false;
            },
            transientValue: () => leaf.value,
            beforeAccumulate: () => {},
          };
          return leaf;
        });
        // fails too, if no leaf has failed before
        const body = () => {
          log.push("body");
          throw new Error("no result");
        };
        expect(() => runOperation(leaves, { retained: new Set(), forward: undefined }, body)).toThrow(
          failingStep < count ? "no memory" : "no result",
        );
        const usedIndices = Array.from({ length: Math.min(count, failingStep + 1) }, (_, i) => i);
        expect(log).toEqual([
          ...usedIndices.map((i) => `before ${i}`),
          ...(failingStep < count ? [] : ["body"]),
          ...usedIndices.map((i) => `after ${i}`),
        ]);
      }),
    );
  });
});

it("a backward pass is current until it ends or fails, and a nested pass is another one", () => {
  using _ = new Scope();
  const x = new Variable(tensor(backend(), [1]), true);
  const runDuring = (during: () => void): Variable => {
    const [y] = differentiable([x], () => ({
      results: [add(x.tensor, x.tensor)],
      backward: () => {
        during();
        return [];
      },
    }));
    return y as Variable;
  };
  const objects: (object | undefined)[] = [];
  const inner = runDuring(() => objects.push(currentPass()));
  const outer = runDuring(() => {
    objects.push(currentPass());
    inner.backward();
    objects.push(currentPass());
    throw new Error("no gradient");
  });
  expect(currentPass()).toBe(undefined);
  expect(() => outer.backward()).toThrow("no gradient");
  expect(currentPass()).toBe(undefined);
  expect(objects.every((pass) => pass !== undefined)).toBe(true);
  expect([objects[0] === objects[1], objects[0] === objects[2]]).toEqual([false, true]);
});
