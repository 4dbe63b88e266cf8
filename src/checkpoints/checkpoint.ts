/** An open checkpoint, as `openCheckpoint` and `openCheckpointBlob` return it. */

import type { Backend } from "../backends/backend.js";
import { requireBackend } from "../backends/backend.js";
import { guardReceivers, isObject } from "../brand.js";
import { ArgumentError, FileError } from "../errors.js";
import { blockFormat } from "../formats/block.js";
import type { ScalarFormat } from "../formats/scalar.js";
import { tensorDType } from "../io/dtypes.js";
import type { TensorEntry } from "../io/header/header.js";
import { readQuantizedRegion, regionStep } from "../io/quantized/quantized-region.js";
import { someNames } from "../io/source.js";
import { describe, text } from "../options.js";
import type { QuantizedTensor } from "../tensor/quantized.js";
import { asMatrix, isWide, type Shape } from "../tensor/shape.js";
import type { Finding } from "./judge/findings.js";
import type { RecognizedElementwise } from "./recognize/elementwise-weights.js";
import { declares, type RecognizedWeight, type UnfitWeight } from "./recognize/recognize.js";
import { readPlainRegion } from "./regions/plain.js";
import { type MatrixRegion, requireRegion } from "./regions/region.js";
import { readWeightRegion, type WeightRegion } from "./regions/weight.js";
import { type LockstepWeightReport, lockstepReport } from "./report.js";
import { type CodeTypeName, scalarFormatOf } from "./stored/code-types.js";
import { type Claim, type ConfigClaim, summaryOfClaim } from "./stored/config/claim.js";
import { type ConventionName, conventionOf, type ScaleKind } from "./stored/conventions.js";
import { dequantizedRows } from "./stored/dequantize.js";
import { isElementwise } from "./stored/elementwise.js";
import type { CheckpointFiles } from "./stored/files.js";
import type { LockstepWeight } from "./stored/lockstep-weights.js";
import type { StoredTensor } from "./stored/tensors.js";
import { matricesOf } from "./stored/weight.js";
import { surveyFiles } from "./survey.js";
import { lockstepRows } from "./values/lockstep.js";
import { plainRows, type WeightRows } from "./values/rows.js";

/** A quantized weight of another library: its convention, shape and tensors. */
export interface StoredWeight {
  /** The name of the weight before quantization. */
  readonly name: string;
  /** The convention of the tensors. */
  readonly convention: ConventionName;
  /** Every convention that the tensors fit; `convention` comes first. */
  readonly fits: readonly ConventionName[];
  /** Whether the configuration declares the convention. */
  readonly isDeclared: boolean;
  /** The code type. */
  readonly type: CodeTypeName;
  /** The scalar format whose codes have the same values; absent if there is none. */
  readonly format?: ScalarFormat;
  /** The shape before quantization. */
  readonly shape: Shape;
  /** The elements that share a scale. */
  readonly scaleKind: ScaleKind;
  /** The rows and columns that share a scale. */
  readonly block: readonly [number, number];
  /** Whether scales lie in the swizzled layout of tensor cores. */
  readonly swizzled: boolean;
  /** Whether each element has one code, in row-major order, without zero points, a group index of columns or column factors. */
  readonly isElementwise: boolean;
  /** The tensor of codes. */
  readonly codes: TensorEntry;
  /** The tensor of scales. */
  readonly scale: TensorEntry;
  /** The tensor of global scales; absent if the weight has none. */
  readonly global?: TensorEntry;
  /** Whether values are multiplied or divided by the global scale; absent if the weight has none. */
  readonly globalRole?: "multiplier" | "divisor";
  /** The names of the weight's tensors of zero points, group indices of columns (`g_idx`) and column factors. */
  readonly companions: readonly string[];
}

/** The fields of an open checkpoint. */
interface CheckpointParts extends RecognizedElementwise {
  readonly path: string;
  readonly files: CheckpointFiles;
  readonly claim: Claim | undefined;
  readonly findings: readonly Finding[];
  readonly close: () => Promise<void>;
}

/**
 * An open checkpoint. Weights are recognized by the names, types and shapes of their tensors and by the configuration. Call
 * `close` at the end.
 *
 *     for await (const { row, rows, values } of checkpoint.rows("model.layers.0.mlp.up_proj.weight")) ...
 */
