/**
 * For any argument, a call returns or is refused with a typed error and a short message, in bounded time, and writes nothing
 * outside tensors. An object that changes between reads is read once: the call treats it like a plain one. `RUNS` and `SEED`
 * choose the draws.
 */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  ArgumentError,
  DTypeError,
  empty,
  explainGemm,
  gradNorm,
  LayerNorm,
  OutOfMemoryError,
  openBackend,
  Scope,
  scaled,
  sgd,
  Tensor,
  tensor,
  zeros,
} from "../../../src/index.js";
import { words } from "../../arbitraries/random.js";
import { costumesOf, disguiseArgument, LATER_VALUES } from "../harness/arguments/disguises.js";
import { inWorld } from "../harness/arguments/law.js";
import { type Outcome, outcomeOf } from "../harness/arguments/outcome.js";
import { resolveTarget, rows, useBackends } from "../harness/arguments/package.js";
import type { Row } from "../harness/arguments/row.js";
import { INVALID_VALUES, isFunction, pathsOf, replaceAt } from "../harness/arguments/wrong.js";
import { drawsOr, SEED } from "../harness/draws.js";

const backends = useBackends();
const fastRows = rows.filter(([, , { isSlow }]) => !isSlow);

/** The arguments of a valid call. */
function argsOf(row: Row, call: number): readonly unknown[] {
  return inWorld(backends(), (world) => {
    row.self?.(world);
    return (row.calls[call] as Row["calls"][0])(world);
  });
}

/**
 * A callable and one of its valid calls, as indices: a counterexample with the objects would print the declarations of all types.
 */
const calls = fc.record({ callable: fc.nat(fastRows.length - 1), call: fc.nat(9) });

function chooseCall({ callable: n, call: k }: { readonly callable: number; readonly call: number }) {
  const [name, callable, row] = fastRows[n] as (typeof fastRows)[number];
  return { name, callable, row, call: k % row.calls.length };
}

describe("hostile arguments", () => {
  it("that answer otherwise each time are read once, and imitations of the library's objects are refused", async () => {
    const plainOutcomes = new Map<string, Outcome>();
    const choices = fc.record({ target: calls, costume: fc.nat(), later: fc.nat() });
    await fc.assert(
      fc.asyncProperty(choices, async ({ target, costume: n, later }) => {
        const { name, callable, row, call } = chooseCall(target);
        const costumes = costumesOf(argsOf(row, call));
        const costume = costumes[n % Math.max(1, costumes.length)];
        if (!costume) return;
        const key = `${name} ${call}`;
        const expected =
          plainOutcomes.get(key) ??
          (await outcomeOf(resolveTarget(callable), row, call, backends(), (args) => args));
        plainOutcomes.set(key, expected);
        let valueIndex = later;
        const nextValue = (): unknown => LATER_VALUES[valueIndex++ % LATER_VALUES.length];
        const outcome = await outcomeOf(resolveTarget(callable), row, call, backends(), (args) =>
          disguiseArgument(args, costume, nextValue),
        );
        const title = `${key}: ${costume.path.join(".")} as ${costume.kind}`;
        expect(outcome.fault && `${title}: ${outcome.fault}`).toBeUndefined();
        if (outcome.result !== undefined && costume.isFaithful && expected.result !== undefined)
          expect(`${title} ${outcome.result}`).toBe(`${title} ${expected.result}`);
      }),
      { numRuns: drawsOr(1500), seed: SEED },
    );
  });

  it("of any kind are refused by typed errors with short messages, at once", async () => {
    const choices = fc.record({
      target: calls,
      spot: fc.nat(),
      value: fc.constantFrom(...Object.keys(INVALID_VALUES)),
    });
    await fc.assert(
      fc.asyncProperty(choices, async ({ target, spot: n, value }) => {
        const { name, callable, row, call } = chooseCall(target);
        const spots = pathsOf(argsOf(row, call));
        const spotIndex = spots[n % Math.max(1, spots.length)];
        // a caller's function may throw anything
        if (!spotIndex || (isFunction(argsOf(row, call), spotIndex) && /class|function/.test(value))) return;
        const outcome = await outcomeOf(resolveTarget(callable), row, call, backends(), (args) =>
          replaceAt(args, spotIndex, (INVALID_VALUES[value] as () => unknown)()),
        );
        expect(
          outcome.fault && `${name} ${call}: ${spotIndex.join(".")} is ${value}: ${outcome.fault}`,
        ).toBeUndefined();
      }),
      { numRuns: drawsOr(1500), seed: SEED },
    );
  });
});

