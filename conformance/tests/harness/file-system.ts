/** Replaces functions of `node:fs/promises` while the tests of a file run. */
import fsPromises from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { afterAll, beforeAll } from "vitest";

type FileSystem = typeof fsPromises;

/** Functions in place of those of the module, for the arguments that the tested code passes. */
type Replacements = { readonly [K in keyof FileSystem]?: (...args: never[]) => unknown };

/** Replaces the functions that `replace` returns. They may call those of the real module. */
export function useFileSystem(replace: (real: FileSystem) => Replacements): void {
  const real = { ...fsPromises };
  const set = (functions: object): void => {
    Object.assign(fsPromises, functions);
    syncBuiltinESMExports();
  };
  beforeAll(() => set(replace(real)));
  afterAll(() => set(real));
}
