/** Packed weights of GPTQ and AWQ are named by the shapes of their tensors, each once. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { type FileDType, fileBytes } from "../../../../src/io/dtypes.js";
import { draws } from "../../harness/draws.js";
import { reportOfContents, type StoredTensor } from "../files/checkpoints.js";
import { contentsOf } from "../files/drawn-files.js";

/** A linear layer [N, K] with groups of K, and the number of bits of its codes. */
interface Layer {
  readonly n: number;
  readonly k: number;
  readonly groups: number;
  readonly bits: number;
}

type Shapes = Readonly<Record<string, readonly [FileDType, readonly number[]]>>;

/** The tensors that each library writes. */
const LAYOUTS: Readonly<Record<string, (layer: Layer) => Shapes>> = {
  GPTQ: ({ n, k, groups, bits }) => ({
    qweight: ["I32", [(k * bits) / 32, n]],
    qzeros: ["I32", [groups, (n * bits) / 32]],
    scales: ["F16", [groups, n]],
    g_idx: ["I32", [k]],
  }),
  "GPTQ without an order": ({ n, k, groups, bits }) => ({
    qweight: ["I32", [(k * bits) / 32, n]],
    qzeros: ["I32", [groups, (n * bits) / 32]],
    scales: ["BF16", [groups, n]],
  }),
  "GPTQ without zeros": ({ n, k, groups, bits }) => ({
    qweight: ["I32", [(k * bits) / 32, n]],
    scales: ["F16", [groups, n]],
  }),
  AWQ: ({ n, k, groups }) => ({
    qweight: ["I32", [k, n / 8]],
    qzeros: ["I32", [groups, n / 8]],
    scales: ["F16", [groups, n]],
  }),
  "AWQ, for GEMV": ({ n, k, groups }) => ({
    qweight: ["I32", [n, k / 8]],
    qzeros: ["I32", [n, Math.ceil(groups / 8)]],
    scales: ["F16", [n, 8 * Math.ceil(groups / 8)]],
  }),
};

const layers: fc.Arbitrary<Layer> = fc.record({
  n: fc.integer({ min: 1, max: 6 }).map((groups) => 32 * groups),
  k: fc.integer({ min: 1, max: 6 }).map((blocks) => 128 * blocks),
  groups: fc.constantFrom(1, 2, 4),
  bits: fc.constantFrom(2, 3, 4, 8),
});

it.each(Object.keys(LAYOUTS))("%s", async (name) => {
  const [library = ""] = name.split(" without");
  await fc.assert(
    fc.asyncProperty(layers, async (layer) => {
      // a GEMV layout with as many words as scales could be GPTQ's
      fc.pre(!name.includes("GEMV") || layer.k / 8 > 8 * Math.ceil(layer.groups / 8));
      const tensors = new Map<string, StoredTensor>();
      for (const [end, [dtype, shape]] of Object.entries(
        (LAYOUTS[name] as (namedLayer: Layer) => Shapes)(layer),
      ))
        tensors.set(`m.layers.0.q_proj.${end}`, {
          dtype,
          shape,
          bytes: new Uint8Array(fileBytes(dtype, shape)).fill(0x11),
        });
      const { findings, weights } = await reportOfContents(contentsOf(tensors, undefined));
      expect(weights).toEqual([]);
      expect(findings.map(({ name, subject }) => [name, subject])).toEqual([
        ["codes-unrecognized", "m.layers.0.q_proj.qweight"],
      ]);
      expect(findings[0]?.what).toContain(` is ${library}, which is not read`);
    }),
    { numRuns: draws(30) },
  );
});
