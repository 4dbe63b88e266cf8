/** Saves and loads named tensors, plain and quantized, in safetensors files. */
import { type Backend, requireBackend } from "../backends/backend.js";
import { ArgumentError, DTypeError, FileError, ShapeError } from "../errors.js";
import { fromBytes } from "../ops/create.js";
import { anyListOf, anything, describe, entriesOfMap, membersOfPlain, optionsOf, text } from "../options.js";
import { asBytes } from "../tensor/data.js";
import { unpackSix } from "../tensor/packed.js";
import { QuantizedTensor, requireQuantized } from "../tensor/quantized.js";
import { requireTensor } from "../tensor/require.js";
import { Scope } from "../tensor/scope.js";
import type { Tensor } from "../tensor/tensor.js";
import { fileDType, tensorDType } from "./dtypes.js";
import { requirePath } from "./files.js";
import type { Metadata, TensorEntry } from "./header/header.js";
import { requireMetadata } from "./metadata.js";
import {
  allMembers,
  type MemberBytes,
  makeQuantized,
  memberTensors,
  readMembers,
  recipesOf,
} from "./quantized/quantized-file.js";
import { formatRecipe, KEY_PREFIX, type Recipe, recipeKey, recipeOf } from "./quantized/recipe.js";
import { SafetensorsFile } from "./safetensors.js";
import { writeSafetensors } from "./safetensors-writer.js";
import { sixBitBytes, sixBitDType, sixBitFile } from "./six-bit.js";

/** The values that a file can contain. */
export type NamedTensor = Tensor | QuantizedTensor;

/** Options of `saveTensors`. */
export interface SaveTensorsOptions {
  /** The metadata: strings by key. Keys that start with `lockstep.` are reserved for the library. */
  readonly metadata?: Metadata | undefined;
}

/** Options of `loadTensors`. */
export interface LoadTensorsOptions {
  /** The names of the tensors to load. A quantized tensor has one name. Default: all. */
  readonly names?: readonly string[] | undefined;
}

/** The result of `loadTensors`. */
export interface LoadedTensors {
  /** The tensors by name, in the order of the file; quantized tensors first. */
  readonly tensors: ReadonlyMap<string, NamedTensor>;
  /** The metadata of the file, except the entries of this library. */
  readonly metadata: Metadata;
}

const checkSave = optionsOf<SaveTensorsOptions>({ metadata: anything });
const checkLoad = optionsOf<LoadTensorsOptions>({ names: anyListOf(text) });

/**
 * Writes tensors to a safetensors file, with their contents at the time of the call. A quantized tensor `w` becomes the tensors
 * `w.rowwise.data`, `w.rowwise.scale_inv` and so on for each copy, and metadata under `lockstep.w` that describe the
 * quantization; `lockstep dequantize` and `lockstep gemm` read these too. 6-bit codes are packed: four codes in three bytes. The
 * file appears at `path` when it is complete.
 *
 * @param tensors - Tensors by name, in a plain object or a `Map`. Empty tensors, and an empty object, are allowed.
 * @throws `ArgumentError` for anything but a tensor, for a quantized tensor without a copy, and for metadata that are not strings
 * or have a reserved key; `DTypeError` for element types that files do not have; `DisposedError` for a disposed tensor;
 * `FileError` if two tensors have the same name in the file, and if the file cannot be written.
 */
export async function saveTensors(
  path: string,
  tensors: Readonly<Record<string, NamedTensor>> | ReadonlyMap<string, NamedTensor>,
  options: SaveTensorsOptions = {},
): Promise<void> {
  requirePath("saveTensors", path);
  const { metadata = {} } = checkSave("saveTensors", options);
  requireOwnMetadata(metadata);
  const parts = [...entriesOf(tensors)].map(([name, value]) => planOf(name, value));
  const recipes = Object.fromEntries(parts.flatMap(({ recipe }) => recipe));
  const values = parts.flatMap(({ values }) => values);
  await writeSafetensors(path, { tensors: values, metadata: { ...metadata, ...recipes } }, async (put) => {
    for (const { name, bytes } of values) await put(name, bytes);
  });
}

function requireOwnMetadata(metadata: Metadata): void {
  requireMetadata("saveTensors", metadata);
  const reserved = Object.keys(metadata).find((key) => key.startsWith(KEY_PREFIX));
  if (reserved === undefined) return;
  throw new ArgumentError(
    `saveTensors: metadata has ${JSON.stringify(reserved)}; keys that begin with "${KEY_PREFIX}" are the library's: rename it`,
  );
}

function entriesOf(tensors: unknown): Iterable<readonly [string, unknown]> {
  const entries = entriesOfMap(tensors);
  if (entries) {
    for (const [name] of entries) text("saveTensors", "a name", name);
    return entries as [string, unknown][];
  }
  const members = membersOfPlain("saveTensors", "tensors", tensors);
  if (members) return members;
  throw new ArgumentError(
    `saveTensors: tensors is ${describe(tensors)}; it must be tensors by name, in a plain object or a Map`,
  );
}

interface Part {
  readonly recipe: readonly (readonly [string, string])[];
  readonly values: readonly {
    name: string;
    dtype: TensorEntry["dtype"];
    shape: readonly number[];
    bytes: Uint8Array;
  }[];
}