export class Checkpoint {
  /** The path that was opened, or the name of a blob. */
  readonly path: string;
  /** All tensors by name. If several shards have a tensor, the entry of the first shard. */
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  /** The quantized weights of other libraries, by name. */
  readonly weights: ReadonlyMap<string, StoredWeight>;
  /** The tensors that this library quantized, by name. */
  readonly lockstepWeights: ReadonlyMap<string, LockstepWeightReport>;
  /** The quantized weights whose scales do not fit their codes. */
  readonly unfit: readonly UnfitWeight[];
  /** The names of the tensors that are not quantized and do not belong to a quantized weight. */
  readonly unquantized: readonly string[];
  /** The quantization that the configuration claims; undefined if there is none. */
  readonly claim: ConfigClaim | undefined;
  /** The errors, warnings and notes that do not depend on codes. */
  readonly findings: readonly Finding[];
  readonly #weights: ReadonlyMap<string, RecognizedWeight>;
  readonly #lockstepWeights: ReadonlyMap<string, LockstepWeight>;
  readonly #plain: ReadonlyMap<string, StoredTensor>;
  readonly #files: CheckpointFiles;
  readonly #close: () => Promise<void>;

  static {
    guardReceivers(this, (x) => isObject(x) && #weights in x);
  }

  private constructor({ path, files, claim, recognized, storedWeights, findings, close }: CheckpointParts) {
    this.path = path;
    this.tensors = new Map([...files.tensors].map(([name, { entry }]) => [name, entry]));
    this.weights = new Map(storedWeights.map((weight) => [weight.name, storedWeight(weight, claim)]));
    this.lockstepWeights = new Map(
      recognized.lockstepWeights.map(({ name, recipe }) => [name, lockstepReport(recipe)]),
    );
    this.unfit = recognized.unfit;
    this.unquantized = recognized.plain.map(({ entry }) => entry.name);
    this.claim = claim && summaryOfClaim(claim);
    this.findings = findings;
    this.#weights = new Map(recognized.weights.map((weight) => [weight.name, weight]));
    this.#lockstepWeights = new Map(recognized.lockstepWeights.map((weight) => [weight.name, weight]));
    this.#plain = new Map(recognized.plain.map((tensor) => [tensor.entry.name, tensor]));
    this.#files = files;
    this.#close = close;
  }

  /** @internal */
  static of(parts: CheckpointParts): Checkpoint {
    return new Checkpoint(parts);
  }

  /** @internal The files of a checkpoint, which is the argument of the function `user`. */
  static filesOf(user: string, checkpoint: unknown): CheckpointFiles {
    if (isObject(checkpoint) && #files in checkpoint) return (checkpoint as Checkpoint).#files;
    throw new ArgumentError(`${user}: checkpoint is ${describe(checkpoint)}; it must be a Checkpoint`);
  }

  /**
   * Reads the values of a weight a few rows at a time, in order. The weight is quantized, [..., N, K], or a tensor of type F32,
   * BF16 or F16. Values of other libraries' weights are the exact products of codes and scales; NaN codes and NaN scales give
   * NaN. Weights that this library quantized have the f32 values of `dequantize`; all of their values are in memory at once. An
   * empty weight has no rows.
   *
   * @throws `ArgumentError` if `name` is not a string, `FileError` if the checkpoint has no such weight, if the tensor has
   * another type or belongs to a quantized weight, and if a file cannot be read.
   */
  rows(name: string): AsyncGenerator<WeightRows, undefined> {
    text("rows", "name", name);
    const weight = this.#weights.get(name);
    if (weight) return dequantizedWeightRows(weight);
    const lockstepWeight = this.#lockstepWeights.get(name);
    if (lockstepWeight) return lockstepRows(lockstepWeight);
    const tensor = this.#plain.get(name);
    if (!tensor) throw this.#absent("a weight", name, this.#weightNames());
    const { entry } = tensor;
    const type = tensorDType(entry.dtype);
    if (type !== undefined && isWide(type)) return plainRows(tensor, type);
    throw new FileError(
      `${this.path}: tensor "${name}": is ${entry.dtype}; rows reads F32, BF16, F16 and quantized weights; read it by readTensor`,
    );
  }

  /**
   * Reads the codes, scales and values of a region of a quantized weight of another library. The region lies within one of its
   * matrices.
   *
   * @throws `ArgumentError` if `name` is not a string or the region does not lie within one matrix, `FileError` if there is no
   * such weight or a file cannot be read.
   */
  async readWeight(name: string, region: MatrixRegion): Promise<WeightRegion> {
    text("readWeight", "name", name);
    const weight = this.#weights.get(name);
    if (!weight) throw this.#absent("a quantized weight of another library", name, this.weights.keys());
    const [matrices, rows, columns] = matricesOf(weight.shape);
    const checkedRegion = requireRegion("readWeight", region, [matrices * rows, columns]);
    if ((checkedRegion.row % rows) + checkedRegion.rows > rows)
      throw new ArgumentError(
        `readWeight: region has rows of two matrices, ${rows} rows each; read each matrix by itself`,
      );
    return readWeightRegion(weight, checkedRegion);
  }

  /**
   * Reads a region of a tensor that this library quantized, onto a backend. The result is a rowwise copy with scales in the
   * logical layout; the caller disposes of it. The first row of the region is a multiple of the tile's rows. The first column is
   * a multiple of the tile's columns and of the column multiple of the quantizer; if one scale belongs to a tensor or a row, it
   * is a multiple of 2 instead of the tile's columns. The number of columns is a multiple of the column multiple of the
   * quantizer.
   *
   * @throws `ArgumentError` for a `name` that is not a string, an invalid backend or region, `DisposedError` for a disposed
   * backend, `FileError` if there is no such tensor or no rowwise copy, or a file cannot be read.
   */
  async readQuantized(name: string, backend: Backend, region: MatrixRegion): Promise<QuantizedTensor> {
    text("readQuantized", "name", name);
    requireBackend("readQuantized", backend);
    const weight = this.#lockstepWeights.get(name);
    if (!weight)
      throw this.#absent("a weight that this library quantized", name, this.lockstepWeights.keys());
    const { recipe, shard } = weight;
    const checkedRegion = requireRegion("readQuantized", region, asMatrix(recipe.shape));
    const [rowStep, columnStep] = regionStep(recipe.spec);
    if (checkedRegion.row % rowStep !== 0 || checkedRegion.column % columnStep !== 0)
      throw new ArgumentError(
        `readQuantized: region begins at [${checkedRegion.row}, ${checkedRegion.column}]; its row must be a multiple of ${rowStep}, its column of ${columnStep}`,
      );
    const { multiple } = blockFormat(recipe.spec.quantizer);
    if (checkedRegion.columns % multiple !== 0)
      throw new ArgumentError(
        `readQuantized: region has ${checkedRegion.columns} columns; ${recipe.spec.quantizer} takes a multiple of ${multiple}`,
      );
    return readQuantizedRegion(backend, shard, name, recipe, checkedRegion);
  }

  /**
   * Reads a region of any tensor of the files, row by row, as f32. Integers and f64 are rounded. Complex numbers give their real
   * parts. Elements of 8 bits and less give the values of their codes, without scales.
   *
   * @throws `ArgumentError` if `name` is not a string or the region does not lie within the tensor, `FileError` if there is no
   * such tensor or a file cannot be read.
   */
  async readTensor(name: string, region: MatrixRegion): Promise<Float32Array> {
    text("readTensor", "name", name);
    const tensor = this.#files.tensors.get(name);
    if (!tensor) throw this.#absent("a tensor", name, this.tensors.keys());
    const { shape } = tensor.entry;
    const columns = shape.at(-1) ?? 1;
    const rows = shape.slice(0, -1).reduce((product, size) => product * size, 1);
    return readPlainRegion(tensor, requireRegion("readTensor", region, [rows, columns]));
  }

  /** Closes the files; later reads throw `FileError`. */
  async close(): Promise<void> {
    await this.#close();
  }

  #weightNames(): readonly string[] {
    return [...this.weights.keys(), ...this.lockstepWeights.keys(), ...this.unquantized];
  }

  #absent(kind: string, name: string, names: Iterable<string>): FileError {
    return new FileError(`${this.path}: ${describe(name)} is not ${kind}; there are ${someNames(names)}`);
  }
}

