/** What the harness knows of one operation: inputs to try, how a backend runs it, and what the oracle says. */
import type { Arbitrary } from "fast-check";
import type { Backend } from "../../src/backends/backend.js";
import type { PlainTensor } from "../values/plain.js";

/** The results of one run, by name. */
export type Answer = Readonly<Record<string, PlainTensor>>;

/** A row of the table in operations.ts. `C` is plain data that holds everything the results depend on. */
export interface Operation<C> {
  /** Inputs aimed at where implementations go wrong. */
  readonly arbitrary: Arbitrary<C>;
  /** Runs it through the public interface; whatever is left undisposed belongs to the caller's scope. */
  readonly run: (backend: Backend, input: C) => Answer;
  /** The answer in exact arithmetic. */
  readonly oracle: (input: C) => Answer;
}
