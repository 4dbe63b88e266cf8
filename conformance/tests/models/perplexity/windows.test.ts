import * as fc from "fast-check";
import { expect, it } from "vitest";
import { windowsOf } from "../../../../src/models/perplexity/windows.js";
import { draws } from "../../harness/draws.js";

it("windows score each token once, from tokens of the window before it", () => {
  const sizes = fc.record({
    tokens: fc.integer({ min: 2, max: 60 }),
    context: fc.integer({ min: 2, max: 20 }),
    overlap: fc.integer({ min: 0, max: 19 }),
  });
  fc.assert(
    fc.property(sizes, ({ tokens, context, overlap }) => {
      const stride = Math.max(1, context - overlap);
      const scoredTokens: number[] = [];
      for (const { begin, first: firstScored, end } of windowsOf(tokens, context, stride)) {
        expect(begin % stride).toBe(0);
        expect(end).toBe(Math.min(tokens, begin + context));
        expect(firstScored).toBeGreaterThan(begin);
        for (let token = firstScored; token < end; token++) scoredTokens.push(token);
      }
      const allTokens = Array.from({ length: tokens }, (_, token) => token);
      const isScored = (token: number): boolean => token > 0 && (stride < context || token % stride !== 0);
      expect(scoredTokens).toEqual(allTokens.filter(isScored));
    }),
    { numRuns: draws(2000, 300) },
  );
});
