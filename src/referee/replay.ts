/** Replays recorded runs: computes each operation from its recorded inputs and compares the results bit by bit. */
import { createHash } from "node:crypto";
import type { Backend } from "../backends/backend.js";
import { FileError, LockstepError, UnsupportedError } from "../errors.js";
import { unpackCodes } from "../io/codes.js";
import { compareType, FILE_DTYPES, type FileDType } from "../io/dtypes.js";
import { isObject } from "../io/json/json-object.js";
import type { TensorSource } from "../io/source.js";
import { Scope } from "../tensor/scope.js";
import { elementCount, sameShape } from "../tensor/shape.js";
import { DifferenceCount } from "../tensor/statistics/difference-count.js";
import { type Argument, Call, isValue, type Randomness } from "./call.js";
import { type Contract, covers } from "./contract.js";
import { conversion } from "./conversions.js";
import { type Difference, explainDifference } from "./differences.js";
import { computeDigest } from "./digest.js";
import { runsOnCudaCores } from "./fused-products.js";
import { NotModelled } from "./not-modelled.js";
import { SPLIT_PRODUCTS, searchLanes, searchProduct } from "./product-search.js";
import { type RecordedArgument, type RecordedOperation, readValue, type TensorReference } from "./run.js";
import { callWitness, findRow, type OperatorMatch, type OperatorRow } from "./table.js";
import type { Value } from "./value.js";

/** Describes how K of a product is divided: "2 splits" or "4 lanes of 8". Undefined if the verdict has no division. */
export function describeDivision({ splits, lanes }: Verdict): string | undefined {
  if (splits !== undefined) return `${splits} splits`;
  return lanes && `${lanes.count} lanes of ${lanes.run}`;
}

/** The judgement of one recorded operation. */
export interface Verdict {
  /** The place of the operation in the log, from 0. */
  readonly index: number;
  readonly schema: string;
  readonly verdict: "same" | "differs" | "not modelled";
  /**
   * The number of splits of K with which a product has the recorded bits. cuBLASLt chooses the number. It is searched if no GPU
   * has confirmed the row for such a call.
   */
  readonly splits?: number;
  /** The division of K with which a product on CUDA cores has the recorded bits: `count` sums that take `run` terms in turn. */
  readonly lanes?: { readonly count: number; readonly run: number };
  /** Whether the verdict rests on a row that no GPU has confirmed under the versions of the contract. */
  readonly unverified?: true;
  /** The reason why there is no model. */
  readonly reason?: string;
  /** The outputs that differ. */
  readonly differences?: readonly Difference[];
}

/** A run whose operations are replayed. */
export interface ReplayedRun {
  readonly backend: Backend;
  /** The tensors of the run. */
  readonly file: TensorSource;
  readonly contract: Contract;
}

function isReference(argument: RecordedArgument): argument is TensorReference {
  return isObject(argument) && "shape" in argument;
}

/** Whether an argument has a tensor that was not in row-major order without gaps. */
function isStrided(argument: RecordedArgument): boolean {
  if (Array.isArray(argument)) return argument.some(isStrided);
  return isReference(argument) && argument.strides !== undefined;
}

/** Reads the tensors of an argument. Throws `NotModelled` if one was not recorded. */
async function readArgument(
  file: TensorSource,
  location: string,
  argument: RecordedArgument,
): Promise<Argument> {
  if (Array.isArray(argument)) return Promise.all(argument.map((each) => readArgument(file, location, each)));
  if (!isReference(argument as RecordedArgument)) return argument as Argument;
  const reference = argument as TensorReference;
  const value = await readValue(file, location, reference);
  if (value === undefined) throw new NotModelled("an input of which only the hash was recorded");
  requireHash(location, reference, value);
  return value;
}

/** Throws `FileError` if the bytes of a tensor do not have the hash that was recorded with them. */
function requireHash(location: string, { tensor, sha256 }: TensorReference, value: Value): void {
  if (sha256 === undefined || computeHash(value) === sha256) return;
  throw new FileError(
    `${location}: tensor "${tensor}" does not have the recorded hash; the file was changed after the recording`,
  );
}

/** Whether a run has elements, a hash or a digest of an output, and not only its dtype and shape. */
function isRecorded({ tensor, sample, sha256, digest }: TensorReference): boolean {
  return [tensor, sample, sha256, digest].some((each) => each !== undefined);
}

