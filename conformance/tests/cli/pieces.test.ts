/** A file of a million small tensors takes no more memory than the longest header that readers accept. */

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { planPieces } from "../../../src/cli/pieces.js";
import { FileError } from "../../../src/errors.js";
import type { TensorEntry, TensorPlan } from "../../../src/io/header/header.js";
import { encodeHeader, minHeaderBytes, planEntries } from "../../../src/io/header/header-write.js";
import { MAX_HEADER_BYTES } from "../../../src/io/limits.js";
import { TensorSource } from "../../../src/io/source.js";

/** A file of empty tensors whose entries are created one at a time. */
class ManyTensors extends TensorSource {
  constructor(count: number) {
    const entryOf = (i: number): TensorEntry => ({
      name: `t${i}`,
      dtype: "F32",
      shape: [0],
      begin: 0,
      end: 0,
    });
    const tensors = new Map<string, TensorEntry>();
    tensors.values = function* () {
      for (let i = 0; i < count; i++) yield entryOf(i);
    } as typeof tensors.values;
    super("many", { tensors, metadata: {} });
  }

  override async read(): Promise<Uint8Array> {
    return new Uint8Array();
  }
}

describe("the pieces of an output", () => {
  it.each([
    ["many tensors for each", Array.from({ length: 40 }, (_, i) => `${i}`.padStart(200, "x")), {}],
    ["long metadata for each", ["a"], { key: "x".repeat(20_000) }],
  ])("are planned until its header is too long: %s", async (_name, names, metadata) => {
    let numPlanned = 0;
    const outputs = names.map((name): TensorPlan => ({ name, dtype: "U8", shape: [0] }));
    const minBytes = minHeaderBytes(outputs, metadata);
    const plan = (entry: TensorEntry) => {
      numPlanned++;
      return { subject: entry.name, outputs, metadata, produce: async () => {} };
    };
    const error = await planPieces(new ManyTensors(1_000_000), "out", plan).catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(FileError);
    expect(String(error)).toContain("out: its header would have more than 100000000 bytes");
    expect(numPlanned).toBe(Math.floor(MAX_HEADER_BYTES / minBytes) + 1);
  });

  it("are counted with no more bytes than their header has", () => {
    const plans = fc.uniqueArray(
      fc.record({
        name: fc.string(),
        dtype: fc.constantFrom("U8", "F32"),
        shape: fc.array(fc.nat(9), { maxLength: 3 }),
      }),
      { selector: ({ name }) => name, maxLength: 5 },
    );
    fc.assert(
      fc.property(plans, fc.dictionary(fc.string(), fc.string()), (tensors, metadata) => {
        fc.pre(tensors.every(({ name }) => name !== "__metadata__"));
        const header = encodeHeader("out", planEntries("out", tensors as TensorPlan[]).values(), metadata);
        const minBytes = minHeaderBytes(tensors as TensorPlan[], metadata);
        // the 8 bytes of the header's length outweigh the comma that the last entry lacks
        expect(minBytes).toBeLessThanOrEqual(header.length);
        expect(minBytes).toBeGreaterThanOrEqual(48 * tensors.length);
      }),
      { examples: [[[{ name: "", dtype: "U8", shape: [] }], {}]] },
    );
  });
});
