/** The recorded spans of a file equal a plain list of bytes, in whatever order spans are added. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { Spans } from "../../../../src/io/coverage/spans.js";
import { draws } from "../../harness/draws.js";

const SIZE = 16;

it("a span is added unless one of its bytes was added before", () => {
  const span = fc.tuple(fc.nat(SIZE), fc.nat(5)).map(([begin, length]) => [begin, begin + length] as const);
  fc.assert(
    fc.property(fc.array(span, { maxLength: 16 }), (addedSpans) => {
      const spans = new Spans();
      const bytes = new Set<number>();
      for (const [begin, end] of addedSpans) {
        const ownIndices = Array.from({ length: end - begin }, (_, i) => begin + i);
        const isNew = !ownIndices.some((byte) => bytes.has(byte));
        expect(spans.add(begin, end)).toBe(isNew);
        if (isNew) for (const byte of ownIndices) bytes.add(byte);
        expect(spans.size).toBe(bytes.size);
      }
    }),
    { numRuns: draws(2000) },
  );
});