/** Whether a result has the recorded digest; undefined if there is none. */
function hasRecordedDigest({ digest }: TensorReference, { bytes }: Value): boolean | undefined {
  return digest === undefined ? undefined : computeDigest(bytes) === digest;
}

/** The SHA-256 of the bytes of a value, in hexadecimal. */
function computeHash({ bytes }: Value): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** Reads the recorded state of the generator. Without a state, reads the recorded result that shows the drawn numbers. */
async function readRandomness(
  file: TensorSource,
  location: string,
  { generator, outputs }: RecordedOperation,
  { drawn = -1 }: OperatorRow,
): Promise<Randomness> {
  if (generator) return { generator };
  const output = outputs[drawn];
  const value = output && (await readValue(file, location, output));
  return value ? { drawn: value } : {};
}

/** The results of an operator. One that writes into `self` rounds its result to the dtype of `self`. */
function computeResults({ row, writesSelf }: OperatorMatch, call: Call): readonly Value[] {
  const results = row.model(call);
  const self = call.get("self");
  if (!writesSelf || !isValue(self)) return results;
  return results.map((result) => conversion(call.backend, result, self.dtype));
}

/**
 * Computes the results of a recorded operation by its row. Throws `NotModelled` for an operator without a row or arguments
 * without a rule, `FileError` that names the operation for inputs that are missing or that the operator does not allow.
 */
export async function computeOperation(
  { backend, file }: Pick<ReplayedRun, "backend" | "file">,
  location: string,
  operation: RecordedOperation,
): Promise<OperatorMatch & { readonly call: Call; readonly results: readonly Value[] }> {
  const match = findRow(operation.schema);
  if (!match) throw new NotModelled("the table has no such operator");
  const args = await Promise.all(operation.args.map((each) => readArgument(file, location, each)));
  const kwargs: Record<string, Argument> = {};
  for (const [name, each] of Object.entries(operation.kwargs))
    kwargs[name] = await readArgument(file, location, each);
  try {
    const randomness = await readRandomness(file, location, operation, match.row);
    const call = new Call(backend, match.row.parameters.split(" "), args, kwargs, randomness);
    const hasStrides = [operation.args, ...Object.values(operation.kwargs)].some(isStrided);
    if (hasStrides && match.row.dependsOnOrder?.(call))
      throw new NotModelled(
        "an input that was not in row-major order, on which the order of the sums depends",
      );
    return { ...match, call, results: computeResults(match, call) };
  } catch (error) {
    if (error instanceof UnsupportedError) throw new NotModelled(error.reason);
    if (error instanceof FileError || !(error instanceof LockstepError)) throw error;
    throw new FileError(`${location}: ${error.message}`, { cause: error });
  }
}

/** Judges one operation of a run. Throws `FileError` for a run whose files do not fit together. */
export async function judgeOperation(
  run: ReplayedRun,
  path: string,
  operation: RecordedOperation,
  index: number,
): Promise<Verdict> {
  const { schema, outputs } = operation;
  const location = `${path}: operation ${index}, ${schema}`;
  const base = { index, schema };
  try {
    const { row, call, results } = await computeOperation(run, location, operation);
    if (outputs.length === 0) throw new NotModelled("no output was recorded");
    if (outputs.every((output) => !isRecorded(output)))
      throw new NotModelled("a view, of which no digest was recorded");
    if (outputs.length !== results.length)
      throw new FileError(`${location}: ${outputs.length} outputs were recorded; it has ${results.length}`);
    const differences: Difference[] = [];
    for (const [i, output] of outputs.entries()) {
      if (i >= outputs.length - (row.unwritten ?? 0)) break;
      const difference = await compareOutput(run.file, location, output, results[i] as Value);
      if (difference) differences.push({ ...difference, output: i });
    }
    const isConfirmed =
      row.kind === "moves" || covers(callWitness(row, call), run.contract.chip, run.contract.versions.torch);
    const unverified = isConfirmed ? {} : { unverified: true as const };
    if (differences.length === 0) return { ...base, verdict: "same", ...unverified };
    const order = isConfirmed ? undefined : searchDivision(row, call, differences);
    if (order !== undefined) return { ...base, verdict: "same", ...order, ...unverified };
    if (!isConfirmed && row.variesInOrder?.(call))
      throw new NotModelled("the order of the sums was not found");
    const explainedDifferences = differences.map((each) => explainDifference(each, row, call));
    return { ...base, verdict: "differs", ...unverified, differences: explainedDifferences };
  } catch (error) {
    if (error instanceof NotModelled) return { ...base, verdict: "not modelled", reason: error.message };
    throw error;
  }
}

