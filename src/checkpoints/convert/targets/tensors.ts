/** Names, types and shapes of a weight's tensors under a target, and the layout of its scales. */
import { ShapeError } from "../../../errors.js";
import { isLineWide, isTensorWide, tileSize } from "../../../formats/block.js";
import { fileDType } from "../../../io/dtypes.js";
import type { TensorPlan } from "../../../io/header/header.js";
import { SWIZZLE_TILE } from "../../../tensor/places.js";
import type { QuantizeSpec } from "../../../tensor/quantized.js";
import { elementCount, roundUp, type Shape, type WideDType } from "../../../tensor/shape.js";
import type { Kernels } from "../../kernels/kernels.js";
import { CODE_TYPES, type CodeTypeName } from "../../stored/code-types.js";
import { type Convention, conventionOf, type ScaleKind } from "../../stored/conventions.js";
import { matricesOf } from "../../stored/weight.js";
import type { Target } from "./table.js";

/** The elements that share a scale. A weight with one scale is one block. */
export interface Blocks {
  readonly kind: ScaleKind;
  readonly size: readonly [rows: number, columns: number];
  /** The rows and columns of scales of one matrix. */
  readonly grid: readonly [rows: number, columns: number];
}

/** The tensors of a weight under a target. */
export interface OutputTensors {
  readonly type: CodeTypeName;
  readonly codes: TensorPlan;
  readonly scale: TensorPlan;
  readonly global?: TensorPlan;
  /** The number of scales in `global`: one scale, or one scale for each matrix. */
  readonly globals: number;
  readonly blocks: Blocks;
}

const WEIGHT_END = ".weight";
const FOLDED = 16;

/** The blocks of a weight: the quantizer's tiles or, without a quantizer, the groups of the convention. */
function blocksOf(row: Convention, spec: QuantizeSpec | undefined, shape: Shape): Blocks {
  const [, rows, columns] = matricesOf(shape);
  if (spec && isTensorWide(spec.tile)) return { kind: "whole", size: [rows, columns], grid: [1, 1] };
  if (spec && isLineWide(spec.tile)) return { kind: "row", size: [1, columns], grid: [rows, 1] };
  const size = spec ? tileSize(spec.tile) : ([1, row.group ?? 1] as const);
  const grid = [Math.ceil(rows / size[0]), Math.ceil(columns / size[1])] as const;
  return { kind: size[0] > 1 ? "tile" : "group", size, grid };
}

/** Returns the reason why a weight cannot have the form of a target; undefined if it can. */
export function whyUnfit(
  target: Target,
  spec: QuantizeSpec | undefined,
  name: string,
  shape: Shape,
): string | undefined {
  const row = conventionOf(target.convention);
  const hasWeightSuffix = row.codes.suffix.includes("weight");
  if (hasWeightSuffix && !name.endsWith(WEIGHT_END)) return `its name does not end in ${WEIGHT_END}`;
  if (!hasWeightSuffix && row.codes.suffix !== "" && name.endsWith(WEIGHT_END))
    return `its name ends in ${WEIGHT_END}, which ${target.convention} has not`;
  const [, rows, columns] = matricesOf(shape);
  if (row.transposedWide && shape.length !== 3)
    return `its shape is [${shape}]; matrices of experts are needed`;
  if (shape.length < 2 || rows * columns === 0) return `its shape is [${shape}]; a matrix is needed`;
  if (target.layout === "reduced" && shape.length > 2)
    return `its shape is [${shape}]; its library writes matrices alone`;
  const { kind, size, grid } = blocksOf(row, spec, shape);
  const step = target.columns ?? size[1];
  if (kind === "group" && columns % step !== 0)
    return `its last dimension ${columns} is no multiple of ${step}`;
  const cutsBlock = [rows, columns].some((length, axis) => {
    const [block = 1, count = 1] = [size[axis], grid[axis]];
    if (kind !== "tile" || length % block === 0) return false;
    return target.even === true || (target.declaration.method === "fp8" && count > 1 && length % count === 0);
  });
  return cutsBlock
    ? `${rows} rows and ${columns} columns are not whole blocks of ${size.join("x")}, by which its library reads`
    : undefined;
}

