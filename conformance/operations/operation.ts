/** The harness's description of one operation: its inputs, how a backend runs it, and its oracle. */
import type { Arbitrary } from "fast-check";
import type { Backend } from "../../src/backends/backend.js";
import type { OpArgs, OpName } from "../../src/backends/ops.js";
import type { WideDType } from "../../src/tensor/shape.js";
import type { Tensor } from "../../src/tensor/tensor.js";
import type { PlainTensor } from "../values/plain.js";

/** The results of one run, by name. */
export type Answer = Readonly<Record<string, PlainTensor>>;

/** A tensor as plain data; other arguments are themselves. */
type Plain<T> = T extends Tensor<infer D> ? PlainTensor<D> : T;

/**
 * The inputs of an operation as plain data: its arguments, which src/backends/ops describes, without its outputs.
 */
export type PlainInputs<K extends OpName, Outputs extends keyof OpArgs[K] = "out" & keyof OpArgs[K]> = {
  readonly [N in keyof Omit<OpArgs[K], Outputs>]: Plain<Omit<OpArgs[K], Outputs>[N]>;
};

/** The inputs of an operation whose caller chooses the type of its result. */
export type TypedInputs<
  K extends OpName,
  Outputs extends keyof OpArgs[K] = "out" & keyof OpArgs[K],
> = PlainInputs<K, Outputs> & { readonly outDtype: WideDType };

/** A row of the table in operations.ts. `C` is plain data with everything that affects the results. */
export interface Operation<C> {
  /** Inputs that likely mistakes get wrong. */
  readonly arbitrary: Arbitrary<C>;
  /** Runs the operation through the public interface. The caller's scope disposes of tensors that remain. */
  readonly run: (backend: Backend, input: C) => Answer;
  /** The result in exact arithmetic. */
  readonly oracle: (input: C) => Answer;
}
