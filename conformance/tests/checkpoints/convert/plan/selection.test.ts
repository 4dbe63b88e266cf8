/** Which weights a conversion selects: those of the patterns, else the quantized weights, else the weights of linear layers. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { type Selection, selectWeights } from "../../../../../src/checkpoints/convert/plan/selection.js";
import { openCheckpointFiles } from "../../../../../src/checkpoints/stored/open.js";
import { type Survey, surveyFiles } from "../../../../../src/checkpoints/survey.js";
import { ArgumentError, FileError } from "../../../../../src/errors.js";
import { draws } from "../../../harness/draws.js";
import { inFolder, type StoredTensor, writeContents } from "../../files/checkpoints.js";
import { addWeight, configFor, contentsOf, drawsFrom } from "../../files/drawn-files.js";

const FORM = { name: "ct-mxfp8", kind: "group" } as const;
const QUANTIZED = ["model.layers.0.self_attn.q_proj.weight", "lm_head.weight"];
const LINEAR = ["model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.up_proj.weight"];
const OTHERS = ["model.embed_tokens.weight", "model.layers.0.mlp.gate.weight"];
const NAMES = [...QUANTIZED, ...LINEAR, ...OTHERS];

/** The survey of a file that has all weights. */
const pendingSurvey: Promise<Survey> = inFolder(async (folder) => {
  const tensors = new Map<string, StoredTensor>();
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
  readonly plainNames?: readonly string[];
  readonly skippedNames?: readonly string[];
  readonly error?: typeof ArgumentError | typeof FileError;
}

const namesOf = ({ weights, plain: plainNames, skipped: skippedNames }: Selection): Outcome => ({
  weights: weights.map(({ name }) => name).toSorted(),
  plainNames: plainNames.map(({ entry }) => entry.name).toSorted(),
  skippedNames: [...skippedNames.keys()].toSorted(),
});

it("are all that match the patterns; without patterns the quantized weights; without those the linear layers that fit", async () => {
  const survey = await pendingSurvey;
  const someNames = fc.subarray(NAMES);
  const cases = fc.record({
    present: someNames,
    patterns: fc.option(someNames, { nil: undefined, freq: 1 }),
    unfit: fc.oneof(fc.constant<string[]>([]), someNames),
  });
  await fc.assert(
    fc.property(cases, ({ present, patterns, unfit: unfitNames }) => {
      const has = (name: string): boolean => present.includes(name);
      const quantizedNames = QUANTIZED.filter(has);
      const expected = (): Outcome => {
        const selectedNames = NAMES.filter((name) => has(name) && patterns?.includes(name));
        if (patterns && !patterns.every(has)) return { error: ArgumentError };
        if (patterns && !quantizedNames.every((name) => selectedNames.includes(name)))
          return { error: ArgumentError };
        const expectedNames = patterns ? selectedNames : quantizedNames;
        if (expectedNames.some((name) => unfitNames.includes(name))) return { error: FileError };
        const linear = quantizedNames.length > 0 ? [] : LINEAR.filter(has);
        const plainNames = patterns ? selectedNames.filter((name) => !quantizedNames.includes(name)) : linear;
        const skippedNames = plainNames.filter((name) => unfitNames.includes(name));
        return {
          weights: quantizedNames.toSorted(),
          plainNames: plainNames.filter((name) => !skippedNames.includes(name)).toSorted(),
          skippedNames: skippedNames.toSorted(),
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
              return unfitNames.includes(name) ? "its size is odd" : undefined;
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
