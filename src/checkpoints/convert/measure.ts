/** Measures a form of the weights of a checkpoint: its bits, its scales and its errors. Writes no files. */
import { type Backend, requireBackend } from "../../backends/backend.js";
import { openBackend } from "../../backends/open.js";
import { anything, needed, optionsOf } from "../../options.js";
import { elementCount, type Shape } from "../../tensor/shape.js";
import { parsedBy } from "../api/options.js";
import { Checkpoint } from "../checkpoint.js";
import { packedAs } from "../gguf/file.js";
import { isQuantizable } from "../recognize/layer-roles.js";
import type { RecognizedWeight } from "../recognize/recognize.js";
import type { CheckpointFiles } from "../stored/files.js";
import { readScales, scaleOf } from "../stored/scales.js";
import { storedBytes } from "../stored-bytes.js";
import { type Survey, surveyFiles } from "../survey.js";
import { lockstepTensorNames } from "../values/lockstep.js";
import type { ConversionMethod } from "./changes/weight-changes.js";
import { convertInMemory } from "./in-memory.js";
import { type ConversionTarget, parseTarget } from "./targets/named.js";

/** The number of scales in each octave: `counts[i]` scales are at least 2^(first + i) and less than twice as large. */
export interface ScaleOctaves {
  /** The exponent of the smallest octave with scales; 0 if there is none. */
  readonly first: number;
  /** The number of scales in each octave, in ascending order; neither the first nor the last is 0. */
  readonly counts: readonly number[];
  /** The number of scales that are zero, negative, infinite or NaN. */
  readonly others: number;
}

/** How a weight is stored. */
export interface MeasuredForm {
  /** The convention and code type, the quantizer and format, the layout of packed blocks, or the dtype. */
  readonly format: string;
  /** The bits of codes and scales per element. */
  readonly bits: number;
  /** The scales, each combined with the global scale. Absent for a weight without separate tensors of scales. */
  readonly scales?: ScaleOctaves;
}

/** A matrix or a stack of matrices of a checkpoint, as it is stored and in another form. */
export interface MeasuredWeight {
  /** The name of the weight before quantization. */
  readonly name: string;
  /** The shape before quantization. */
  readonly shape: Shape;
  /** The form in the checkpoint. */
  readonly stored: MeasuredForm;
  /** The other form. Absent for a weight that conversion leaves as it is. */
  readonly converted?: MeasuredForm & {
    /** The way in which the weight got the form. */
    readonly method: ConversionMethod;
    /** The sum of the squares of the differences. */
    readonly noise: number;
    /** The sum of the squares of the stored values; 0 if no value changed. */
    readonly signal: number;
    /** The root of noise / signal; 0 if no value changed. */
    readonly error: number;
  };
  /** Why the weight cannot have the form. Absent if it has the form, and if no conversion to the form would select it. */
  readonly reason?: string;
}

/** Options of `measureForm`. */
export interface MeasureFormOptions {
  /** The form, by a name that `convertCheckpoint` takes as `to`. */
  readonly to: ConversionTarget;
  /** The backend that quantizes. Default: a wasm backend with one thread. */
  readonly backend?: Backend | undefined;
}

const checkOptions = optionsOf<MeasureFormOptions>({ to: needed(parsedBy(parseTarget)), backend: anything });

/**
 * Converts the weights of an open checkpoint in memory, one at a time, as `convertCheckpoint` does by default. Yields each matrix
 * of the checkpoint in the order of its files, with what the conversion changes.
 *
 * @throws `FileError` if `lockstep verify` finds an error in the checkpoint, a weight cannot have the form, values would become
 * NaN or infinite, or a file cannot be read; `ArgumentError` for anything but a checkpoint and options; `DisposedError` for a
 * disposed backend.
 */
export function measureForm(
  checkpoint: Checkpoint,
  options: MeasureFormOptions,
): AsyncGenerator<MeasuredWeight, undefined> {
  const files = Checkpoint.filesOf("measureForm", checkpoint);
  const { to, backend } = checkOptions("measureForm", options);
  if (backend !== undefined) requireBackend("measureForm", backend);
  return backend ? measured(files, to, backend) : measuredByReference(files, to);
}

async function* measuredByReference(
  files: CheckpointFiles,
  to: ConversionTarget,
): AsyncGenerator<MeasuredWeight, undefined> {
  const backend = await openBackend("wasm", { threads: 1 });
  try {
    yield* measured(files, to, backend);
  } finally {
    await backend.dispose();
  }
}

