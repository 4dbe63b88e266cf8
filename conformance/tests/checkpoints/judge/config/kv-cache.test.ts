/** Scales of the cache of keys and values: a scale that is absent in one layer but present in others is found. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { draws } from "../../../harness/draws.js";
import { reportOfContents, type StoredTensor } from "../../files/checkpoints.js";
import { contentsOf } from "../../files/drawn-files.js";

/** The scales of a layer. "kv" is one scale for keys and values. */
const SCALES = ["none", "k", "v", "k and v", "kv"] as const;
type Scales = (typeof SCALES)[number];
/** The names that libraries give to the scale of an attention's keys or values. */
const SCALE_NAMES = {
  projection: (letter: string) => `${letter}_proj.${letter}_scale`,
  attention: (letter: string) => `attn.${letter}_scale`,
  module: (letter: string) => `${letter}_scale`,
} as const;

const layer = fc.record({
  scales: fc.constantFrom(...SCALES),
  nameStyle: fc.constantFrom(...(Object.keys(SCALE_NAMES) as (keyof typeof SCALE_NAMES)[])),
});

const scalar = (value: number): StoredTensor => ({
  dtype: "F32",
  shape: [],
  bytes: new Uint8Array(Float32Array.of(value).buffer),
});
const absentOf: Readonly<Record<Scales, readonly string[]>> = {
  none: ["k_scale", "v_scale"],
  k: ["v_scale"],
  v: ["k_scale"],
  "k and v": [],
  kv: [],
};

async function findingsOf(
  tensors: ReadonlyMap<string, StoredTensor>,
): Promise<readonly (readonly [string, string])[]> {
  const { findings } = await reportOfContents(contentsOf(new Map(tensors), undefined));
  return findings
    .filter(({ name }) => name === "config-kv-cache")
    .map(({ subject, what }) => [subject, what] as const);
}

describe("scales of the cache", () => {
  it("are absent from exactly the layers that lack one, if any layer has some", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(layer, { minLength: 1, maxLength: 5 }), async (layers) => {
        const tensors = new Map<string, StoredTensor>();
        for (const [i, { scales, nameStyle }] of layers.entries()) {
          const module = `model.layers.${i}.self_attn`;
          for (const letter of ["q", "k", "v"])
            tensors.set(`${module}.${letter}_proj.weight`, {
              dtype: "BF16",
              shape: [4, 4],
              bytes: new Uint8Array(32).fill(0x3f),
            });
          const names = { none: [], k: ["k"], v: ["v"], "k and v": ["k", "v"], kv: [] }[scales];
          for (const letter of names) tensors.set(`${module}.${SCALE_NAMES[nameStyle](letter)}`, scalar(0.1));
          if (scales === "kv") tensors.set(`${module}.kv_scale`, scalar(0.1));
        }
        const isScaled = layers.some(({ scales }) => scales !== "none");
        const expected = layers.flatMap(({ scales }, i) => {
          const absentNames = absentOf[scales];
          if (!isScaled || absentNames.length === 0) return [];
          const message = `${absentNames.join(" and ")} ${absentNames.length === 1 ? "is" : "are"} absent`;
          return [[`model.layers.${i}.self_attn`, expect.stringMatching(new RegExp(`; ${message}$`))]];
        });
        expect((await findingsOf(tensors)).toSorted()).toEqual(expected);
      }),
      { numRuns: draws(60, 30) },
    );
  });
});
