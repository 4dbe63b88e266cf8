/** Visible keys: `causal`, `align` and `window` hide the same keys as a mask of the same pairs, to the bit. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { attention, attentionBackward } from "../../../../src/ops/attention/attention.js";
import type { AttentionOptions } from "../../../../src/ops/attention/options.js";
import { tensor } from "../../../../src/ops/create.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { splitmix32 } from "../../../arbitraries/random.js";
import { derivedSeed, draws } from "../../harness/draws.js";
import { codesOfTensor } from "../../harness/noise.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend();

/** Values in steps of 1/32 between -2 and 2, [1, rows, heads, 8]. */
function values(seed: number, rows: number, heads: number): Tensor<"f32"> {
  const next = splitmix32(seed);
  const data = Float32Array.from({ length: rows * heads * 8 }, () => ((next() % 129) - 64) / 32);
  return tensor(backend(), data, [1, rows, heads, 8]);
}

const length = fc.constantFrom(1, 7, 16, 17, 40, 65);
const side = fc.constantFrom(-1, 0, 3, 15, 20, 33);
const cases = fc.record({
  queries: length,
  keys: length,
  causal: fc.boolean(),
  align: fc.constantFrom("start" as const, "end" as const),
  window: fc.tuple(side, side),
  isDropped: fc.boolean(),
  plan: fc.constantFrom({ blockKeys: 16, splitKeys: 0 }, { blockKeys: 128, splitKeys: 0 }),
});
type Case = typeof cases extends fc.Arbitrary<infer C> ? C : never;

/** The mask of the pairs that the definition hides (numerics.md §10.1), [1, 1, queries, keys]. */
function maskOf({ queries, keys, causal, align, window: [left, right] }: Case): Tensor<"u8"> {
  const hidden = Uint8Array.from({ length: queries * keys }, (_, at) => {
    const t = Math.floor(at / keys) + (align === "end" ? keys - queries : 0);
    const j = at % keys;
    return Number((causal && j > t) || (left >= 0 && j < t - left) || (right >= 0 && j > t + right));
  });
  return tensor(backend(), hidden, [1, 1, queries, keys], "u8");
}

it("causal, align and window hide what a mask hides, in results and gradients", () => {
  const property = fc.property(cases, fc.nat(), (drawn, seed) => {
    using _ = new Scope();
    const { queries, keys, causal, align, window, isDropped, plan } = drawn;
    const [q, k, v] = [values(seed, queries, 2), values(seed + 1, keys, 1), values(seed + 2, keys, 1)];
    const grad = values(seed + 3, queries, 2);
    const shared = { plan, align, dropout: isDropped ? { probability: 0.3, seed: 3n } : undefined };
    const run = (options: AttentionOptions): readonly number[][] => {
      const { out, lse } = attention(q, k, v, options);
      const { dq, dk, dv } = attentionBackward(grad, q, k, v, out, lse, options);
      return [out, lse, dq, dk, dv].map(codesOfTensor);
    };
    const expected = run({ ...shared, mask: maskOf(drawn) });
    expect(run({ ...shared, causal, window })).toEqual(expected);
  });
  // the last query of a tile is past the window of the only key, and the first one is not
  const windowed: Case = {
    ...{ queries: 65, keys: 1, causal: false, align: "start", window: [15, -1], isDropped: false },
    plan: { blockKeys: 16, splitKeys: 0 },
  };
  fc.assert(property, { numRuns: draws(200, 5), seed: derivedSeed(91), examples: [[windowed, 0]] });
});
