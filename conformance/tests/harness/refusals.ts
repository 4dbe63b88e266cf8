/** Calls that have to be refused, as rows of a table. */
import { describe, expect, it } from "vitest";
import type { LockstepError } from "../../../src/errors.js";
import { Scope } from "../../../src/tensor/scope.js";

/** What is refused, the call, the class of the error, and words its message has. */
export type Refusal = readonly [
  what: string,
  call: () => unknown,
  error: new (...args: never[]) => LockstepError,
  words: readonly string[],
];

/** A test that each row's call throws, and, as after every test of a backend in use, leaves nothing behind. */
export function refusals(name: string, rows: readonly Refusal[]): void {
  describe(name, () => {
    it.each(rows)("%s", (_, call, error, words) => {
      using _scope = new Scope();
      const thrown = thrownBy(call);
      expect(thrown).toBeInstanceOf(error);
      for (const word of words) expect((thrown as Error).message).toContain(word);
    });
  });
}

function thrownBy(call: () => unknown): unknown {
  try {
    call();
  } catch (error) {
    return error;
  }
  return "nothing";
}

/** An option of a type that TypeScript would refuse as well. */
export const wrong = (value: unknown): never => value as never;
