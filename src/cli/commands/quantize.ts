/** `lockstep quantize`: quantizes F32, F16 and BF16 tensors to codes and scales. */
import type { Backend } from "../../backends/backend.js";
import { selectNames } from "../../checkpoints/glob.js";
import { FileError } from "../../errors.js";
import { zeroBlockNote } from "../../explain/zero-blocks.js";
import type { TensorEntry } from "../../io/header/header.js";
import {
  allMembers,
  quantizedPlans,
  recipesOf,
  requireWhole,
  subjectsOf,
} from "../../io/quantized/quantized-file.js";
import { formatRecipe, type Recipe, recipeKey } from "../../io/quantized/recipe.js";
import type { TensorSource } from "../../io/source.js";
import { fromBytes } from "../../ops/create.js";
import { asBytes } from "../../tensor/data.js";
import { requireQuantizable } from "../../tensor/geometry.js";
import type { QuantizeSpec } from "../../tensor/quantized.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, type Shape, type WideDType } from "../../tensor/shape.js";
import { isGlob } from "../../text/glob.js";
import { defineCommand } from "../command.js";
import { VERSION } from "../manifest.js";
import { type Piece, planPieces, withFile, writePieces } from "../pieces.js";
import {
  makeQuantizer,
  QUANTIZER_OPTIONS,
  type QuantizerSettings,
  requireApplicable,
  specOf,
  withDialect,
} from "../quantizer-options.js";
import { givenRandomBits, type RandomWords, readRandomBits } from "../random-bits.js";
import { requireOwnValues } from "../refuse-foreign.js";
import { OUTPUT } from "../shared-options.js";
import { tensorsOption } from "../tensor-globs.js";
import { wideDType } from "./encode.js";

/** The bytes of the tensors that make up a quantized tensor, by their names in the file. */
type QuantizedBytes = ReadonlyMap<string, Uint8Array>;

/** The spec of each option set, computed once: a file may have a million tensors. */
const specs = new WeakMap<QuantizerSettings, QuantizeSpec>();

/**
 * Returns the metadata of a quantized tensor under the options. Throws `ShapeError` for a shape that the format's blocks do not
 * divide.
 */
function recipeFor(backend: Backend, settings: QuantizerSettings, shape: Shape, dtype: WideDType): Recipe {
  const spec = specs.get(settings) ?? specOf(backend, settings);
  specs.set(settings, spec);
  requireQuantizable("quantize", spec, asMatrix(shape)[1]);
  return { spec, shape, dtype, scales: settings.scales, usage: settings.usage };
}

/** Quantizes the bytes of one tensor. The random bits start at offset 0 for each tensor. */
function quantizeBytes(
  backend: Backend,
  settings: QuantizerSettings,
  name: string,
  recipe: Recipe,
  { bytes, randomBits }: { readonly bytes: Uint8Array; readonly randomBits: RandomWords },
): QuantizedBytes {
  using _scope = new Scope();
  const { quantizer, amaxRecord } = makeQuantizer(backend, settings);
  const source = fromBytes(backend, bytes, recipe.shape, recipe.dtype);
  const quantized = quantizer.quantize(source, givenRandomBits(backend, randomBits));
  const members = allMembers(name, recipe).flatMap(({ field, direction, plan }) => {
    const member = quantized.copy(direction)[field];
    return member ? [[plan.name, asBytes(member.dataSync())] as const] : [];
  });
  const amaxMember = amaxRecord ? [[`${name}.amax`, asBytes(amaxRecord.dataSync())] as const] : [];
  return new Map([...members, ...amaxMember]);
}

/**
 * Returns the piece of the output that quantizes one tensor under the given name, or undefined if the tensor is not F32, F16 or
 * BF16.
 */
