/** Tests that calls are refused, as rows of a table. */
import { describe, expect, it } from "vitest";
import type { LockstepError } from "../../../src/errors.js";
import { Scope } from "../../../src/tensor/scope.js";

/** The name of the case, the call, the class of the error, and words in its message. */
export type Refusal = readonly [
  what: string,
  call: () => unknown,
  error: new (...args: never[]) => LockstepError,
  words: readonly string[],
];

/** Tests that the call of each row throws and leaves no memory behind. */
export function refusals(name: string, rows: readonly Refusal[]): void {
  describe(name, () => {
    it.each(rows)("%s", (_, call, error, words) => {
      using _scope = new Scope();
      const thrownValue = catchError(call);
      expect(thrownValue).toBeInstanceOf(error);
      for (const word of words) expect((thrownValue as Error).message).toContain(word);
    });
  });
}

function catchError(call: () => unknown): unknown {
  try {
    call();
  } catch (error) {
    return error;
  }
  return "nothing";
}

/** Any value as an argument that TypeScript would refuse. */
export const untyped = (value: unknown): never => value as never;
