/** `lockstep dequantize`: dequantizes the tensors that `quantize` wrote. */
import type { Backend } from "../../backends/backend.js";
import { dequantizeAs } from "../../dialects/dequantize.js";
import { formOf } from "../../dialects/quantizer-of.js";
import { DIALECT_NAMES, type DialectName } from "../../dialects/table.js";
import { fileDType } from "../../io/dtypes.js";
import { Holder } from "../../io/holder.js";
import { readQuantized, recipesOf, requireMembers, subjectsOf } from "../../io/quantized/quantized-file.js";
import { type Recipe, recipeSubject } from "../../io/quantized/recipe.js";
import type { TensorSource } from "../../io/source.js";
import { dequantize as dequantizeTensor } from "../../ops/quantize/dequantize.js";
import { asBytes } from "../../tensor/data.js";
import type { Direction, QuantizedTensor } from "../../tensor/quantized.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import { defineCommand } from "../command.js";
import { choice, oneOf, optional } from "../options.js";
import { copyPiece, type Piece, withFile, withTensorName, writePieces } from "../pieces.js";
import { requireOwnValues } from "../refuse-foreign.js";
import { OUTPUT } from "../shared-options.js";

/** Returns the copy to read: rowwise if the file has it, else columnwise. */
function directionOf(file: TensorSource, name: string, { usage }: Recipe): Direction {
  const directions = usage.filter((direction) => file.tensors.has(`${name}.${direction}.data`));
  return directions.includes("rowwise") ? "rowwise" : (directions[0] ?? usage[0] ?? "rowwise");
}

interface Target {
  readonly backend: Backend;
  readonly file: TensorSource;
  readonly dtype: WideDType;
  readonly dialect: DialectName | undefined;
}

function dequantizePiece({ backend, file, dtype, dialect }: Target, name: string, recipe: Recipe): Piece {
  const direction = directionOf(file, name, recipe);
  requireMembers(file, name, recipe, direction);
  if (dialect !== undefined) formOf(dialect, recipe.spec.quantizer);
  return {
    subject: name,
    outputs: [{ name, dtype: fileDType(dtype), shape: recipe.shape }],
    async produce(put) {
      using holder = new Holder();
      const quantized = await readQuantized({ backend, file, holder }, name, recipe, direction);
      await put(name, dequantizedBytes(quantized, dtype, dialect));
    },
  };
}

function dequantizedBytes(
  quantized: QuantizedTensor,
  dtype: WideDType,
  dialect: DialectName | undefined,
): Uint8Array {
  using _scope = new Scope();
  const values =
    dialect === undefined ? dequantizeTensor(quantized, dtype) : dequantizeAs(quantized, { dialect, dtype });
  return asBytes(values.dataSync());
}

export const dequantize = defineCommand({
  name: "dequantize",
  summary: "dequantizes the tensors that quantize wrote to F32, BF16 or F16, in their original shapes",
  details: [
    "Reads the rowwise copy of a tensor if the file has it, else the columnwise copy. Other tensors are copied; codes and scales of other libraries are refused, and convert reads them.",
  ],
  example: "quantized.safetensors -o wide.safetensors --dtype bf16",
  inputs: ["IN"],
  options: {
    output: OUTPUT,
    dtype: choice(["f32", "bf16", "f16"], {
      help: "dtype of the dequantized tensors",
      meanings: { f32: "single precision", bf16: "bfloat16", f16: "IEEE half" },
      fallback: "f32",
    }),
    dialect: optional<DialectName>({
      placeholder: "NAME",
      help: "compute the values as another library does, and round them to its type before --dtype: one of lockstep dialects",
      parse: oneOf(DIALECT_NAMES),
    }),
  },
  async run({ session, values: { output, dtype, dialect }, inputs: [input = ""] }) {
    await withFile(session.files.open(input), async (file) => {
      const recipes = recipesOf(file);
      requireOwnValues(file, ({ kind }) => kind !== "bytes");
      const target: Target = { backend: await session.backend(), file, dtype, dialect };
      const dequantized: Piece[] = [];
      for (const [name, recipe] of recipes) {
        dequantized.push(await withTensorName(name, () => dequantizePiece(target, name, recipe)));
      }
      const subjects = subjectsOf(recipes);
      const otherTensors = [...file.tensors.values()].filter(({ name }) => !subjects.has(name));
      const metadata = Object.fromEntries(
        Object.entries(file.metadata).filter(([key]) => recipeSubject(key) === undefined),
      );
      await writePieces(
        session,
        output,
        [...dequantized, ...otherTensors.map((entry) => copyPiece(file, entry))],
        metadata,
      );
      session.summary(
        {
          output,
          dtype,
          ...(dialect ? { dialect } : {}),
          dequantized: [...recipes.keys()],
          copied: otherTensors.length,
        },
        [`${output}: ${recipes.size} tensors to ${dtype}, ${otherTensors.length} copied`],
      );
    });
    return 0;
  },
});