/**
 * The tensors of a weight. `source` is the type of the weight before quantization. Throws `ShapeError` for a weight that does not
 * fit.
 */
export function outputTensors(
  target: Target,
  spec: QuantizeSpec | undefined,
  { name, shape, source }: { readonly name: string; readonly shape: Shape; readonly source: WideDType },
): OutputTensors {
  const reason = whyUnfit(target, spec, name, shape);
  if (reason !== undefined) throw new ShapeError(`tensor "${name}": ${reason}`);
  const row = conventionOf(target.convention);
  const blocks = blocksOf(row, spec, shape);
  const prefix = row.codes.suffix.includes("weight") ? name.slice(0, -WEIGHT_END.length) : name;
  const leadingShape = shape.slice(0, -2);
  const type = target.type ?? codeTypeOf(row, spec);
  const [codesDType] = row.codes.dtypes;
  const wide = shape.at(-1) ?? 1;
  const last = (wide * CODE_TYPES[type].bits) / 8;
  const lastDims = row.codes.suffix === "_blocks" ? [last / FOLDED, FOLDED] : [last];
  const scaleDType = target.scale === "source" ? fileDType(source) : target.scale;
  const scaleShape =
    blocks.kind === "whole"
      ? (target.tensorScaleShape ?? [1])
      : [...leadingShape, ...gridShape(target, blocks)];
  const stacks = row.global?.stacked === true && leadingShape.some((size) => size !== 1);
  const globalShape = stacks ? leadingShape : target.global;
  return {
    type,
    globals: stacks ? elementCount(leadingShape) : 1,
    codes: {
      name: prefix + row.codes.suffix,
      dtype: codesDType ?? "U8",
      shape: [...shape.slice(0, -1), ...lastDims],
    },
    scale: { name: prefix + row.scale.suffix, dtype: scaleDType, shape: scaleShape },
    ...(row.global && target.global && globalShape
      ? { global: { name: prefix + row.global.suffix, dtype: "F32", shape: globalShape } }
      : {}),
    blocks,
  };
}

function codeTypeOf(row: Convention, spec: QuantizeSpec | undefined): CodeTypeName {
  const format = spec?.format ?? row.type;
  return (Object.keys(CODE_TYPES) as CodeTypeName[]).find((each) => each === format) ?? row.type;
}

/**
 * The shape of the scales of one matrix. Swizzled tiles are padded; torchao writes each tile of 128 x 4 scales as 32 rows of 16.
 */
function gridShape({ layout }: Target, { kind, grid: [rows, columns] }: Blocks): readonly number[] {
  if (layout === "reduced") return kind === "row" ? [rows] : [rows, 1, columns, 1];
  if (layout !== "swizzled") return [rows, columns];
  const [height, width] = SWIZZLE_TILE;
  return [roundUp(rows, height) / 4, roundUp(columns, width) * 4];
}

/**
 * Converts one-byte scales to the layout of the file. The rows of `scales` are a multiple of 128, except for the last rows of the
 * weight. The result is valid until the next call.
 */
export function inFileLayout(
  kernels: Kernels,
  { layout }: Target,
  scales: Uint8Array,
  columns: number,
): Uint8Array {
  if (layout !== "swizzled") return scales;
  const [height, width] = SWIZZLE_TILE;
  const rows = scales.length / columns;
  const out = kernels.buffer("swizzled scales", roundUp(rows, height) * roundUp(columns, width));
  const src = kernels.put("logical scales", scales);
  kernels.run("swizzle", Math.ceil(rows / height), {
    src,
    dst: out.address,
    rows,
    columns,
    rowStride: columns,
    columnStride: 1,
  });
  return out.bytes;
}
