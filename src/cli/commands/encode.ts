/** `lockstep encode`: encodes F32, F16 and BF16 tensors to codes of a scalar format. */
import type { Backend } from "../../backends/backend.js";
import { ShapeError } from "../../errors.js";
import { factsOf } from "../../formats/derive.js";
import type { ScalarFormat } from "../../formats/scalar.js";
import { type FileDType, fileBytes, tensorDType } from "../../io/dtypes.js";
import type { TensorEntry } from "../../io/header/header.js";
import { recipesOf, requireWhole, subjectsOf } from "../../io/quantized/quantized-file.js";
import type { TensorSource } from "../../io/source.js";
import { type EncodeOptions, encode as encodeTensor } from "../../ops/cast/cast.js";
import { fromBytes } from "../../ops/create.js";
import { asBytes } from "../../tensor/data.js";
import { Scope } from "../../tensor/scope.js";
import { elementCount, isWide, type Shape, type WideDType } from "../../tensor/shape.js";
import { defineCommand } from "../command.js";
import { type Piece, planPieces, withFile, writePieces } from "../pieces.js";
import { givenRandomBits, RANDOM_BITS, readRandomBits, requireStochastic } from "../random-bits.js";
import { requireOwnValues } from "../refuse-foreign.js";
import { ENCODING, FORMAT, OUTPUT, RANDOM } from "../shared-options.js";

/** The number of elements that are encoded at a time. It is even, so that chunks of packed 4-bit codes end at bytes. */
const CHUNK = 1 << 22;

/** Returns the dtype in which files store codes of a format. */
export function codeDType(format: ScalarFormat): FileDType {
  const { storageBits } = factsOf(format);
  return storageBits <= 8 ? "U8" : storageBits === 16 ? "U16" : "U32";
}

/**
 * Returns the shape of the tensor of codes in the file. Two 4-bit codes share a byte. Throws `ShapeError` for 4-bit codes and
 * an odd last dimension.
 */
function codeShape(format: ScalarFormat, shape: Shape): Shape {
  if (factsOf(format).storageBits !== 4) return shape;
  const last = shape.at(-1) ?? 1;
  if (last % 2 === 0) return [...shape.slice(0, -1), last / 2];
  throw new ShapeError(
    `shape [${shape}]: two ${format} codes share a byte and the last dimension, ${last}, is odd; pad it`,
  );
}

/** Returns the dtype of a file's tensor if it is f32, f16 or bf16, else undefined. */
export function wideDType({ dtype }: TensorEntry): WideDType | undefined {
  const type = tensorDType(dtype);
  return type !== undefined && isWide(type) ? type : undefined;
}

/**
 * The options by which tensors of a file are encoded. With `random-bits`, stochastic rounding reads its random bits from the
 * file.
 */
type FileEncoding = Omit<EncodeOptions, "randomBits"> & {
  readonly format: ScalarFormat;
  readonly "random-bits": boolean;
};

/**
 * Returns the piece of the output that encodes one tensor under the given name, or undefined if the tensor is not F32, F16 or
 * BF16.
 */
export function encodePiece(
  backend: Backend,
  file: TensorSource,
  entry: TensorEntry,
  options: FileEncoding,
  name = entry.name,
): Piece | undefined {
  const { shape, dtype } = entry;
  const type = wideDType(entry);
  if (!type) return undefined;
  const output = { name, dtype: codeDType(options.format), shape: codeShape(options.format, shape) };
  const size = elementCount(shape);
  // The random bits of an element depend on its index in the tensor, so stochastic rounding encodes the tensor in one piece.
  const chunk = options.rounding === "stochastic" ? size : CHUNK;
  return {
    subject: entry.name,
    outputs: [output],
    async produce(put) {
      for (let offset = 0; offset < size; offset += chunk) {
        const count = Math.min(chunk, size - offset);
        const bytes = await file.read(entry, fileBytes(dtype, [offset]), fileBytes(dtype, [offset + count]));
        const randomBits = options["random-bits"]
          ? await readRandomBits(file, entry.name, "rowwise")
          : undefined;
        const codes = encodeBytes(backend, bytes, type, options, randomBits);
        await put(name, codes, (offset * factsOf(options.format).storageBits) / 8);
      }
    },
  };
}

function encodeBytes(
  backend: Backend,
  bytes: Uint8Array,
  dtype: WideDType,
  { "random-bits": _, ...options }: FileEncoding,
  bits: Uint32Array | undefined,
): Uint8Array {
  using _scope = new Scope();
  const { randomBits } = givenRandomBits(backend, bits ? { rowwise: bits } : {});
  const x = fromBytes(backend, bytes, undefined, dtype);
  return asBytes(encodeTensor(x, { ...options, randomBits }).dataSync());
}

export const encode = defineCommand({
  name: "encode",
  summary: "encodes every F32, F16 and BF16 tensor to codes of a scalar format",
  details: [
    "Codes of 6 and 8 bits are written as U8 in the same shape. Codes of 4 bits are written as U8 with half the last dimension; the low nibble has the element with the even index. Codes of 16 bits are written as U16, and tf32 as U32 with the code in the low 19 bits. Other tensors are copied. With --random-bits stochastic rounding takes the random bits of the file's tensors NAME.random_bits, which are U32 and have a word for each element.",
  ],
  example: "model.safetensors -o codes.safetensors --format e4m3",
  inputs: ["IN"],
  options: { output: OUTPUT, format: FORMAT, ...ENCODING, ...RANDOM, ...RANDOM_BITS },
  async run({ session, values, inputs: [input = ""] }) {
    const { output, ...options } = values;
    requireStochastic(options["random-bits"], options.rounding === "stochastic", "--rounding stochastic");
    await withFile(session.files.open(input), async (file) => {
      requireOwnValues(file, ({ kind }) => kind !== "bytes");
      const backend = await session.backend();
      const entries = [...file.tensors.values()];
      const subjects = subjectsOf(recipesOf(file));
      const pieces = await planPieces(file, output, (entry) => {
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
