/** Each layer uses the angles of its own rotary embedding, also if other layers use other angles and read them first. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { RotaryConfig } from "../../../../src/models/config/config.js";
import { RotaryTables } from "../../../../src/models/layers/rotary-tables.js";
import type { RotaryScaling } from "../../../../src/modules/rotary/inverse-frequencies.js";
import { RotaryPositionEmbedding } from "../../../../src/modules/rotary-position-embedding.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { product } from "../../../arbitraries/covering.js";
import { draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1 });

const SCALINGS: readonly (RotaryScaling | undefined)[] = [
  undefined,
  { kind: "linear", factor: 2 },
  { kind: "linear", factor: 4 },
  {
    ...{ kind: "llama3", factor: 8, lowFreqFactor: 1, highFreqFactor: 4 },
    originalMaxPositionEmbeddings: 64,
  },
];

/** Every two of them differ in at least one field, some in exactly one. */
const CONFIGS: readonly RotaryConfig[] = product({
  dim: [4, 8],
  base: [10000, 500],
  scaling: SCALINGS,
  interleaved: [undefined, true],
} as const);

describe("tables of angles", () => {
  it("have the angles of each layer's embedding", () => {
    const call = fc.tuple(fc.constantFrom(...CONFIGS), fc.constantFrom(1, 3, 256, 257, 600));
    fc.assert(
      fc.property(fc.array(call, { minLength: 2, maxLength: 6 }), (calls) => {
        using _ = new Scope();
        const tables = new RotaryTables(backend());
        for (const [config, positions] of calls) {
          const { cos, sin, interleaved } = tables.angles(config, positions);
          const { dim, base, scaling } = config;
          const options = { rotaryBase: base, scaling, interleaved: config.interleaved };
          const expected = new RotaryPositionEmbedding(backend(), dim, options).forward(positions);
          const count = positions * (dim / 2);
          expect(interleaved).toBe(config.interleaved ?? false);
          for (const [actual, rule] of [
            [cos, expected.cos],
            [sin, expected.sin],
          ] as const)
            expect(actual.dataSync().slice(0, count)).toEqual(rule.dataSync().slice(0, count));
        }
        tables.dispose();
      }),
      { numRuns: draws(60) },
    );
  });
});
