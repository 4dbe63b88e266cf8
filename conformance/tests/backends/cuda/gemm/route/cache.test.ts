/**
 * The cache of prepared products of a device. It keeps the most recently used products, and a prepared product is used only for
 * the arguments that it was prepared for.
 */
import * as fc from "fast-check";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Backend } from "../../../../../../src/backends/backend.js";
import { MAX_ROUTES, routeOf } from "../../../../../../src/backends/cuda/gemm/route.js";
import { openBackend } from "../../../../../../src/backends/open.js";
import type { GemmArgs } from "../../../../../../src/backends/ops/gemm.js";
import { zeros } from "../../../../../../src/ops/create.js";
import { Scope } from "../../../../../../src/tensor/scope.js";
import type { WideDType } from "../../../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../../../src/tensor/tensor.js";
import { FakeGpu, fakeAlgorithm, gemmArgs } from "../../../../harness/addon/fake-gpu.js";
import { derivedSeed, draws, SEED } from "../../../../harness/draws.js";

/** The number of products: more than the cache holds. */
const PRODUCTS = MAX_ROUTES + 40;

let backend: Backend;
let products: readonly GemmArgs[];
beforeAll(async () => {
  backend = await openBackend("wasm");
  // two products of each size, which differ only in a factor, so they have the same hash
  products = Array.from({ length: PRODUCTS }, (_, i) =>
    gemmArgs(backend, "bf16", [8 * (1 + (i >> 1)), 16, 16], { alpha: i % 2 === 0 ? 1 : 0.5 }),
  );
});
afterAll(async () => {
  await backend.dispose();
});

/** A sequence of products by index. Most are repeated at once, and some much later. */
const drawnRequests = fc.array(
  fc.oneof(
    fc.integer({ min: 0, max: PRODUCTS - 1 }),
    fc.integer({ min: 0, max: 7 }),
    fc.integer({ min: PRODUCTS - 60, max: PRODUCTS - 1 }),
  ),
  { minLength: 200, maxLength: 600 },
);

it("the cache drops the least recently requested product, and no other", () => {
  fc.assert(
    fc.property(drawnRequests, (sequence) => {
      const gpu = new FakeGpu([fakeAlgorithm(66)]);
      const kept = new Map<number, number>();
      const forgotten: number[] = [];
      let plans = 0;
      const fill = Array.from({ length: MAX_ROUTES }, (_, i) => i);
      for (const i of [...fill, ...sequence]) {
        const plan = kept.get(i) ?? ++plans;
        if (!kept.has(i) && kept.size === MAX_ROUTES) {
          const [oldest = -1] = kept.keys();
          forgotten.push(kept.get(oldest) ?? -1);
          kept.delete(oldest);
        }
        kept.delete(i);
        kept.set(i, plan);
        const route = routeOf(gpu.context, { ...(products[i] as GemmArgs) });
        expect(route.kind === "blas" && route.products.map((product) => product.plan)).toEqual([plan]);
      }
      expect(gpu.callsOf("gemmPlan")).toHaveLength(plans);
      expect(gpu.callsOf("gemmForget").map(({ plan }) => plan)).toEqual(forgotten);
    }),
    { numRuns: draws(4), seed: derivedSeed(1), endOnFailure: true },
  );
});

/** Mostly the first value, so that most products run by cuBLASLt; sometimes one of the others. */
const mostlyFirst = <const T extends readonly unknown[]>(...values: T): fc.Arbitrary<T[number]> =>
  fc.oneof({ weight: 5, arbitrary: fc.constant(values[0]) }, fc.constantFrom(...values));

/** The properties of a product that decide its route. Each has few values, so that products share many of them. */
const FIELDS = {
  rows: fc.constantFrom(16, 32),
  columns: fc.constantFrom(16, 32),
  depth: fc.constantFrom(128, 256),
  batch: mostlyFirst(undefined, 2, 3),
  xFormat: fc.constantFrom("bf16", "bf16", "e4m3", "e4m3", "f16", "e5m2"),
  wFormat: fc.constantFrom("bf16", "bf16", "e4m3", "e4m3", "f16", "e5m2"),
  xTransposed: fc.boolean(),
  wTransposed: fc.boolean(),
  xScaled: fc.boolean(),
  wScaled: fc.boolean(),
  xAmax: mostlyFirst(false, true),
  wAmax: mostlyFirst(false, true),
  xBlocks: mostlyFirst(undefined, 1, 128),
  wBlocks: mostlyFirst(undefined, 1, 128),
  datapath: mostlyFirst("hopper", "fp32"),
  splitAccumulator: fc.boolean(),
  splitK: mostlyFirst<[1, 2, "auto"]>(1, 2, "auto"),
  alpha: fc.constantFrom(1, 0.5, 0, -1),
  beta: fc.constantFrom(0, 1, 0.5),
  added: fc.constantFrom(undefined, "f32", "bf16"),
  inPlace: fc.boolean(),
  bias: mostlyFirst(undefined, "f32", "bf16", "f16"),
  preGelu: mostlyFirst(undefined, "f32", "bf16"),
  out: fc.constantFrom("f32", "bf16", "f16", "e4m3"),
} as const;
type Fields = { [K in keyof typeof FIELDS]: (typeof FIELDS)[K] extends fc.Arbitrary<infer V> ? V : never };

