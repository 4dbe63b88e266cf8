/**
 * Every convention of checkpoints with scales of every type: `verify` and `convert` both read a scale as its type defines, or
 * both refuse it with a reason. Conversion to another convention keeps the codes and scales if it can hold them.
 */
import { join } from "node:path";
import { expect, it } from "vitest";
import { DIALECT_TARGETS, parseTarget } from "../../../src/checkpoints/convert/targets/named.js";
import type { Target } from "../../../src/checkpoints/convert/targets/table.js";
import { CODE_TYPES } from "../../../src/checkpoints/stored/code-types.js";
import { conventionOf, type ScaleKind } from "../../../src/checkpoints/stored/conventions.js";
import { quantizerOf } from "../../../src/dialects/quantizer-of.js";
import { FileError, LockstepError } from "../../../src/errors.js";
import { isLineWide, isTensorWide, tileSize } from "../../../src/formats/block.js";
import { valueOfCode } from "../../../src/formats/derive.js";
import type { FileDType } from "../../../src/io/dtypes.js";
import { swizzledIndex } from "../../../src/tensor/places.js";
import {
  type ConversionReport,
  convertTo,
  errorsIn,
  inFolder,
  readContents,
  reportOf,
  type StoredTensor,
  transpose,
  valuesIn,
  writeContents,
} from "../checkpoints/files/checkpoints.js";
import {
  addWeight,
  configFor,
  contentsOf,
  drawsFrom,
  type ExpectedWeight,
  FORMS,
  type Form,
  GROUP,
} from "../checkpoints/files/drawn-files.js";
import { sampleCases } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1 });
const MODULE = "model.layers.0.self_attn.o_proj";
const COLUMNS = 128;

/** The rows of a weight: more than one tile, or a few. */
const rowsOf = ({ kind }: Form): number => (kind === "tile" ? 256 : 32);

const DTYPES: readonly FileDType[] = [
  "F64",
  "F32",
  "BF16",
  "F16",
  "F8_E8M0",
  "F8_E4M3",
  "F8_E5M2",
  "F8_E4M3FNUZ",
  "U8",
  "I8",
];

/** The numbers of a tensor of scales, by its type only. */
function numbersOf({ dtype, bytes }: StoredTensor, table: Float32Array | undefined): readonly number[] {
  const { buffer } = bytes.slice();
  if (table) return Array.from(bytes, (byte) => table[byte] as number);
  switch (dtype) {
    case "F64":
      return [...new Float64Array(buffer)];
    case "F32":
      return [...new Float32Array(buffer)];
    case "BF16":
      return Array.from(new Uint16Array(buffer), (code) => valueOfCode("bf16", code));
    case "F16":
      return Array.from(new Uint16Array(buffer), (code) => valueOfCode("f16", code));
    case "F8_E4M3":
      return Array.from(bytes, (code) => valueOfCode("e4m3", code));
    case "F8_E5M2":
      return Array.from(bytes, (code) => valueOfCode("e5m2", code));
    case "F8_E4M3FNUZ":
      return Array.from(bytes, (code) => valueOfCode("e4m3fnuz", code));
    case "I8":
      return [...new Int8Array(buffer)];
    default:
      return Array.from(bytes, (byte) => 2 ** (byte - 127));
  }
}

/** The index of the scale of an element. */
function scaleIndex({ name, kind }: Form, row: number, column: number): number {
  const { group = GROUP, block = [128, 128], swizzles } = conventionOf(name);
  switch (kind) {
    case "whole":
      return 0;
    case "row":
      return row;
    case "column":
      return column;
    case "tile":
      return Math.floor(row / block[0]) * Math.ceil(COLUMNS / block[1]) + Math.floor(column / block[1]);
    case "group": {
      const place = Math.floor(column / group);
      return swizzles ? swizzledIndex(row, place, COLUMNS / group) : row * (COLUMNS / group) + place;
    }
  }
}

/** The values of a weight: a code times the f32 product or quotient of its scale and the global scale. */
function expectedValues(
  form: Form,
  { codes }: ExpectedWeight,
  tensors: ReadonlyMap<string, StoredTensor>,
): Float64Array {
  const { scale, global, type } = conventionOf(form.name);
  const scales = numbersOf(tensors.get(MODULE + scale.suffix) as StoredTensor, scale.values);
  const factor = global
    ? (numbersOf(tensors.get(MODULE + global.suffix) as StoredTensor, undefined)[0] ?? 1)
    : 1;
  return Float64Array.from(codes, (code, i) => {
    const blockScale = scales[scaleIndex(form, Math.floor(i / COLUMNS), i % COLUMNS)] as number;
    const totalScale = Math.fround(global?.role === "divisor" ? blockScale / factor : blockScale * factor);
    return (CODE_TYPES[type].values[code] as number) * totalScale;
  });
}

/** Draws a weight and writes its checkpoint. Returns the values under the scales' types. */
async function writeWeight(folder: string, form: Form, dtype: FileDType): Promise<Float64Array> {
  const tensors = new Map<string, StoredTensor>();
  const draw = drawsFrom(dtype.length + form.name.length);
  const meant = addWeight(tensors, MODULE, form, [rowsOf(form), COLUMNS], draw, { scale: dtype });
  await writeContents(folder, contentsOf(tensors, configFor(form)));
  return expectedValues(form, meant, tensors);
}

