/** Samples of operations that compute each row of their results from the same row of their inputs. */
import { asBytes } from "../../tensor/data.js";
import { memoryOf } from "../../tensor/memory.js";
import { Scope } from "../../tensor/scope.js";
import type { Shape } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import type { OpArgs, OpName } from "../ops.js";
import { runOn } from "../run.js";
import { TENSOR_ROWS } from "../writes.js";
import {
  type Compare,
  compareResults,
  isWholeBytes,
  readRanges,
  readWhole,
  type Sampler,
  tensorOfBytes,
} from "./sample.js";

/** How an operation's tensors consist of rows. */
interface RowRule<K extends OpName> {
  /** The tensors that every row needs whole. All others have rows. */
  readonly whole?: readonly string[];
  /** Returns why a call cannot be sampled, or undefined. */
  readonly refuses?: (args: OpArgs[K]) => string | undefined;
}

/** The number of elements of a row in tensors of one dimension. */
const PIECE = 256;

/** A tensor of a call, by its name. */
interface Named {
  readonly name: string;
  readonly tensor: Tensor;
  readonly written: boolean;
}

function tensorsOf(op: OpName, args: object): readonly Named[] {
  const fields = args as Readonly<Record<string, unknown>>;
  return (TENSOR_ROWS.get(op) ?? []).flatMap(({ name, written }) => {
    const tensor = fields[name];
    return tensor === undefined ? [] : [{ name, tensor: tensor as Tensor, written }];
  });
}

/**
 * Returns the number of rows of a call: the rows of its first tensor with more than one dimension, or else the number of pieces.
 */
function rowCount(tensors: readonly Named[]): number | undefined {
  const matrix = tensors.find(({ tensor }) => tensor.shape.length > 1)?.tensor;
  if (matrix) return matrix.size / (matrix.shape.at(-1) as number);
  const { size } = (tensors[0] as Named).tensor;
  return size % PIECE === 0 ? size / PIECE : undefined;
}

/** Returns the sampler of an operation on rows. */
export function rowSampler<K extends OpName>(op: K, rule: RowRule<K>): Sampler<K> {
  const { whole = [], refuses = () => undefined } = rule;
  return ({ args, elements, choose }) => {
    const reason = refuses(args);
    if (reason) return reason;
    const tensors = tensorsOf(op, args);
    const rows = rowCount(tensors.filter(({ name }) => !whole.includes(name)));
    if (rows === undefined) return `vectors are sampled only if their length is a multiple of ${PIECE}`;
    const widthOf = (tensor: Tensor): number => tensor.size / rows;
    const divided = tensors.filter(({ name }) => !whole.includes(name));
    if (!divided.every(({ tensor }) => isWholeBytes(tensor, widthOf(tensor))))
      return "rows are no whole bytes";
    const widest = Math.max(...divided.map(({ tensor }) => widthOf(tensor)));
    const chosen = choose(rows, Math.max(1, Math.ceil(elements / widest)));
    const read = ({ name, tensor }: Named): Promise<Uint8Array> =>
      whole.includes(name)
        ? readWhole(tensor)
        : readRanges(
            tensor,
            chosen.map((row) => row * widthOf(tensor)),
            widthOf(tensor),
          );
    const shapeOf = ({ name, tensor }: Named): Shape => {
      if (whole.includes(name)) return tensor.shape;
      return tensor.shape.length > 1 ? [chosen.length, widthOf(tensor)] : [chosen.length * widthOf(tensor)];
    };
    const inputs = tensors.filter(({ written }) => !written);
    const outputs = tensors.filter(({ written }) => written);
    const inputBytes = inputs.map(read);
    return {
      results: async (): Promise<Compare> => {
        const outputBytes = outputs.map(read);
        const [inputData, actual] = [await Promise.all(inputBytes), await Promise.all(outputBytes)];
        return (reference) => {
          using _scope = new Scope();
          const tensorOf = new Map<string, Tensor>();
          for (const [i, each] of inputs.entries())
            tensorOf.set(
              each.name,
              tensorOfBytes(reference, inputData[i] as Uint8Array, shapeOf(each), each.tensor.dtype),
            );
          for (const output of outputs)
            tensorOf.set(output.name, new Tensor(reference, output.tensor.dtype, shapeOf(output)));
          runOn(reference, op, { ...args, ...Object.fromEntries(tensorOf) });
          return compareResults(
            outputs.map(({ name, tensor }, i) => ({
              name,
              actual: actual[i] as Uint8Array,
              expected: bytesOf(tensorOf.get(name) as Tensor),
              dtype: tensor.dtype,
              indexOf: (element) => {
                const width = widthOf(tensor);
                return [chosen[Math.floor(element / width)] as number, element % width];
              },
            })),
          );
        };
      },
    };
  };
}

/** The bytes of a tensor on the reference. */
export function bytesOf(tensor: Tensor): Uint8Array {
  return asBytes(memoryOf(tensor.backend).readSync(tensor.address, tensor.byteLength));
}
