/**
 * The sizes that a lowering declares equal the number of elements of the operation's tensors, for drawn inputs. Bindings of the
 * addon check addresses by these sizes.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { OpArgs, OpName } from "../../../src/backends/ops.js";
import { TENSORS } from "../../../src/backends/tensors.gen.js";
import type { DeclaredLowering } from "../../../src/backends/tensors.js";
import { Scope } from "../../../src/tensor/scope.js";
import { asMatrix } from "../../../src/tensor/shape.js";
import { Tensor } from "../../../src/tensor/tensor.js";
import { OPERATIONS, type OperationName } from "../../operations/operations.js";
import { PassingBackend } from "../../operations/passing.js";
import { derivedSeed, draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

type Values = Readonly<Record<string, unknown>>;
type Takes = DeclaredLowering<object>["takes"];

const LOWERINGS = Object.entries(TENSORS).flatMap(([name, { lowering }]) =>
  lowering ? [[name as OpName & OperationName, lowering.takes as Takes] as const] : [],
);

/** The value of a call's argument that is not a tensor: a size of a tensor, or an argument of the operation. */
function numberOf(args: Values, name: string, sizeName: string): number {
  const [tensor = "", part] = sizeName.split(".");
  if (part === undefined) return args[name] as number;
  const { shape, size } = args[tensor] as Tensor;
  const [rows, columns] = asMatrix(shape);
  return { rows, columns, size }[part] as number;
}

/** The tensors whose number of elements differs from the declared one, as strings. */
function wrongSizes(args: Values, declaredSizes: Takes): string[] {
  const numbers = new Map(
    Object.entries(declaredSizes).flatMap(([name, size]) =>
      typeof size === "string" ? [[name, numberOf(args, name, size)] as const] : [],
    ),
  );
  return Object.entries(declaredSizes).flatMap(([key, size]) => {
    const tensor = args[key.replace(/\?$/, "")];
    if (typeof size === "string" || !(tensor instanceof Tensor)) return [];
    const factors = size[1].split(" * ").map((factor) => numbers.get(factor) ?? Number(factor));
    const declaredSize = factors.reduce((a, b) => a * b, 1);
    return declaredSize === tensor.size
      ? []
      : [`${key} has ${tensor.size} elements, not ${size[1]} = ${declaredSize}`];
  });
}

/** The declaration with one size replaced by another in the size of one tensor. */
function misstatedSizes(declaredSizes: Takes): Takes[] {
  const sizes = Object.keys(declaredSizes).filter((name) => String(declaredSizes[name]).includes("."));
  return Object.entries(declaredSizes).flatMap(([key, size]) => {
    if (typeof size === "string") return [];
    const [element, elements] = size;
    const [firstSize = ""] = elements.split(" * ");
    const otherSizes = sizes.filter((size) => size !== firstSize);
    return otherSizes.map((size) => ({
      ...declaredSizes,
      [key]: [element, elements.replace(firstSize, size)] as const,
    }));
  });
}

/** Records the arguments of an operation. */
class RecordingArguments extends PassingBackend {
  readonly argumentsByOperation = new Map<OpName, Values[]>();

  override run<K extends OpName>(op: K, args: OpArgs[K]): void {
    this.argumentsByOperation.set(op, [
      ...(this.argumentsByOperation.get(op) ?? []),
      args as unknown as Values,
    ]);
    expect(wrongSizes(args as unknown as Values, (TENSORS[op].lowering?.takes ?? {}) as Takes)).toEqual([]);
    super.run(op, args);
  }
}

describe("a declared lowering", () => {
  const backend = useBackend();

  it.each(LOWERINGS)("%s has the sizes of its tensors", (name, declaredSizes) => {
    const recorder = new RecordingArguments(backend());
    const { arbitrary, run } = OPERATIONS[name];
    for (const input of fc.sample(arbitrary as fc.Arbitrary<never>, {
      numRuns: draws(80),
      seed: derivedSeed(5),
    })) {
      using _scope = new Scope();
      run(recorder, input);
    }
    const calls = recorder.argumentsByOperation.get(name) ?? [];
    for (const misstated of misstatedSizes(declaredSizes))
      expect(calls.some((args) => wrongSizes(args, misstated).length > 0)).toBe(true);
  });
});