const CASES = FORMS.flatMap((form) => DTYPES.map((dtype) => [form.name, form.kind, dtype, form] as const));

it.each(sampleCases(CASES, 10))(
  "%s, a scale for each %s, in %s: read or refused",
  async (_, __, dtype, form) => {
    await inFolder(async (folder) => {
      const values = await writeWeight(folder, form, dtype);
      const output = join(folder, "wide");
      const isTransposed = conventionOf(form.name).transposedWide === true;
      const isOfConvention = conventionOf(form.name).scale.dtypes.includes(dtype);
      const errors = errorsIn((await reportOf(folder)).findings);
      let refusal: unknown;
      try {
        await convertTo(backend(), folder, output, "f32");
      } catch (error) {
        refusal = error;
      }
      expect(refusal === undefined, `${refusal}`).toBe(errors.length === 0);
      if (isOfConvention) expect({ errors, refusal }).toEqual({ errors: [], refusal: undefined });
      if (refusal !== undefined) {
        expect(refusal).toBeInstanceOf(LockstepError);
        return;
      }
      const [wideTensor] = (await readContents(output)).tensors.values();
      expect(new Float32Array((wideTensor as StoredTensor).bytes.slice().buffer)).toEqual(
        Float32Array.from(isTransposed ? transpose(values, rowsOf(form), COLUMNS) : values),
      );
    });
  },
);

/** The kind of the scales of a target. */
function kindOf({ dialect }: Target): ScaleKind {
  const tile = dialect && quantizerOf({ dialect }).spec.tile;
  if (tile === undefined) return "group";
  return isTensorWide(tile) ? "whole" : isLineWide(tile) ? "row" : tileSize(tile)[0] > 1 ? "tile" : "group";
}

/** Whether a target has the same codes, the same or finer blocks, and a type that holds all scales. */
function canHold(form: Form, dtype: FileDType, target: Target): boolean {
  const from = conventionOf(form.name);
  const targetConvention = conventionOf(target.convention);
  const type = target.type ?? targetConvention.type;
  if (type !== from.type && !(from.type === "e2m1x2" && type === "e2m1")) return false;
  if (targetConvention.container && target.declaration.method !== "gguf") return false;
  const kind = kindOf(target);
  const isNested = kind === form.kind || (form.kind === "whole" && (kind === "row" || kind === "tile"));
  if (!isNested || (kind === "group" && targetConvention.group !== (from.group ?? GROUP))) return false;
  if (from.global && !targetConvention.global) return false;
  if ("scaleFormat" in target.declaration) return false;
  if (target.scale === "source" || target.scale === "F32") return target.scale === "F32" || isWide(dtype);
  const bytes = (fileDtype: FileDType): FileDType =>
    fileDtype === "U8" && !from.scale.values ? "F8_E8M0" : fileDtype;
  return (
    bytes(dtype) === bytes(target.scale) || (from.scale.values !== undefined && target.scale === "F8_E4M3")
  );
}

const isWide = (dtype: FileDType): boolean => ["F32", "BF16", "F16"].includes(dtype);

const CARRIED = FORMS.flatMap((form) =>
  conventionOf(form.name).scale.dtypes.flatMap((dtype) => {
    const targets = DIALECT_TARGETS.filter((name) => {
      const { dialectTarget } = parseTarget(name);
      return dialectTarget !== undefined && canHold(form, dtype, dialectTarget);
    });
    return targets.length > 0 ? [[form.name, form.kind, dtype, form, targets] as const] : [];
  }),
);

it.each(sampleCases(CARRIED, 4))(
  "%s, a scale for each %s, in %s: repacked without a change wherever a target can hold it",
  async (_, __, dtype, form, targets) => {
    await inFolder(async (folder) => {
      const values = await writeWeight(folder, form, dtype);
      for (const target of targets) {
        const out = join(folder, target);
        const conversion = await convertOrRefuse(folder, out, target);
        if (!conversion) continue;
        const { changes } = conversion;
        expect([target, changes]).toMatchObject([target, [{ method: "repacked", elements: values.length }]]);
        if (changes[0]?.changed !== 0)
          expect([target, dividesOtherwise(form, target)]).toEqual([target, true]);
        else {
          const [repacked = new Float64Array()] = (await valuesIn(out)).values();
          // GGUF has no -0
          const expected = target.startsWith("gguf") ? values.map((value) => value + 0) : values;
          expect(repacked, target).toEqual(expected);
        }
      }
    });
  },
);

/** Converts a checkpoint; undefined if files of the target cannot have the weight's name or shape. */
async function convertOrRefuse(
  folder: string,
  out: string,
  target: string,
): Promise<ConversionReport | undefined> {
  try {
    return await convertTo(backend(), folder, out, target);
  } catch (error) {
    expect(error).toBeInstanceOf(FileError);
    expect(String(error)).toMatch(/ cannot be .*: (its name|its shape|\d+ rows)/);
    return undefined;
  }
}

/** Whether one of the convention and the target multiplies by the global scale, and the other divides by it. */
function dividesOtherwise(form: Form, target: string): boolean {
  const targetDialect = parseTarget(target).dialectTarget;
  return (
    targetDialect !== undefined &&
    conventionOf(targetDialect.convention).global?.role !== conventionOf(form.name).global?.role
  );
}
