// Whole layers of TransformerEngine on random inputs, stage by stage: each stage of the forward and the backward pass is
// computed from its recorded inputs. Quantizers, products, rotary embeddings, softmax and sums are equal in every bit. Of the
// other stages, the differences and the distances from float64 are recorded.
import { writeFileSync } from "node:fs";
import { afterAll, describe, expect, it } from "vitest";
import { Scope } from "../../../src/index.js";
import { sampleCases } from "../harness/draws.js";
import { IS_FULL } from "../harness/full.js";
import { useBackend } from "../harness/suite.js";
import { expectDistances } from "../harness/te/distances.js";
import { comparePairs, mustBeExact } from "../harness/te/layers/compare.js";
import { combineDistances, type StageDistances, stageDistances } from "../harness/te/layers/distances.js";
import { reasonForDistance } from "../harness/te/layers/farther.js";
import { replayStage } from "../harness/te/layers/replay.js";
import { Bits, hashKey, LAYERS_PATH, readLayers } from "../harness/te/layers/witness.js";

/** A file of scripts/witness/te_layers_select.mjs: the run commits the bits that are neither drawn nor replayed. */
const recordPath = process.env.RECORD_LAYERS;
const recordedLayers = readLayers(recordPath ?? LAYERS_PATH);
const { origin, layers } = recordedLayers;
const backend = useBackend({ datapath: "hopper" });

const named = layers.map((layerCase) => {
  const { module, name, recipe, normalization, activation } = layerCase;
  return [[module, name ?? normalization, activation, recipe].filter(Boolean).join(" "), layerCase] as const;
});

const distances = new Map<string, StageDistances[]>();
const usedNames = new Set<string>();

describe(`layers of ${origin.version}`, () => {
  it.each(sampleCases(named, 2))("%s", async (_, layerCase) => {
    const bits = new Bits(recordedLayers, layerCase);
    for (const stage of layerCase.stages) {
      using _scope = new Scope();
      const pairs = await comparePairs(stage, replayStage(backend(), bits, stage));
      expect(pairs.length).toBeGreaterThan(0);
      for (const { name, recorded: recordedResult, ours: ownResult } of pairs) {
        if (hashKey(ownResult) === recordedResult.key) bits.add(ownResult);
        // a result without recorded bits has to be equal
        else if (mustBeExact(stage.stage, name) || !bits.find(recordedResult.key))
          expect.fail(`${stage.stage}: ${name} differs from the recorded ${recordedResult.key}`);
      }
      for (const [name, stageDistance] of stageDistances(stage, pairs, bits)) {
        const key = `${stage.stage}: ${name}, ${layerCase.recipe}`;
        distances.set(key, [...(distances.get(key) ?? []), stageDistance]);
      }
    }
    for (const key of bits.usedKeys) usedNames.add(key);
  });

  const needsAll = IS_FULL ? "" : " (skipped in a short run, which has some of the layers)";
  it.skipIf(!IS_FULL)(
    `are as far from ours and from float64 as recorded, and ours is not farther${needsAll}`,
    () => {
      const summaries = [...distances].map(([key, distance]) => {
        const sum = combineDistances(distance);
        const farther = reasonForDistance(key.slice(0, key.lastIndexOf(", ")), sum);
        return [key, { ...roundDistances(sum), ...(farther ? { farther } : {}) }] as const;
      });
      expect(summaries.length).toBeGreaterThan(200);
      expectDistances("layers", Object.fromEntries(summaries.sort(([a], [b]) => (a < b ? -1 : 1))));
    },
  );
});

/** Errors with four digits, so that the last bits of a host's exponential function do not count. */
function roundDistances(distances: StageDistances): StageDistances {
  const digits = ({ mean, max }: { mean: number; max: number }) => ({
    mean: Number(mean.toPrecision(4)),
    max: Number(max.toPrecision(4)),
  });
  const { ours: ownNoise, theirs: recordedNoise } = distances;
  return {
    ...distances,
    ...(ownNoise && recordedNoise ? { ours: digits(ownNoise), theirs: digits(recordedNoise) } : {}),
  };
}

afterAll(() => {
  if (!recordPath) return;
  if (!IS_FULL) throw new Error("RECORD_LAYERS needs LOCKSTEP_TESTS=full");
  const bits = Object.entries(recordedLayers.bits).filter(([key]) => usedNames.has(key));
  writeFileSync(LAYERS_PATH, `${JSON.stringify({ ...recordedLayers, bits: Object.fromEntries(bits) })}\n`);
});
