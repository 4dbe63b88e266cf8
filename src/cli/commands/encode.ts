/** `lockstep encode`: wide tensors to codes of a scalar format. */
import type { Backend } from "../../backends/backend.js";
import { ShapeError } from "../../errors.js";
import { factsOf } from "../../formats/derive.js";
import type { ScalarFormat } from "../../formats/scalar.js";
import { type FileDType, fileBytes, tensorDType } from "../../io/dtypes.js";
import type { TensorEntry } from "../../io/header/header.js";
import { recipesOf, requireWhole, subjectsOf } from "../../io/quantized/quantized-file.js";
import { SafetensorsFile } from "../../io/safetensors.js";
import type { TensorSource } from "../../io/source.js";
import { type EncodeOptions, encode as encodeTensor } from "../../ops/cast/cast.js";
import { fromBytes } from "../../ops/create.js";
import { Scope } from "../../tensor/scope.js";
import { elementCount, isWide, type Shape, type WideDType } from "../../tensor/shape.js";
import { bytesOf } from "../bytes.js";
import { defineCommand } from "../command.js";
import { type Piece, planPieces, withFile, writePieces } from "../pieces.js";
import { ENCODING, FORMAT, OUTPUT, RANDOM } from "../shared-options.js";

/** Elements encoded at a time; even, so that no byte of packed codes is shared. */
const CHUNK = 1 << 22;

/** The element type that files store codes of a format in. */
export function codeDType(format: ScalarFormat): FileDType {
  const { storageBits } = factsOf(format);
  return storageBits <= 8 ? "U8" : storageBits === 16 ? "U16" : "U32";
}

/** The shape of a file's tensor of codes: two 4-bit codes share a byte. Throws `ShapeError` where one is left over. */
function codeShape(format: ScalarFormat, shape: Shape): Shape {
  if (factsOf(format).storageBits !== 4) return shape;
  const last = shape.at(-1) ?? 1;
  if (last % 2 === 0) return [...shape.slice(0, -1), last / 2];
  throw new ShapeError(
    `shape [${shape}]: two ${format} codes share a byte and the last dimension, ${last}, is odd; pad it`,
  );
}

/** The wide type of a tensor of a file, `undefined` where it is no F32, F16 or BF16. */
export function wideDType({ dtype }: TensorEntry): WideDType | undefined {
  const type = tensorDType(dtype);
  return type !== undefined && isWide(type) ? type : undefined;
}

/** The piece that encodes one tensor, under the name given; none for a tensor that is not F32, F16 or BF16. */
export function encodePiece(
  backend: Backend,
  file: TensorSource,
  entry: TensorEntry,
  options: EncodeOptions & { readonly format: ScalarFormat },
  name = entry.name,
): Piece | undefined {
  const { shape, dtype } = entry;
  const type = wideDType(entry);
  if (!type) return undefined;
  const output = { name, dtype: codeDType(options.format), shape: codeShape(options.format, shape) };
  const size = elementCount(shape);
  // The random word of an element goes by its index in the tensor, so a stochastic encode is not cut.
  const chunk = options.rounding === "stochastic" ? size : CHUNK;
  return {
    subject: entry.name,
    outputs: [output],
    async produce(put) {
      for (let at = 0; at < size; at += chunk) {
        const count = Math.min(chunk, size - at);
        const bytes = await file.read(entry, fileBytes(dtype, [at]), fileBytes(dtype, [at + count]));
        const codes = encodeBytes(backend, bytes, type, options);
        await put(name, codes, (at * factsOf(options.format).storageBits) / 8);
      }
    },
  };
}

function encodeBytes(
  backend: Backend,
  bytes: Uint8Array,
  dtype: WideDType,
  options: EncodeOptions,
): Uint8Array {
  using _scope = new Scope();
  return bytesOf(encodeTensor(fromBytes(backend, bytes, undefined, dtype), options).dataSync());
}

export const encode = defineCommand({
  name: "encode",
  summary: "encodes every F32, F16 and BF16 tensor to codes of a scalar format",
  details: [
    "8- and 6-bit codes become U8 of the same shape; 4-bit codes U8 with the last dimension halved, the even element in the low nibble; 16-bit codes U16; tf32 U32, the code in the low 19 bits. Other tensors are copied.",
  ],
  inputs: ["IN"],
  options: { output: OUTPUT, format: FORMAT, ...ENCODING, ...RANDOM },
  async run({ session, values, inputs: [input = ""] }) {
    const { output, ...options } = values;
    await withFile(SafetensorsFile.open(input), async (file) => {
      const backend = await session.backend();
      const entries = [...file.tensors.values()];
      const subjects = subjectsOf(recipesOf(file));
      const pieces = await planPieces(file, (entry) => {
        if (wideDType(entry)) requireWhole(entry.name, subjects, "dequantize the file first");
        return encodePiece(backend, file, entry, options);
      });
      await writePieces(session, output, pieces, file.metadata);
      const encoded = entries.filter(wideDType).map(({ name }) => name);
      const { format, rounding, overflow } = options;
      session.summary({ output, format, rounding, overflow, encoded }, [
        `${output}: ${encoded.length} tensors in ${format}, ${entries.length - encoded.length} copied`,
      ]);
    });
    return 0;
  },
});
