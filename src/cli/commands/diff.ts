/** `lockstep diff`: compares two dialects on the tensors of a file. */
import { type DialectDiff, diffDialects } from "../../dialects/diff.js";
import { DIALECT_NAMES, type DialectName } from "../../dialects/table.js";
import { FileError } from "../../errors.js";
import { BLOCK_FORMAT_NAMES, type BlockFormatName, TILES, type Tile } from "../../formats/block.js";
import { resolveFormat } from "../../formats/derive.js";
import type { ScalarFormat } from "../../formats/scalar.js";
import { someNames } from "../../io/source.js";
import { fromBytes } from "../../ops/create.js";
import { Scope } from "../../tensor/scope.js";
import { defineCommand } from "../command.js";
import { integer, oneOf, optional, value } from "../options.js";
import { withFile, withTensorName } from "../pieces.js";
import { wideDType } from "./encode.js";

/** The lines about the differences of one tensor. */
function linesOf(
  name: string,
  [a, b]: readonly [DialectName, DialectName],
  diff: DialectDiff,
): readonly string[] {
  const { scales, codes, codesOfEqualScales, values, errors, examples } = diff;
  const { quantizer, format, tile } = diff.a;
  const count = ({ different, of }: DialectDiff["codes"]): string => `${different} of ${of}`;
  const error = (side: "a" | "b"): string =>
    `${side === "a" ? a : b}: largest error ${errors[side].max}, ${errors[side].sqnr.toFixed(2)} dB`;
  return [
    `${name}: ${quantizer} ${format} ${tile}: ${count(scales)} scales, ${count(codes)} codes (${codesOfEqualScales} under equal scales), ${count(values)} values differ`,
    `  ${error("a")}; ${error("b")}`,
    ...examples.map(({ words }) => `  ${words}`),
  ];
}

export const diff = defineCommand({
  name: "diff",
  summary:
    "says how two dialects differ on the F32, F16 and BF16 tensors of a file; exits with 1 if codes, scales or values differ",
  details: [
    "A and B are dialects of lockstep dialects. Each tensor is quantized and dequantized as both libraries do it. Counts scales, codes and values that differ, gives the error of each dialect against the input (the largest one, and the signal to noise ratio), and explains the first differences.",
  ],
  example: "torchao-mxfp8-floor torchao-mxfp8-rceil model.safetensors",
  inputs: ["A", "B", "IN"],
  options: {
    tensor: optional({
      placeholder: "NAME",
      help: "compare only this tensor",
      parse: (text) => text,
    }),
    quantizer: optional<BlockFormatName>({
      placeholder: BLOCK_FORMAT_NAMES.join("|"),
      help: "quantizer, where the dialects have several (default: the first that both have); docs/cli.md has what each stores",
      parse: oneOf(BLOCK_FORMAT_NAMES),
    }),
    format: optional<ScalarFormat>({
      placeholder: "e4m3|e5m2|e2m3|e3m2",
      help: "element format (default: the first that both have); docs/numerics.md defines each",
      parse: resolveFormat,
    }),
    tile: optional<Tile>({
      placeholder: TILES.join("|"),
      help: "block of elements that share a scale (default: the first that both have); docs/cli.md lists those of each quantizer",
      parse: oneOf(TILES),
    }),
    examples: value({
      placeholder: "N",
      help: "number of differences of each kind to explain",
      parse: integer(0, 1000),
      fallback: 2,
      shown: "2",
    }),
  },
  async run({
    session,
    values: { tensor: only, ...options },
    inputs: [first = "", second = "", input = ""],
  }) {
    const [a, b] = [oneOf(DIALECT_NAMES)(first), oneOf(DIALECT_NAMES)(second)];
    const tensors = await withFile(session.files.open(input), async (file) => {
      const entries = only === undefined ? [...file.tensors.values()] : [file.entry(only)];
      const backend = await session.backend();
      const diffs: (DialectDiff & { readonly name: string })[] = [];
      for (const entry of entries) {
        const dtype = wideDType(entry);
        if (!dtype) continue;
        const bytes = await file.read(entry);
        const diff = await withTensorName(entry.name, () => {
          using _scope = new Scope();
          return diffDialects(fromBytes(backend, bytes, entry.shape, dtype), { a, b, ...options });
        });
        diffs.push({ name: entry.name, ...diff });
      }
      if (diffs.length > 0) return diffs;
      throw new FileError(
        `${file.path}: has no F32, F16 or BF16 tensor; it has ${someNames(file.tensors.keys())}`,
      );
    });
    const equal = tensors.every(
      ({ scales, codes, values }) => scales.different + codes.different + values.different === 0,
    );
    session.result(
      { a, b, equal, tensors },
      tensors.flatMap((tensor) => linesOf(tensor.name, [a, b], tensor)),
    );
    return equal ? 0 : 1;
  },
});