export function quantizePiece(
  backend: Backend,
  file: TensorSource,
  entry: TensorEntry,
  settings: QuantizerSettings,
  name = entry.name,
): Piece | undefined {
  const dtype = wideDType(entry);
  if (!dtype) return undefined;
  const { shape } = entry;
  const recipe = recipeFor(backend, settings, shape, dtype);
  return {
    subject: entry.name,
    outputs: quantizedPlans(name, recipe),
    metadata: { [recipeKey(name)]: formatRecipe(recipe, { backend: backend.name, version: VERSION }) },
    async produce(put) {
      const bytes = await file.read(entry);
      const randomBits: RandomWords = {};
      for (const direction of settings["random-bits"] ? settings.usage : [])
        randomBits[direction] = await readRandomBits(file, entry.name, direction);
      for (const [member, data] of quantizeBytes(backend, settings, name, recipe, { bytes, randomBits }))
        await put(member, data);
    },
  };
}

/** Throws `FileError` if a tensor of the option `--tensors` is missing or cannot be quantized. */
function requireTensors(file: TensorSource, names: readonly string[]): void {
  for (const name of names) {
    const entry = file.entry(name);
    if (wideDType(entry)) continue;
    throw new FileError(
      `${file.path}: tensor "${name}": is ${entry.dtype}; quantize takes F32, F16 and BF16`,
    );
  }
}

export const quantize = defineCommand({
  name: "quantize",
  summary:
    "quantizes F32, F16 and BF16 tensors to codes and scales: a rowwise copy, a columnwise copy or both",
  details: [
    "A tensor NAME is treated as a matrix [M,K]. Its rowwise copy is written as NAME.rowwise.data and NAME.rowwise.scale_inv, its columnwise copy as NAME.columnwise.data and NAME.columnwise.scale_inv. nvfp4 also writes NAME.rowwise.amax and NAME.columnwise.amax, and fp8-delayed NAME.amax. Other tensors are copied. With --random-bits stochastic rounding takes the random bits of the file's tensors NAME.random_bits and NAME.random_bits_columnwise, which are U32 and have a word for each element of a copy. The metadata of the file describe the quantization for dequantize and gemm.",
  ],
  example: "model.safetensors -o quantized.safetensors --quantizer mxfp8 --usage rowwise,columnwise",
  inputs: ["IN"],
  options: {
    output: OUTPUT,
    ...QUANTIZER_OPTIONS,
    tensors: tensorsOption("quantize only these tensors and copy all others"),
  },
  async run({ session, values, inputs: [input = ""], usedOptions }) {
    const { output, tensors: patterns, ...options } = values;
    const settings = withDialect(options, usedOptions);
    requireApplicable(settings, usedOptions);
    await withFile(session.files.open(input), async (file) => {
      requireTensors(
        file,
        (patterns ?? []).filter((each) => !isGlob(each)),
      );
      const isSelected = patterns && selectNames(patterns, file.tensors.keys(), { exact: false });
      requireOwnValues(file, ({ name, kind }) => kind !== "bytes" && (isSelected?.(name) ?? true));
      const backend = await session.backend();
      const subjects = subjectsOf(recipesOf(file));
      const quantized: string[] = [];
      const pieces = await planPieces(file, output, (entry) => {
        if (isSelected?.(entry.name) === false || !wideDType(entry)) return undefined;
        requireWhole(entry.name, subjects, "leave it out by --tensors, or dequantize the file first");
        quantized.push(entry.name);
        return quantizePiece(backend, file, entry, settings);
      });
      await writePieces(session, output, pieces, file.metadata);
      const { quantizer } = settings;
      const note = zeroBlockNote(specOf(backend, settings));
      session.summary(
        {
          output,
          quantizer,
          quantized,
          copied: file.tensors.size - quantized.length,
          ...(note === undefined ? {} : { note }),
        },
        [
          `${output}: ${quantized.length} tensors by ${quantizer}, ${file.tensors.size - quantized.length} copied`,
          ...(note === undefined ? [] : [`note: ${note}`]),
        ],
      );
    });
    return 0;
  },
});