/**
 * Searches the division of K with which a product has the recorded bits. Undefined if no division has them, and for another
 * operator.
 */
function searchDivision(
  { product }: OperatorRow,
  call: Call,
  [difference]: readonly Difference[],
): Pick<Verdict, "splits" | "lanes"> | undefined {
  if (!product || !difference?.recorded) return undefined;
  using _ = new Scope();
  const recorded = { ...difference.computed, bytes: difference.recorded };
  if (runsOnCudaCores(call)) {
    const lanes = searchLanes(call, recorded);
    return lanes && { lanes: { count: lanes.count, run: lanes.run } };
  }
  const splits = searchProduct(product(call), recorded, SPLIT_PRODUCTS)?.settings.splitK;
  return splits === undefined ? undefined : { splits };
}

/** Compares a recorded output with the computed one: all elements, a sample, or the hash. Returns undefined if they are equal. */
async function compareOutput(
  file: TensorSource,
  location: string,
  output: TensorReference,
  result: Value,
): Promise<Omit<Difference, "output"> | undefined> {
  const { dtype, shape } = output;
  const elements = elementCount(result.shape);
  if (dtype !== result.dtype || !sameShape(shape, result.shape))
    return {
      different: elements,
      elements,
      computed: result,
      lines: [`recorded ${dtype} [${shape}], computed ${result.dtype} [${result.shape}]`],
    };
  const value = await readValue(file, location, output);
  if (value) {
    requireHash(location, output, value);
    return compareBytes(dtype, value.bytes, result);
  }
  if (output.sample) return compareSample(file, location, output, result);
  const isEqual =
    output.sha256 === undefined ? hasRecordedDigest(output, result) : computeHash(result) === output.sha256;
  if (isEqual === undefined)
    throw new FileError(`${location}: an output has neither a tensor, a sample, a hash nor a digest`);
  if (isEqual) return undefined;
  if (hasNaN(result))
    throw new NotModelled("only the hash was recorded of an output with NaN, whose bits are not defined");
  return {
    elements,
    computed: result,
    lines: ["the hash differs; record whole outputs to see the elements"],
  };
}

function compareBytes(
  dtype: FileDType,
  recorded: Uint8Array,
  result: Value,
): Omit<Difference, "output"> | undefined {
  const differences = new DifferenceCount(compareType(dtype));
  differences.add(unpackCodes(dtype, recorded), unpackCodes(dtype, result.bytes));
  const { different, first } = differences;
  if (different === 0 || !first) return undefined;
  return { different, elements: elementCount(result.shape), first, recorded, computed: result, lines: [] };
}

/** Whether an element of a value is NaN. The bits of a NaN are not defined. */
function hasNaN({ dtype, bytes }: Value): boolean {
  const size = FILE_DTYPES[dtype].bits / 8;
  const differences = new DifferenceCount(compareType(dtype));
  if (size >= 1)
    differences.add(
      bytes,
      bytes.map((byte, i) => (i % size === size - 1 ? byte ^ 0x80 : byte)),
    );
  return differences.nansOfOtherBits > 0;
}

/** Compares the elements of a sample. */
async function compareSample(
  file: TensorSource,
  location: string,
  { dtype, sample }: TensorReference,
  result: Value,
): Promise<Omit<Difference, "output"> | undefined> {
  const { indices, tensor } = sample as NonNullable<TensorReference["sample"]>;
  const elements = elementCount(result.shape);
  const value = await readValue(file, location, { dtype, shape: [indices.length], tensor });
  const size = result.bytes.length / Math.max(elements, 1);
  if (!value || indices.some((index) => index >= elements))
    throw new FileError(`${location}: the sample has indices beyond the ${elements} elements of the output`);
  const sampledBytes = new Uint8Array(indices.length * size);
  for (const [i, index] of indices.entries())
    sampledBytes.set(result.bytes.subarray(index * size, (index + 1) * size), i * size);
  const sampleDifference = compareBytes(dtype, value.bytes, {
    dtype,
    shape: [indices.length],
    bytes: sampledBytes,
  });
  if (!sampleDifference?.first) return undefined;
  const firstDifference = {
    ...sampleDifference.first,
    index: indices[sampleDifference.first.index] as number,
  };
  return {
    ...sampleDifference,
    first: firstDifference,
    elements: indices.length,
    computed: result,
    isSample: true,
  };
}
