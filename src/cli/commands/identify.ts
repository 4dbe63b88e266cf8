/** `lockstep identify`: names the dialect, rounding and layout that produced codes and scales. */
import type { Backend } from "../../backends/backend.js";
import { type Identification, identifyDialect } from "../../dialects/identify/identify.js";
import { FileError } from "../../errors.js";
import { BLOCK_FORMAT_NAMES, type BlockFormatName } from "../../formats/block.js";
import { fileFormat, tensorDType } from "../../io/dtypes.js";
import type { TensorEntry } from "../../io/header/header.js";
import { someNames, type TensorSource } from "../../io/source.js";
import { decode } from "../../ops/cast/cast.js";
import { fromBytes } from "../../ops/create.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, elementCount } from "../../tensor/shape.js";
import { hasType, type Tensor } from "../../tensor/tensor.js";
import { defineCommand } from "../command.js";
import { oneOf, optional } from "../options.js";
import { withFile } from "../pieces.js";
import { wideDType } from "./encode.js";

/** The suffixes in the names of codes, of scales and of the tensor scale by library. Specific suffixes come first. */
const CODES = [
  "rowwise.data",
  "_weight_qdata",
  "qdata",
  "weight_packed",
  "_blocks",
  "codes",
  "data",
  "weight",
];
const SCALES = [
  "rowwise.scale_inv",
  "_weight_scale",
  "weight_scale_inv",
  "weight_scale",
  "_scales",
  "scale_inv",
  "scales",
  "scale",
  "sf",
];
const OF_TENSOR = ["rowwise.amax", "per_tensor_scale", "weight_scale_2", "weight_global_scale", "amax"];

/** Finds the tensor by the first of `endings` that exactly one name has. Undefined if there is none. */
function tensorByEnding(
  file: TensorSource,
  endings: readonly string[],
  subject: string,
): TensorEntry | undefined {
  const names = [...file.tensors.keys()].filter((name) => name.startsWith(subject));
  for (const ending of endings) {
    const matches = names.filter((name) => name.endsWith(ending));
    if (matches.length === 1) return file.entry(matches[0] as string);
  }
  return undefined;
}

/** The named tensor or, without a name, the tensor found by its suffix. Throws `FileError` if there is neither. */
function entryOf(
  file: TensorSource,
  option: string,
  requestedName: string | undefined,
  endings: readonly string[],
  subject: string,
): TensorEntry {
  const name =
    requestedName === undefined ? tensorByEnding(file, endings, subject) : file.entry(requestedName);
  if (name) return name;
  throw new FileError(
    `${file.path}: no tensor is known to be its ${option} by its name; give --${option} NAME; there are ${someNames(file.tensors.keys())}`,
  );
}

/** The input: the named tensor, or the only tensor that can be quantized. */
function inputOf(file: TensorSource, requestedName: string | undefined): TensorEntry {
  const wide = [...file.tensors.values()].filter((entry) => wideDType(entry));
  const input =
    requestedName === undefined ? (wide.length === 1 ? wide[0] : undefined) : file.entry(requestedName);
  if (input && wideDType(input)) return input;
  const reason = input
    ? `"${input.name}" is ${input.dtype}, which is not quantized`
    : `it has ${wide.length} tensors of F32, F16 and BF16`;
  throw new FileError(`${file.path}: ${reason}; give --tensor NAME, one of F32, F16 or BF16`);
}

/**
 * The tensor scale or the row amaxes: the named tensor, or a tensor that is found by its suffix and has one value, or one value
 * for each row.
 */
function tensorScaleOf(
  file: TensorSource,
  requestedName: string | undefined,
  subject: string,
  [rows]: readonly [rows: number, columns: number],
): TensorEntry | undefined {
  const match =
    requestedName === undefined ? tensorByEnding(file, OF_TENSOR, subject) : file.entry(requestedName);
  if (!match) return undefined;
  if (requestedName === undefined)
    return wideDType(match) && [1, rows].includes(elementCount(match.shape)) ? match : undefined;
  if (wideDType(match)) return match;
  throw new FileError(
    `${file.path}: "${match.name}" is ${match.dtype}; give --tensor-scale NAME, one of F32, F16 or BF16`,
  );
}