/** The file tensors for one tensor in memory, with their bytes. */
function planOf(name: string, value: unknown): Part {
  if (value instanceof QuantizedTensor) {
    requireQuantized("saveTensors", name, value);
    const recipe = recipeOf(value);
    if (recipe.usage.length === 0)
      throw new ArgumentError(
        `saveTensors: "${name}" has neither copy; quantize it with rowwise or columnwise usage`,
      );
    const values = memberTensors(name, value).map(({ tensor, ...plan }) => ({
      ...plan,
      bytes: asBytes(tensor.dataSync()),
    }));
    return { recipe: [[recipeKey(name), formatRecipe(recipe)]], values };
  }
  const tensor = requireTensor("saveTensors", name, value);
  const { dtype, shape } = tensor;
  const six = sixBitFile(dtype);
  const bytes = six ? sixBitBytes(name, asBytes(tensor.dataSync())) : asBytes(tensor.dataSync());
  return { recipe: [], values: [{ name, dtype: six ?? fileDType(dtype), shape, bytes }] };
}

/**
 * Reads tensors of a safetensors file onto a backend. They belong to the caller, or to the scope that is open when the file has
 * been read. Tensors that `saveTensors`, `lockstep quantize` or a checkpoint wrote as quantized are returned as
 * `QuantizedTensor`s with the same bits. A tensor that was quantized with delayed scaling needs a quantizer (`updateQuantizer`)
 * before `quantize_`. Files of other programs are read too.
 *
 * @throws `FileError` for a file that is damaged or lacks a requested name, and for element types that tensors do not have, such
 * as I64, which `SafetensorsFile` can read.
 * @throws `ArgumentError` for anything but a backend or option. If it throws, it has disposed of all tensors that it created.
 * @throws `DisposedError` for a backend that was disposed of.
 */
export async function loadTensors(
  path: string,
  backend: Backend,
  options: LoadTensorsOptions = {},
): Promise<LoadedTensors> {
  requirePath("loadTensors", path);
  requireBackend("loadTensors", backend);
  const { names } = checkLoad("loadTensors", options);
  const file = await SafetensorsFile.open(path);
  try {
    const makers = await readAll(file, names && new Set(names));
    requireBackend("loadTensors", backend);
    const tensors = makeAll(file.path, backend, makers);
    const entries = Object.entries(file.metadata).filter(([key]) => !key.startsWith(KEY_PREFIX));
    return { tensors, metadata: Object.fromEntries(entries) };
  } finally {
    await file.close();
  }
}

type Maker = (backend: Backend) => NamedTensor;

/** Reads the requested tensors. The result has a function for each name that creates the tensor. */
async function readAll(
  file: SafetensorsFile,
  names: ReadonlySet<string> | undefined,
): Promise<Map<string, Maker>> {
  const recipes = recipesOf(file);
  const parts = new Set<string>();
  const makers = new Map<string, Maker>();
  for (const [name, recipe] of recipes) {
    if (file.tensors.has(name)) throw doubled(file, name);
    const usage = recipe.usage.filter((direction, i, all) => all.indexOf(direction) === i);
    for (const { plan } of allMembers(name, { ...recipe, usage })) parts.add(plan.name);
    if (names && !names.has(name)) continue;
    const members = await readMembers(file, name, recipe, usage);
    makers.set(name, quantizedMaker(members, recipe));
  }
  for (const name of names ?? file.tensors.keys()) {
    if (recipes.has(name) || (!names && parts.has(name))) continue;
    const entry = file.entry(name);
    makers.set(name, await plainMaker(file, entry));
  }
  return makers;
}

function doubled(file: SafetensorsFile, name: string): FileError {
  return new FileError(
    `${file.path}: tensor "${name}": is there, and by the metadata ${recipeKey(name)} also quantized; rename one`,
  );
}

function quantizedMaker(members: readonly MemberBytes[], recipe: Recipe): Maker {
  return (backend) => makeQuantized(backend, members, recipe);
}

async function plainMaker(file: SafetensorsFile, entry: TensorEntry): Promise<Maker> {
  const six = sixBitDType(entry.dtype);
  const dtype = six ?? tensorDType(entry.dtype);
  if (dtype === undefined)
    throw new FileError(
      `${file.path}: tensor "${entry.name}": is ${entry.dtype}, an element type that tensors do not have; leave it out by names, or read its bytes by SafetensorsFile`,
    );
  const read = await file.read(entry);
  const bytes = six ? unpackSix(read) : read;
  return (backend) => fromBytes(backend, bytes, entry.shape, dtype);
}

/** Creates all tensors. If creating one fails, disposes of the others. */
function makeAll(
  path: string,
  backend: Backend,
  makers: ReadonlyMap<string, Maker>,
): Map<string, NamedTensor> {
  const scope = new Scope();
  try {
    const values = new Map<string, NamedTensor>();
    for (const [name, make] of makers)
      values.set(
        name,
        asFileErrors(`${path}: tensor "${name}"`, () => make(backend)),
      );
    for (const value of values.values()) scope.keep<NamedTensor>(value);
    return values;
  } finally {
    scope.dispose();
  }
}

/** Adds the file's name to errors of the backend. */
function asFileErrors<T>(location: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    const ofFile =
      error instanceof ShapeError || error instanceof DTypeError || error instanceof ArgumentError;
    throw ofFile ? new FileError(`${location}: ${error.message}`, { cause: error }) : error;
  }
}
