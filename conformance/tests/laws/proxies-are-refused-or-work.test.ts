/**
 * A transparent proxy of an object of the package, as user-interface frameworks create them, has none of its private fields: each
 * method and each property of every exported class works on the proxy, or throws a typed error with a remedy.
 */
import { describe, expect, it } from "vitest";
import {
  captureGraph,
  Inspector,
  Linear,
  LockstepError,
  openBackend,
  RandomState,
  Tensor,
  tensor,
} from "../../../src/index.js";
import { fromCodes, GuardedBackend } from "../../index.js";
import { inWorld } from "../harness/arguments/law.js";
import { outcomeOf } from "../harness/arguments/outcome.js";
import { ENTRIES, resolveTarget, rows, useBackends } from "../harness/arguments/package.js";
import type { World } from "../harness/arguments/world.js";

const backends = useBackends();

type MethodRow = (typeof rows)[number][2] & { readonly self: (world: World) => object };

const methods = rows.flatMap(([name, callable, { self, ...row }]) =>
  self ? [[name, callable, { ...row, self } satisfies MethodRow] as const] : [],
);

/** The prototypes of an object below that of plain objects. */
function* prototypesOf(value: object): Generator<object> {
  for (
    let level: object | null = Object.getPrototypeOf(value);
    level !== null && level !== Object.prototype;
    level = Object.getPrototypeOf(level)
  )
    yield level;
}

/** The engine's message for a receiver without private fields. */
const RAW = /private member|Receiver must be|class did not declare it/;

describe("over a transparent proxy of an object", () => {
  it("every method works with the arguments of a valid call, or throws a typed error", async () => {
    const faults: string[] = [];
    for (const [name, callable, row] of methods) {
      const self = (world: World): object => new Proxy(row.self(world), {});
      const target = resolveTarget(callable);
      const { fault } = await outcomeOf(target, { ...row, self }, 0, backends(), (args) => args);
      if (fault !== undefined && !fault.startsWith("it took")) faults.push(`${name}: ${fault}`);
    }
    expect(faults).toEqual([]);
  });

  it("every property is read, and every member called without arguments, or throws a typed error", async () => {
    const faults = new Set<string>();
    const visitedPrototypes = new Set<object>();
    const trials: Promise<void>[] = [];
    const tryMembers = (self: object): void => {
      for (const prototype of prototypesOf(self)) {
        if (visitedPrototypes.has(prototype)) continue;
        visitedPrototypes.add(prototype);
        const proxy = new Proxy(self, {});
        for (const key of Reflect.ownKeys(prototype)) {
          if (key === "constructor") continue;
          const title = `${prototype.constructor.name}.${String(key)}`;
          const note = (error: unknown): void => {
            if (!(error instanceof LockstepError) && RAW.test(String(error)))
              faults.add(`${title}: ${error}`);
          };
          try {
            const value: unknown = Reflect.get(proxy, key);
            if (typeof value !== "function") continue;
            const result: unknown = Reflect.apply(value, proxy, []);
            trials.push(Promise.resolve(result).then(() => undefined, note));
          } catch (error) {
            note(error);
          }
        }
      }
    };
    for (const [, , row] of methods) inWorld(backends(), (world) => tryMembers(row.self(world)));
    // classes whose methods take no arguments have no rows
    const backend = await openBackend("wasm", { threads: 1 });
    const graph = captureGraph(backend, () => 1);
    const layer = new Linear(backend, 16, 16);
    for (const self of [
      new RandomState(1n),
      graph,
      new Inspector(layer, []),
      fromCodes("u8", [1], Uint8Array.of(1)),
      new GuardedBackend(backend),
    ])
      tryMembers(self);
    await Promise.all(trials);
    layer.dispose();
    await backend.dispose();
    expect([...faults]).toEqual([]);
    const untriedFunctions = ENTRIES.flatMap(([, exported]) => Object.values<unknown>(exported)).filter(
      (value): value is typeof LockstepError =>
        typeof value === "function" &&
        /^class\b/.test(String(value)) &&
        !visitedPrototypes.has(value.prototype) &&
        !(value.prototype instanceof Error),
    );
    expect(untriedFunctions.map(({ name }) => name)).toEqual([]);
  });

  it("the error names the member and says what to do", () => {
    const x = tensor(backends().backend, [1, 2]);
    const proxy = new Proxy(x, {});
    expect(() => proxy.slice(0, [1])).toThrow(
      /^Tensor\.slice: .*proxy.*call it on the object itself \(toRaw\(\)/,
    );
    expect(() => proxy.dtype).toThrow(/^Tensor\.dtype: .*proxy.*toRaw/);
    expect(() => Object.create(x).size).toThrow(/^Tensor\.size: .*imitation of a Tensor/);
    expect(Tensor.prototype.slice.length).toBe(2);
    x.dispose();
  });

  it("an asynchronous method rejects", async () => {
    const x = tensor(backends().backend, [1]);
    await expect(new Proxy(x, {}).data()).rejects.toThrow(/^Tensor\.data: .*proxy/);
    x.dispose();
  });
});