/** Reads a tensor and returns a function that creates it on a backend. Dtypes that the library lacks become u8. */
async function readTensor(file: TensorSource, entry: TensorEntry): Promise<(backend: Backend) => Tensor> {
  const dtype = tensorDType(entry.dtype);
  if (!dtype && entry.dtype !== "I8" && fileFormat(entry.dtype) === undefined)
    throw new FileError(`${file.path}: tensor "${entry.name}": is ${entry.dtype}; codes and scales are not`);
  const bytes = await file.read(entry);
  const shape = dtype || bytes.length === elementCount(entry.shape) ? entry.shape : [bytes.length];
  return (backend) => fromBytes(backend, bytes, shape, dtype ?? "u8");
}

function identifiedIn(
  backend: Backend,
  read: readonly ((backend: Backend) => Tensor)[],
  quantizer: BlockFormatName | undefined,
): Identification {
  using _scope = new Scope();
  const [x, codes, scales, wideScale] = read.map((make) => make(backend)) as [
    Tensor,
    Tensor,
    Tensor,
    Tensor?,
  ];
  const tensorScale = wideScale && (hasType(wideScale, "f32") ? wideScale : decode(wideScale));
  return identifyDialect(x, { codes, scales, tensorScale, quantizer });
}

/** The lines of the result: the identification, and the reasons why other dialects are excluded. */
function linesOf({ words, readings, excluded }: Identification, isQuiet: boolean): readonly string[] {
  const alternatives = readings.slice(1, 6).map((each) => `  or: ${each.words}`);
  const because = excluded.map(({ dialect, because: reason }) => `  not ${dialect}: ${reason}`);
  return [words, ...alternatives, ...(isQuiet ? [] : because)];
}

export const identify = defineCommand({
  name: "identify",
  summary:
    "finds which dialect, scale rule, rounding and layout made codes and scales, by exclusion; exits with 1 if nothing explains them all",
  details: [
    "IN has the tensor that was quantized, OUT its codes and scales, under any names. Names every dialect that explains every bit, so that none is named wrongly, and says of each other what contradicts it. It also knows scale rules and roundings that no dialect has, swapped nibbles, and scales that are swizzled, transposed, padded or reciprocals.",
  ],
  example:
    "model.safetensors quantized.safetensors --tensor w --codes w.rowwise.data --scales w.rowwise.scale_inv",
  inputs: ["IN", "OUT"],
  options: {
    tensor: optional({
      placeholder: "NAME",
      help: "tensor of IN that was quantized (default: its only one)",
      parse: (text) => text,
    }),
    codes: optional({
      placeholder: "NAME",
      help: "tensor of OUT with the codes (default: by its name)",
      parse: (text) => text,
    }),
    scales: optional({
      placeholder: "NAME",
      help: "tensor of OUT with the scales (default: by its name)",
      parse: (text) => text,
    }),
    "tensor-scale": optional({
      placeholder: "NAME",
      help: "tensor of OUT with the scale or the amax of the whole tensor, or the amaxes of its rows (default: by its name, if there is one)",
      parse: (text) => text,
    }),
    quantizer: optional<BlockFormatName>({
      placeholder: BLOCK_FORMAT_NAMES.join("|"),
      help: "quantizer, if it is known (default: every one that the bytes allow); docs/cli.md has what each stores",
      parse: oneOf(BLOCK_FORMAT_NAMES),
    }),
  },
  async run({ session, values, inputs: [input = "", output = ""] }) {
    const identification = await withFile(session.files.open(input), (source) =>
      withFile(session.files.open(output), async (quantized) => {
        const entry = inputOf(source, values.tensor);
        const subject = [...quantized.tensors.keys()].some((name) => name.startsWith(`${entry.name}.`))
          ? `${entry.name}.`
          : "";
        const codes = entryOf(quantized, "codes", values.codes, CODES, subject);
        const scales = entryOf(quantized, "scales", values.scales, SCALES, subject);
        const tensorScale = tensorScaleOf(quantized, values["tensor-scale"], subject, asMatrix(entry.shape));
        const read = [
          await readTensor(source, entry),
          await readTensor(quantized, codes),
          await readTensor(quantized, scales),
          ...(tensorScale ? [await readTensor(quantized, tensorScale)] : []),
        ];
        return identifiedIn(await session.backend(), read, values.quantizer);
      }),
    );
    session.result(identification, linesOf(identification, session.general.quiet));
    return identification.readings.length > 0 ? 0 : 1;
  },
});
