/** `lockstep decode`: decodes tensors of codes of a scalar format to F32. */
import type { Backend } from "../../backends/backend.js";
import { ShapeError } from "../../errors.js";
import { factsOf } from "../../formats/derive.js";
import type { ScalarFormat } from "../../formats/scalar.js";
import { fileBytes, tensorDType } from "../../io/dtypes.js";
import type { TensorEntry, TensorPlan } from "../../io/header/header.js";
import type { TensorSource } from "../../io/source.js";
import { decode as decodeTensor } from "../../ops/cast/cast.js";
import { fromBytes } from "../../ops/create.js";
import { asBytes } from "../../tensor/data.js";
import { Scope } from "../../tensor/scope.js";
import type { Shape } from "../../tensor/shape.js";
import { defineCommand } from "../command.js";
import { type Piece, planPieces, withFile, writePieces } from "../pieces.js";
import { requireOwnValues } from "../refuse-foreign.js";
import { FORMAT, OUTPUT } from "../shared-options.js";
import { codeDType } from "./encode.js";

const CHUNK_BYTES = 1 << 22;

/**
 * Whether a tensor may hold codes of the format. Its dtype is the dtype that `encode` writes, or the format's own dtype in
 * safetensors.
 */
function holdsCodes({ dtype }: TensorEntry, format: ScalarFormat): boolean {
  return dtype === codeDType(format) || tensorDType(dtype) === format;
}

function decodedShape({ dtype, shape }: TensorPlan, format: ScalarFormat): Shape {
  if (factsOf(format).storageBits !== 4 || dtype !== "U8") return shape;
  if (shape.length === 0)
    throw new ShapeError("shape []: a scalar cannot hold two 4-bit codes; give it a dimension");
  return [...shape.slice(0, -1), (shape.at(-1) ?? 0) * 2];
}

function decodePiece(
  backend: Backend,
  file: TensorSource,
  entry: TensorEntry,
  format: ScalarFormat,
): Piece | undefined {
  if (!holdsCodes(entry, format)) return undefined;
  const { name } = entry;
  const size = fileBytes(entry.dtype, entry.shape);
  return {
    subject: name,
    outputs: [{ name, dtype: "F32", shape: decodedShape(entry, format) }],
    async produce(put) {
      for (let offset = 0; offset < size; offset += CHUNK_BYTES) {
        const bytes = await file.read(entry, offset, Math.min(size, offset + CHUNK_BYTES));
        await put(name, decodeBytes(backend, bytes, format), (offset * 32) / factsOf(format).storageBits);
      }
    },
  };
}

function decodeBytes(backend: Backend, bytes: Uint8Array, format: ScalarFormat): Uint8Array {
  using _scope = new Scope();
  return asBytes(decodeTensor(fromBytes(backend, bytes, undefined, format)).dataSync());
}

export const decode = defineCommand({
  name: "decode",
  summary: "decodes codes of a scalar format to their exact F32 values; the inverse of encode",
  details: [
    "Decodes tensors of the dtype that encode writes for the format, and of the dtype that safetensors has for it. Other tensors are copied.",
  ],
  example: "codes.safetensors -o values.safetensors --format e4m3",
  inputs: ["IN"],
  options: { output: OUTPUT, format: FORMAT },
  async run({ session, values: { output, format }, inputs: [input = ""] }) {
    await withFile(session.files.open(input), async (file) => {
      requireOwnValues(file, ({ kind }, entry) => kind === "part" && holdsCodes(entry, format));
      const backend = await session.backend();
      const entries = [...file.tensors.values()];
      const pieces = await planPieces(file, output, (entry) => decodePiece(backend, file, entry, format));
      await writePieces(session, output, pieces, file.metadata);
      const decoded = entries.filter((entry) => holdsCodes(entry, format)).map(({ name }) => name);
      session.summary({ output, format, decoded }, [
        `${output}: ${decoded.length} tensors from ${format}, ${entries.length - decoded.length} copied`,
      ]);
    });
    return 0;
  },
});