async function* measured(
  files: CheckpointFiles,
  to: ConversionTarget,
  backend: Backend,
): AsyncGenerator<MeasuredWeight, undefined> {
  const before = await surveyFiles(files);
  const conversion = await convertInMemory(files, parseTarget(to), async () => backend);
  const { converted, skipped } = conversion.plan;
  const [storedForms, convertedForms] = [new Forms(before), new Forms(conversion.survey)];
  for (const { name, shape } of matricesIn(before, files)) {
    const reason = skipped.get(name);
    const weight = {
      ...{ name, shape, stored: await storedForms.formOf(name, shape) },
      ...(reason === undefined ? {} : { reason }),
    };
    if (!converted.has(name)) yield weight;
    else {
      const { method, noise, signal } = await conversion.convert(name);
      const error = noise === 0 ? 0 : Math.sqrt(noise / signal);
      yield {
        ...weight,
        converted: { ...(await convertedForms.formOf(name, shape)), method, noise, signal, error },
      };
    }
  }
}

/** The matrices and stacks of matrices of a checkpoint, in the order of its files. */
function matricesIn(
  { storedWeights, lockstepWeights, plain }: Survey,
  { tensors }: CheckpointFiles,
): readonly { readonly name: string; readonly shape: Shape }[] {
  const order = new Map([...tensors.keys()].map((name, i) => [name, i]));
  const places = [
    ...storedWeights.map(({ name, shape, codes }) => ({ name, shape, tensor: codes.entry.name })),
    ...lockstepWeights.map((weight) => {
      const { name, recipe } = weight;
      return { name, shape: recipe.shape, tensor: lockstepTensorNames(weight)[0] ?? name };
    }),
    ...plain.filter(isQuantizable).map(({ entry: { name, shape } }) => ({ name, shape, tensor: name })),
  ];
  return places.toSorted((a, b) => (order.get(a.tensor) ?? 0) - (order.get(b.tensor) ?? 0));
}

/** The forms of the weights of a checkpoint. */
class Forms {
  readonly #bytes: ReadonlyMap<string, number>;
  readonly #weights: ReadonlyMap<string, RecognizedWeight>;
  readonly #formats: ReadonlyMap<string, string>;

  constructor(survey: Survey) {
    const { weights, storedWeights, lockstepWeights, plain } = survey;
    this.#bytes = storedBytes(survey);
    this.#weights = new Map(weights.map((weight) => [weight.name, weight]));
    this.#formats = new Map([
      ...plain.map(({ entry, shard }): [string, string] => [
        entry.name,
        packedAs(shard, entry.name)?.layout ?? entry.dtype,
      ]),
      ...storedWeights.map(({ name, convention, type }): [string, string] => [
        name,
        `${convention}: ${type}`,
      ]),
      ...lockstepWeights.map(({ name, recipe: { spec } }): [string, string] => [
        name,
        `${spec.quantizer}: ${spec.format}`,
      ]),
    ]);
  }

  /** The form of a weight with this shape. Reads its scales. */
  async formOf(name: string, shape: Shape): Promise<MeasuredForm> {
    const weight = this.#weights.get(name);
    return {
      format: this.#formats.get(name) ?? "",
      bits: (8 * (this.#bytes.get(name) ?? 0)) / Math.max(1, elementCount(shape)),
      ...(weight ? { scales: await octavesOf(weight) } : {}),
    };
  }
}

/** Counts the scales of a weight by octaves. */
async function octavesOf(weight: RecognizedWeight): Promise<ScaleOctaves> {
  const scales = await readScales(weight);
  const counts = new Map<number, number>();
  let others = 0;
  for (const block of scales.values) {
    const scale = scaleOf(scales, block);
    if (scale > 0 && Number.isFinite(scale)) {
      const octave = octaveOf(scale);
      counts.set(octave, (counts.get(octave) ?? 0) + 1);
    } else others++;
  }
  const octaves = [...counts.keys()].toSorted((a, b) => a - b);
  const [first = 0, last = first - 1] = [octaves[0], octaves.at(-1)];
  return {
    first,
    counts: Array.from({ length: last - first + 1 }, (_, i) => counts.get(first + i) ?? 0),
    others,
  };
}

const WORD = new DataView(new ArrayBuffer(8));

/** The largest e with 2^e <= scale, for a positive f32. */
function octaveOf(scale: number): number {
  // every positive f32 is a normal f64
  WORD.setFloat64(0, scale);
  return (WORD.getUint16(0) >> 4) - 1023;
}
