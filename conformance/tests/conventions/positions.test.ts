/**
 * A function of assembly/ has at most five parameters. More arguments are fields of a task or of another `@unmanaged` class,
 * whose names a caller cannot exchange.
 */
import { expect, it } from "vitest";
import { type AssemblyFunction, assemblyFunctions } from "../harness/sources/assembly.js";

const LIMIT = 5;

const keyOf = ({ file, name }: AssemblyFunction): string => `${file} ${name}`;
const functionsAboveLimit = (functions: readonly AssemblyFunction[]): readonly string[] =>
  functions.filter(({ parameters }) => parameters.length > LIMIT).map(keyOf);

it(`no function of assembly/ has more than ${LIMIT} parameters`, () => {
  const functions = assemblyFunctions();
  expect(functions.length).toBeGreaterThan(500);
  expect(functionsAboveLimit(functions)).toEqual([]);
});
