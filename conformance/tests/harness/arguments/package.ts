/** The callables of the published package with the rows that describe their calls, for laws over all of them. */
import { afterAll, beforeAll } from "vitest";
import * as checkpoints from "../../../../src/checkpoints/index.js";
import * as portable from "../../../../src/checkpoints/portable.js";
import * as processes from "../../../../src/collectives/processes/index.js";
import * as lockstep from "../../../../src/index.js";
import * as files from "../../../../src/io/index.js";
import * as models from "../../../../src/models/index.js";
import * as conformance from "../../../index.js";
import { GuardedBackend } from "../../../operations/guarded.js";
import { type Callable, type Declarations, readDeclarations } from "./declared.js";
import { completeRows } from "./derived.js";
import type { Target } from "./law.js";
import type { Row, Rows } from "./row.js";
import { checkpointRows } from "./rows-checkpoints.js";
import { CONFORMANCE_ROWS } from "./rows-conformance.js";
import { DISTRIBUTED_ROWS } from "./rows-distributed.js";
import { CheckpointFolder, fileRows } from "./rows-files.js";
import { modelRows } from "./rows-models.js";
import { MODULE_ROWS, RECIPE_ROWS } from "./rows-modules.js";
import { OPERATION_ROWS } from "./rows-ops.js";
import { OTHER_ROWS, TENSOR_ROWS } from "./rows-others.js";
import { QUANTIZER_ROWS } from "./rows-quantizers.js";
import { type Backends, openBackends } from "./world.js";

const checkpointFolder = new CheckpointFolder();

/** The declarations of each entry point of the package, and its exports. */
export const ENTRIES = [
  ["dist/src/index.d.ts", lockstep],
  ["dist/src/io/index.d.ts", files],
  ["dist/src/checkpoints/index.d.ts", checkpoints],
  ["dist/src/checkpoints/portable.d.ts", portable],
  ["dist/src/models/index.d.ts", models],
  ["dist/src/collectives/processes/index.d.ts", processes],
  ["dist/conformance/index.d.ts", conformance],
] as const;

export const declarations: Declarations = readDeclarations(...ENTRIES.map(([path]) => path));

export const ROWS: Rows = completeRows(declarations, {
  ...fileRows(checkpointFolder),
  ...checkpointRows(checkpointFolder),
  ...modelRows(checkpointFolder),
  ...OPERATION_ROWS,
  ...QUANTIZER_ROWS,
  ...MODULE_ROWS,
  ...RECIPE_ROWS,
  ...OTHER_ROWS,
  ...TENSOR_ROWS,
  ...CONFORMANCE_ROWS,
  ...DISTRIBUTED_ROWS,
});

export const callables = new Map(declarations.callables.map((callable) => [callable.name, callable]));

/** The exports that have parameters or a row. */
export const testedCallables = [...callables.values()].filter(
  ({ name, parameters }) => parameters.length > 0 || ROWS[name],
);

/** The callables that have a row, by name. */
export const rows: readonly (readonly [name: string, callable: Callable, row: Row])[] =
  testedCallables.flatMap((callable) => {
    const row = ROWS[callable.name];
    return row ? [[callable.name, callable, row] as const] : [];
  });

/** Opens guarded backends and fills the folder of checkpoints for the test file. */
export function useBackends(): () => Backends {
  let backends: Backends;
  beforeAll(async () => {
    backends = await openBackends((backend) => new GuardedBackend(backend));
    await checkpointFolder.fill(backends);
  });
  afterAll(async () => {
    await checkpointFolder.end();
    await backends.backend.dispose();
    await backends.otherBackend.dispose();
  });
  return () => backends;
}

/** Returns the function that calls an export, constructor or method. */
export function resolveTarget({ name }: Callable): Target {
  const [rootName = "", memberName] = name.split(".");
  const entry = ENTRIES.find(([, exports]) => rootName in exports)?.[1];
  const value: unknown = entry && Reflect.get(entry, rootName);
  if (memberName === undefined) {
    return (_self, args) =>
      isClass(value)
        ? Reflect.construct(value, args)
        : Reflect.apply(value as () => unknown, undefined, args);
  }
  if (typeof value !== "function")
    return (_self, args) => Reflect.apply(Reflect.get(value as object, memberName), undefined, args);
  return (self, args) => Reflect.apply(Reflect.get(self as object, memberName), self, args);
}

function isClass(value: unknown): value is new (...args: unknown[]) => object {
  return typeof value === "function" && /^class\b/.test(String(value));
}