/** An object whose accessors return each value once, and `later` from then on. */
function readOnce<T extends object>(value: T, later: unknown): T {
  let reads = 0;
  return Object.defineProperties(
    {} as T,
    Object.fromEntries(
      Object.entries(value).map(([key, firstValue]) => [
        key,
        { enumerable: true, get: () => (reads++ < Object.keys(value).length ? firstValue : later) },
      ]),
    ),
  );
}

describe("objects that were read twice", () => {
  it("sgd steps by the tensors that it has checked", () => {
    using _scope = new Scope();
    const { backend } = backends();
    const [x, grad, largeTensor] = [
      tensor(backend, [1, 2]),
      tensor(backend, [1, 1]),
      zeros(backend, "f32", [4096]),
    ];
    sgd(readOnce({ parameter: x, grad }, largeTensor), readOnce({ learningRate: 0.5 }, "x"));
    expect([...x.dataSync()]).toEqual([0.5, 1.5]);
  });

  it("a frozen shape has the sizes that were checked", () => {
    using _scope = new Scope();
    let reads = 0;
    const shape = Object.freeze(Object.defineProperty([2, 2], 0, { get: () => (reads++ > 0 ? 2 ** 20 : 2) }));
    expect(empty(backends().backend, "f32", shape).byteLength).toBe(16);
  });

  it("a typed array has the length that its memory has", () => {
    using _scope = new Scope();
    class Long extends Float32Array {
      override get length(): number {
        return 2 ** 20;
      }
      override get byteLength(): number {
        return 2 ** 22;
      }
    }
    const x = zeros(backends().backend, "f32", [4]);
    expect([...x.write(Long.of(1, 2, 3, 4)).dataSync()]).toEqual([1, 2, 3, 4]);
  });

  it.each([
    ["a proxy", (x: Tensor) => new Proxy(x, {})],
    ["an object with its prototype", () => Object.create(Tensor.prototype) as Tensor],
    [
      "an heir with other properties",
      (x: Tensor) => Object.create(x, { shape: { value: [4096] } }) as Tensor,
    ],
  ])("%s of a tensor is refused with what to do", (_, lookalike) => {
    using _scope = new Scope();
    const x = lookalike(zeros(backends().backend, "f32", [4]));
    expect(() => scaled(x, 2)).toThrow(/give the object itself/);
    expect(() => scaled(x, 2)).toThrow(DTypeError);
  });

  it("what a tensor says of its memory cannot be changed", () => {
    using _scope = new Scope();
    const { backend } = backends();
    const x = zeros(backend, "f32", [4]);
    expect(() => Object.defineProperty(x, "shape", { value: [4096] })).toThrow(TypeError);
    class Larger extends Tensor {}
    expect(() => new Larger(backend, "f32", [4])).toThrow(ArgumentError);
    const place: unknown[] = [backend, "f32", [2 ** 20], { address: 0, memory: backend.memory }, 0];
    using lookalike = Reflect.construct(Tensor, place) as Tensor;
    expect(lookalike.address).not.toBe(0);
  });

  it("the memory of a backend is only what was allocated there, and run takes only what was checked", async () => {
    const backend = await openBackend("wasm", { threads: 1 });
    const { memory } = backend;
    using x = zeros(backend, "f32", [4]);
    for (const access of [
      () => memory.write(x.address, new Uint8Array(4)),
      () => memory.readSync(0, 2 ** 30),
      () => memory.copy(x.address, 1024, 8),
      () => memory.free(x.address),
      () => backend.run("amax", { x, out: x }),
    ])
      expect(access).toThrow(ArgumentError);
    x.dispose();
    await backend.dispose();
  });

  it("sizes beyond all memory are refused at once", () => {
    const { backend } = backends();
    expect(() => new LayerNorm(backend, 2 ** 34)).toThrow(OutOfMemoryError);
    expect(() => words(1, 2 ** 40)).toThrow(ArgumentError);
    expect(() => gradNorm(new Array(2 ** 27), { maxNorm: 1 })).toThrow(ArgumentError);
    const indices = new Array(2 ** 27);
    expect(() => explainAt(indices)).toThrow(/134217728 indices/);
  });
});

/** Explains an element of a product by its indices. */
function explainAt(at: number[]): unknown {
  using _scope = new Scope();
  const x = zeros(backends().backend, "bf16", [4, 4]);
  return explainGemm({ x, w: x, at });
}