const someFields: fc.Arbitrary<Fields> = fc.record(FIELDS) as fc.Arbitrary<Fields>;

/** Pairs of products that differ in one or two properties. */
const neighbours = fc
  .tuple(
    someFields,
    someFields,
    fc.uniqueArray(fc.constantFrom(...Object.keys(FIELDS)), { minLength: 1, maxLength: 2 }),
  )
  .map(([gemmCase, otherCase, names]) => {
    const changes = Object.fromEntries(Object.entries(otherCase).filter(([name]) => names.includes(name)));
    return [gemmCase, { ...gemmCase, ...changes } as Fields] as const;
  });

function argsOf(fields: Fields): GemmArgs {
  const { rows, columns, depth, batch, out, bias, preGelu, added: addend, inPlace } = fields;
  const items = batch === undefined ? [] : [batch];
  const operand = (side: "x" | "w", lines: number) => {
    const [format, blocks] = [fields[`${side}Format`], fields[`${side}Blocks`]];
    const isTransposed = fields[`${side}Transposed`];
    const scales = { format: "f32", lines: blocks ?? 1, length: 128, pow2: false } as const;
    return {
      data: zeros(backend, format, [...items, ...(isTransposed ? [depth, lines] : [lines, depth])]),
      transposed: isTransposed,
      traits: blocks === undefined ? { format } : { format, scales },
      ...(fields[`${side}Amax`] ? { amax: zeros(backend, "f32", [1]) } : {}),
      ...(fields[`${side}Scaled`] ? { tensorScale: zeros(backend, "f32", [1]) } : {}),
    };
  };
  const operands = { x: operand("x", rows), w: operand("w", columns) };
  const { datapath, splitAccumulator, splitK, alpha, beta } = fields;
  const choices = { datapath, splitAccumulator, splitK, alpha, beta, operands, out };
  const args = gemmArgs(backend, "bf16", [rows, columns, depth], {
    ...choices,
    ...(batch === undefined ? {} : { batch }),
    ...(bias ? { bias } : {}),
    ...(preGelu ? { preGelu } : {}),
    ...(addend ? { c: addend } : {}),
  });
  return inPlace && addend && addend === out ? { ...args, c: args.out as Tensor<WideDType> } : args;
}

/** A route, with the arguments of each plan in place of the plan's number. */
function selectionOf(gpu: FakeGpu, args: GemmArgs): unknown {
  const route = routeOf(gpu.context, args);
  if (route.kind !== "blas") return route;
  const preparedCalls = gpu.callsOf("gemmPlan");
  return {
    ...route,
    products: route.products.map((product) => ({ ...product, plan: preparedCalls[product.plan - 1] })),
  };
}

it("the cache gives no product the calls of another that differs in one option", () => {
  let [blas, refusalCount] = [0, 0];
  fc.assert(
    fc.property(neighbours, ([neighbor, nextNeighbor]) => {
      using _ = new Scope();
      const proposals = [fakeAlgorithm(66), fakeAlgorithm(66, { splitK: 2, scheme: 2 })];
      const [warm, newGpu] = [new FakeGpu(proposals), new FakeGpu(proposals)];
      const args = argsOf(nextNeighbor);
      routeOf(warm.context, argsOf(neighbor));
      const { kind } = routeOf(newGpu.context, args);
      blas += Number(kind === "blas");
      refusalCount += Number(kind === "refused");
      expect(selectionOf(warm, args)).toEqual(selectionOf(newGpu, args));
    }),
    { numRuns: draws(6000), seed: SEED },
  );
  // both kinds of route are frequent, so that many pairs of neighbours have one of each kind
  expect(Math.min(blas, refusalCount)).toBeGreaterThan(draws(6000) / 12);
});
