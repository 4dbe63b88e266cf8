/** Which prepared products a device keeps: of those it was asked for, the ones asked for last. */
import * as fc from "fast-check";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { MOST_ROUTES, routeOf } from "../../../src/backends/cuda/gemm/route.js";
import type { GemmArgs } from "../../../src/backends/gemm-args.js";
import { openBackend } from "../../../src/backends/open.js";
import { algorithmNumbered, FakeGpu, gemmArgs } from "../harness/addon/fake-gpu.js";

/** More products than are kept. */
const PRODUCTS = MOST_ROUTES + 40;

let backend: Backend;
let products: readonly GemmArgs[];
beforeAll(async () => {
  backend = await openBackend("wasm");
  // two products of each size, which differ in a factor: they share a place
  products = Array.from({ length: PRODUCTS }, (_, i) =>
    gemmArgs(backend, "bf16", [8 * (1 + (i >> 1)), 16, 16], { alpha: i % 2 === 0 ? 1 : 0.5 }),
  );
});
afterAll(async () => {
  await backend.dispose();
});

/** Numbers of products in the order they are asked for: most are asked for anew at once, some again much later. */
const asked = fc.array(
  fc.oneof(
    fc.integer({ min: 0, max: PRODUCTS - 1 }),
    fc.integer({ min: 0, max: 7 }),
    fc.integer({ min: PRODUCTS - 60, max: PRODUCTS - 1 }),
  ),
  { minLength: 200, maxLength: 600 },
);

it("forgets the product that was not asked for longest, and no other", () => {
  fc.assert(
    fc.property(asked, (sequence) => {
      const gpu = new FakeGpu([algorithmNumbered(66)]);
      const kept = new Map<number, number>();
      const forgotten: number[] = [];
      let plans = 0;
      const fill = Array.from({ length: MOST_ROUTES }, (_, i) => i);
      for (const i of [...fill, ...sequence]) {
        const plan = kept.get(i) ?? ++plans;
        if (!kept.has(i) && kept.size === MOST_ROUTES) {
          const [oldest = -1] = kept.keys();
          forgotten.push(kept.get(oldest) ?? -1);
          kept.delete(oldest);
        }
        kept.delete(i);
        kept.set(i, plan);
        const route = routeOf(gpu.context, { ...(products[i] as GemmArgs) });
        expect(route.kind === "blas" && route.steps.map((step) => step.plan)).toEqual([plan]);
      }
      expect(gpu.named("gemmPlan")).toHaveLength(plans);
      expect(gpu.named("gemmForget").map(({ plan }) => plan)).toEqual(forgotten);
    }),
    { numRuns: 4, seed: 1, endOnFailure: true },
  );
});
