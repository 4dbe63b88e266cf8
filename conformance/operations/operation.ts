/** The harness's description of one operation: its inputs, how a backend runs it, and its oracle. */
import type { Arbitrary } from "fast-check";
import type { Backend } from "../../src/backends/backend.js";
import type { PlainTensor } from "../values/plain.js";

/** The results of one run, by name. */
export type Answer = Readonly<Record<string, PlainTensor>>;

/** A row of the table in operations.ts. `C` is plain data with everything that affects the results. */
export interface Operation<C> {
  /** Inputs that likely mistakes get wrong. */
  readonly arbitrary: Arbitrary<C>;
  /** Runs the operation through the public interface. The caller's scope disposes of tensors that remain. */
  readonly run: (backend: Backend, input: C) => Answer;
  /** The result in exact arithmetic. */
  readonly oracle: (input: C) => Answer;
}
