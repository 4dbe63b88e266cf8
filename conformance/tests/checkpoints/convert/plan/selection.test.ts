/** Which weights a conversion selects: those of the patterns, else the quantized weights, else the weights of linear layers. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { type Selection, selectWeights } from "../../../../../src/checkpoints/convert/plan/selection.js";
import { openCheckpointFiles } from "../../../../../src/checkpoints/stored/open.js";
import { type Survey, surveyFiles } from "../../../../../src/checkpoints/survey.js";
import { ArgumentError, FileError } from "../../../../../src/errors.js";
import { draws } from "../../../harness/draws.js";
import { type Held, inFolder, writeContents } from "../../files/checkpoints.js";
import { addWeight, configFor, contentsOf, drawsFrom } from "../../files/drawn-files.js";

const FORM = { name: "ct-mxfp8", kind: "group" } as const;
const QUANTIZED = ["model.layers.0.self_attn.q_proj.weight", "lm_head.weight"];
const LINEAR = ["model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.up_proj.weight"];
const OTHERS = ["model.embed_tokens.weight", "model.layers.0.mlp.gate.weight"];
const NAMES = [...QUANTIZED, ...LINEAR, ...OTHERS];

/** The survey of a file that has all weights. */
const surveyed: Promise<Survey> = inFolder(async (folder) => {
  const tensors = new Map<string, Held>();
  for (const name of QUANTIZED)
    addWeight(tensors, name.replace(/\.weight$/, ""), FORM, [32, 64], drawsFrom(1));
  for (const name of [...LINEAR, ...OTHERS])
    tensors.set(name, { dtype: "BF16", shape: [32, 64], bytes: new Uint8Array(4096) });
  await writeContents(folder, contentsOf(tensors, configFor(FORM)));
  const checkpoint = await openCheckpointFiles(folder);
  const survey = await surveyFiles(checkpoint);
  await checkpoint.close();
  return survey;
});

/** The names of the selected weights, or the class of the error. */
interface Outcome {
  readonly weights?: readonly string[];
  readonly plain?: readonly string[];
  readonly skipped?: readonly string[];
  readonly error?: typeof ArgumentError | typeof FileError;
}

const namesOf = ({ weights, plain, skipped }: Selection): Outcome => ({
  weights: weights.map(({ name }) => name).toSorted(),
  plain: plain.map(({ entry }) => entry.name).toSorted(),
  skipped: [...skipped.keys()].toSorted(),
});

it("are all that match the patterns; without patterns the quantized weights; without those the linear layers that fit", async () => {
  const survey = await surveyed;
  const some = fc.subarray(NAMES);
  const drawn = fc.record({
    present: some,
    patterns: fc.option(some, { nil: undefined, freq: 1 }),
    unfit: fc.oneof(fc.constant<string[]>([]), some),
  });
  await fc.assert(
    fc.property(drawn, ({ present, patterns, unfit }) => {
      const has = (name: string): boolean => present.includes(name);
      const quantized = QUANTIZED.filter(has);
      const expected = (): Outcome => {
        const selected = NAMES.filter((name) => has(name) && patterns?.includes(name));
        if (patterns && !patterns.every(has)) return { error: ArgumentError };
        if (patterns && !quantized.every((name) => selected.includes(name))) return { error: ArgumentError };
        const needed = patterns ? selected : quantized;
        if (needed.some((name) => unfit.includes(name))) return { error: FileError };
        const linear = quantized.length > 0 ? [] : LINEAR.filter(has);
        const plain = patterns ? selected.filter((name) => !quantized.includes(name)) : linear;
        const skipped = plain.filter((name) => unfit.includes(name));
        return {
          weights: quantized.toSorted(),
          plain: plain.filter((name) => !skipped.includes(name)).toSorted(),
          skipped: skipped.toSorted(),
        };
      };
      const actual = (): Outcome => {
        const part: Survey = {
          ...survey,
          weights: survey.weights.filter(({ name }) => has(name)),
          plain: survey.plain.filter(({ entry }) => has(entry.name)),
        };
        try {
          return namesOf(
            selectWeights(part, { name: "ct-mxfp4", tensors: patterns }, (name, _shape, isPlain) => {
              expect(isPlain).toBe(!QUANTIZED.includes(name));
              return unfit.includes(name) ? "its size is odd" : undefined;
            }),
          );
        } catch (error) {
          if (error instanceof ArgumentError) return { error: ArgumentError };
          if (error instanceof FileError) return { error: FileError };
          throw error;
        }
      };
      expect(actual()).toEqual(expected());
    }),
    { numRuns: draws(5000, 1000) },
  );
});
