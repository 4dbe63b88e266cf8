/** The operands of `lockstep gemm` in files: plain tensors, tensors with scales, or tensors that `quantize` wrote. */
import type { Backend } from "../../backends/backend.js";
import { GEMM_OUT_DTYPES } from "../../backends/ops/gemm.js";
import { FileError } from "../../errors.js";
import { isTensorWide, scaleGrid, type Tile } from "../../formats/block.js";
import { tensorDType } from "../../io/dtypes.js";
import type { TensorEntry } from "../../io/header/header.js";
import type { Holder } from "../../io/holder.js";
import { readQuantized } from "../../io/quantized/quantized-file.js";
import { recipeKey } from "../../io/quantized/recipe.js";
import { parseRecipe } from "../../io/quantized/recipe-parser.js";
import type { TensorSource } from "../../io/source.js";
import { fromBytes } from "../../ops/create.js";
import { type GemmInput, SCALED_TILES, type ScaledTensor } from "../../ops/gemm/operand.js";
import { asMatrix, type DType, isWide, type Shape, sameShape, type WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";

/** An operand from a file. A holder owns its tensors. */
export interface Operand {
  readonly name: string;
  readonly input: GemmInput;
  /** The number of rows and the number of elements along K. */
  readonly matrix: readonly [rows: number, depth: number];
  /** The block that shares a scale. Absent if there are no block scales. */
  readonly tile?: Tile;
  /** A description of the operand for messages. */
  readonly what: string;
}

/** Several files in which tensors are looked up by name. */
export class Sources {
  constructor(private readonly files: readonly TensorSource[]) {}

  /** Returns the file that has the tensor; undefined if no file has it. Throws `FileError` if two files have it. */
  find(name: string): TensorSource | undefined {
    const [file, second] = this.files.filter(({ tensors }) => tensors.has(name));
    if (!file || !second) return file;
    throw new FileError(`tensor "${name}": ${file.path} and ${second.path} both have it; one may`);
  }

  /** Returns the file that has the tensor. Throws `FileError` with `hint` if no file has it or two files have it. */
  requireInput(name: string, hint: string): TensorSource {
    const file = this.find(name);
    if (file) return file;
    throw this.missing(name, hint);
  }

  /** Returns the error for a tensor that no file has. */
  missing(name: string, hint: string): FileError {
    const paths = this.files.map(({ path }) => path).join(", ");
    return new FileError(`${paths}: tensor "${name}" is needed and not there; ${hint}`);
  }

  /** Reads an F32, BF16 or F16 tensor of this shape. Throws `FileError` for another dtype or shape. */
  async readWide(backend: Backend, name: string, shape: Shape, hint: string): Promise<Tensor<WideDType>> {
    const file = this.requireInput(name, hint);
    const entry = file.entry(name);
    const dtype = tensorDType(entry.dtype);
    if (dtype === undefined || !isWide(dtype) || !sameShape(entry.shape, shape)) {
      throw new FileError(
        `${file.path}: tensor "${name}": is ${entry.dtype} [${entry.shape}]; it must be F32, BF16 or F16 [${shape}]`,
      );
    }
    return fromBytes(backend, await file.read(entry), shape, dtype);
  }
}

/** The names that input and weight may have in files. */
const PAIRS = [
  ["x", "w"],
  ["a", "b"],
] as const;

/**
 * Returns the names of the input and of the weight, each with `prefix`. Throws `FileError` if the files have tensors of both
 * pairs of names, or of neither pair.
 */
export function operandNames(sources: Sources, prefix: string): readonly [input: string, weight: string] {
  const isThere = (name: string): boolean =>
    ["", ".rowwise.data", ".columnwise.data"].some((suffix) => sources.find(name + suffix));
  const pairs = PAIRS.map(([input, weight]) => [prefix + input, prefix + weight] as const);
  const [pair, second] = pairs.filter((names) => names.some(isThere));
  if (pair && second) {
    const names = [...pair, ...second].filter(isThere).map((name) => `"${name}"`);
    const [currentNames, legacyNames] = pairs.map((pair) => pair.map((name) => `"${name}"`).join(" and "));
    throw new FileError(
      `tensors ${names.join(", ")}: operands are ${currentNames}, or ${legacyNames}; give one pair alone`,
    );
  }
  if (pair) return pair;
  throw sources.missing(`${prefix}x`, `give "${prefix}x" and "${prefix}w", or "${prefix}a" and "${prefix}b"`);
}

/** Reads the operand `name`, plain or quantized. Throws `FileError` if it is missing or cannot be multiplied. */
export async function readOperand(
  backend: Backend,
  sources: Sources,
  name: string,
  holder: Holder,
): Promise<Operand> {
  const source = sources.find(name);
  const quantized = sources.find(`${name}.rowwise.data`);
  if (source && quantized) {
    throw new FileError(
      `tensor "${name}": both "${name}" (${source.path}) and "${name}.rowwise.data" (${quantized.path}) are there; give one`,
    );
  }
  if (quantized) return readRowwise(backend, quantized, name, holder);
  const file = sources.requireInput(
    name,
    `give "${name}", or "${name}.rowwise.data" and "${name}.rowwise.scale_inv" as quantize writes them`,
  );
  return readPlain(backend, file, sources, name, holder);
}

async function readRowwise(
  backend: Backend,
  file: TensorSource,
  name: string,
  holder: Holder,
): Promise<Operand> {
  const text = file.metadata[recipeKey(name)];
  if (text === undefined) {
    throw new FileError(
      `${file.path}: tensor "${name}.rowwise.data": metadata ${recipeKey(name)} are needed and not there; quantize writes them`,
    );
  }
  const recipe = parseRecipe(file.path, name, text);
  const matrix = asMatrix(recipe.shape);
  const flat = { ...recipe, shape: matrix };
  const input = await readQuantized({ backend, file, holder }, name, flat, "rowwise");
  const { quantizer, format, tile } = recipe.spec;
  const blocks = isTensorWide(tile) ? {} : { tile };
  return {
    name,
    input,
    matrix,
    what: `${quantizer} ${format}${isTensorWide(tile) ? "" : ` ${tile}`} [${matrix}]`,
    ...blocks,
  };
}

const PLAIN_TYPES: readonly (DType | undefined)[] = GEMM_OUT_DTYPES;

async function readPlain(
  backend: Backend,
  file: TensorSource,
  sources: Sources,
  name: string,
  holder: Holder,
): Promise<Operand> {
  const entry = file.entry(name);
  const dtype = tensorDType(entry.dtype);
  const description = `${entry.dtype} [${entry.shape}]`;
  if (!dtype || !PLAIN_TYPES.includes(dtype)) {
    throw new FileError(
      `${file.path}: tensor "${name}": is ${description}; it must be F8_E4M3, F8_E5M2, BF16, F16 or F32`,
    );
  }
  const matrix = asMatrix(entry.shape);
  const scaleName = `${name}.scale_inv`;
  const scaleFile = sources.find(scaleName);
  if (!scaleFile)
    return {
      name,
      input: holder.hold(fromBytes(backend, await file.read(entry), matrix, dtype)),
      matrix,
      what: description,
    };
  if (isWide(dtype)) {
    throw new FileError(
      `${file.path}: tensor "${name}": is ${description} and has "${scaleName}"; scales go with F8_E4M3 and F8_E5M2`,
    );
  }
  const scale = scaleFile.entry(scaleName);
  const tile = tileOf(file, scaleFile, entry, scale);
  const data = holder.hold(fromBytes(backend, await file.read(entry), matrix, dtype));
  const scaleInv = holder.hold(fromBytes(backend, await scaleFile.read(scale), scale.shape, "f32"));
  const input: ScaledTensor = { data, scaleInv, tile };
  return {
    name,
    input,
    matrix,
    what: `${description} with scales ${scale.dtype} [${scale.shape}]`,
    ...(isTensorWide(tile) ? {} : { tile }),
  };
}

/**
 * Returns the tile whose elements share a scale, for a plain tensor with scales. The metadata determine the tile if they name it;
 * otherwise the shape of the scales does. If this shape fits both 1x128 and 128x128, the result is 1x128.
 */
function tileOf(
  file: TensorSource,
  scaleFile: TensorSource,
  { name, shape }: TensorEntry,
  scale: TensorEntry,
): NonNullable<ScaledTensor["tile"]> {
  const [rows, depth] = asMatrix(shape);
  const shapeOf = (tile: Tile): Shape => (isTensorWide(tile) ? [1] : scaleGrid(tile, rows, depth));
  const text = file.metadata[recipeKey(name)];
  const recipeTile = text === undefined ? undefined : parseRecipe(file.path, name, text).spec.tile;
  const tiles = SCALED_TILES.filter((tile) => recipeTile === undefined || tile === recipeTile);
  const tile = tiles.find((each) => sameShape(shapeOf(each), scale.shape));
  if (tile && scale.dtype === "F32") return tile;
  const expected = tiles
    .map((each) => `[${shapeOf(each)}]${isTensorWide(each) ? "" : ` for ${each}`}`)
    .join(" or ");
  throw new FileError(
    `${scaleFile.path}: tensor "${scale.name}": is ${scale.dtype} [${scale.shape}]; it must be F32 ${expected}`,
  );
}