/** Recognizes the tensors of open files. `as` forces one convention on every weight. If that fails, closes the files. */
export async function checkpointOf(files: CheckpointFiles, as?: ConventionName): Promise<Checkpoint> {
  try {
    const survey = await surveyFiles(files, as);
    const { claim, storedWeights, findings } = survey;
    const { path } = files;
    const close = (): Promise<void> => files.close();
    return Checkpoint.of({ recognized: survey, storedWeights, findings, path, files, claim, close });
  } catch (error) {
    await files.close();
    throw error;
  }
}

async function* dequantizedWeightRows(weight: RecognizedWeight): AsyncGenerator<WeightRows, undefined> {
  const [, , columns] = matricesOf(weight.shape);
  for await (const { at, values } of dequantizedRows(weight))
    yield { row: at / columns, rows: values.length / columns, columns, values };
}

function storedWeight(weight: RecognizedWeight, claim: Claim | undefined): StoredWeight {
  const { name, convention, fits, type, shape, geometry, codes, scale, global, zeros, order, factors } =
    weight;
  const companions = [zeros, order, factors].flatMap((each) => (each ? [each.entry.name] : []));
  const format = scalarFormatOf(type);
  const role = conventionOf(convention).global?.role;
  return {
    name,
    convention,
    fits,
    isDeclared: declares(convention, claim),
    type,
    ...(format === undefined ? {} : { format }),
    shape,
    scaleKind: geometry.kind,
    block: geometry.block,
    swizzled: geometry.swizzled,
    isElementwise: isElementwise(weight) && companions.length === 0,
    codes: codes.entry,
    scale: scale.entry,
    ...(global ? { global: global.entry } : {}),
    ...(global && role ? { globalRole: role } : {}),
    companions,
  };
}
