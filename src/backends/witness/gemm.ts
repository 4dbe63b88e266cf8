/** Samples of matrix products: some lines of both operands, and the elements of the result where they meet. */

import { Scope } from "../../tensor/scope.js";
import { storageBits } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { splitsOn } from "../backend.js";
import { extentOf, type GemmArgs, type GemmBlockScales, type GemmOperand } from "../ops/gemm.js";
import { runOn } from "../run.js";
import { bytesOf } from "./rows.js";
import {
  type Compare,
  compareResults,
  isWholeBytes,
  readRanges,
  readWhole,
  type SampledCall,
  type Sampler,
  tensorOfBytes,
} from "./sample.js";

/** Returns the sampled part of an operand on a backend. */
type Rebuild = (reference: Tensor["backend"]) => GemmOperand;

/** The maximum size in bytes of a scale tensor that is read whole. */
const MAX_SCALE_BYTES = 1 << 24;

export const sampleGemm: Sampler<"gemm"> = (call) => {
  const { args, elements, choose } = call;
  const { x, w, batch = 1, c, bias, out, preGelu } = args;
  if (preGelu) return "the fused GELU is not defined on the reference";
  const [rows, depth] = extentOf(x);
  const [columns] = extentOf(w);
  const [item] = choose(batch, 1) as readonly [number];
  const side = Math.ceil(Math.sqrt(elements));
  const chosenColumns = choose(columns, Math.min(columns, Math.max(side, Math.ceil(elements / rows))));
  const chosenRows = choose(rows, Math.min(rows, Math.ceil(elements / chosenColumns.length)));
  if (![out, ...(c ? [c] : [])].every((each) => isWholeBytes(each, columns)))
    return "rows are no whole bytes";
  const xPart = readOperand(call, x, { item, chosen: chosenRows, total: rows, depth });
  const wPart = readOperand(call, w, { item, chosen: chosenColumns, total: columns, depth });
  if (typeof xPart === "string") return xPart;
  if (typeof wPart === "string") return wPart;
  const resultRows = chosenRows.map((row) => (item * rows + row) * columns);
  const cBytes = c && readRanges(c, resultRows, columns);
  const biasBytes = bias && readWhole(bias);
  return {
    results: async (): Promise<Compare> => {
      const outBytes = readRanges(out, resultRows, columns);
      const [rebuildX, rebuildW] = [await xPart, await wPart];
      const [addend, vector, actual] = [await cBytes, await biasBytes, await outBytes];
      const { length: width } = chosenColumns;
      return (reference) => {
        using _scope = new Scope();
        const shape = [chosenRows.length, width];
        const result = new Tensor(reference, out.dtype, shape);
        runOn(reference, "gemm", {
          ...planned(call, args),
          ...{ x: rebuildX(reference), w: rebuildW(reference), out: result },
          c:
            c &&
            addend &&
            tensorOfBytes(reference, columnsOf(addend, c, columns, chosenColumns), shape, c.dtype),
          bias:
            bias &&
            vector &&
            tensorOfBytes(reference, columnsOf(vector, bias, columns, chosenColumns), [width], bias.dtype),
        });
        return compareResults([
          {
            ...{ name: "out", dtype: out.dtype },
            actual: columnsOf(actual, out, columns, chosenColumns),
            expected: bytesOf(result),
            indexOf: (i) => [
              ...(args.batch === undefined ? [] : [item]),
              chosenRows[Math.floor(i / width)] as number,
              chosenColumns[i % width] as number,
            ],
          },
        ]);
      };
    },
  };
};

/** The arguments of the product on the reference: with the splits of the algorithm that the backend uses. */
function planned({ backend }: SampledCall<"gemm">, args: GemmArgs): GemmArgs {
  const algorithm = backend.algorithmFor?.(args) ?? args.algorithm;
  return {
    ...args,
    ...{ batch: undefined, amax: undefined, progress: undefined, algorithm },
    splitK: algorithm?.splitK ?? splitsOn(backend, args),
  };
}

/** The lines of an operand that are sampled. */
interface Lines {
  /** The number of the product in a batch. */
  readonly item: number;
  readonly chosen: readonly number[];
  /** The number of all lines. */
  readonly total: number;
  readonly depth: number;
}

/** Begins to read lines of an operand and their scales. Returns the reason if that is not possible. */
function readOperand(
  call: SampledCall<"gemm">,
  operand: GemmOperand,
  lines: Lines,
): Promise<Rebuild> | string {
  const { data, transposed, blockScales, lineScales, lineAmaxes, tensorScale, amax } = operand;
  const { item, chosen, total, depth } = lines;
  if (!transposed && !isWholeBytes(data, depth)) return "lines are no whole bytes";
  if (transposed && storageBits(data.dtype) < 8)
    return "transposed operands of fewer than 8 bits are not sampled";
  if (blockScales && blockScales.blockStride !== 1 && blockScales.tensor.byteLength > MAX_SCALE_BYTES)
    return `transposed scales of more than ${MAX_SCALE_BYTES} bytes are not sampled`;
  const codes = transposed
    ? readColumns(call, data, lines)
    : readRanges(
        data,
        chosen.map((line) => (item * total + line) * depth),
        depth,
      );
  const scales = blockScales && readScales(blockScales, lines);
  const factors = lineScales && readRanges(lineScales, chosen, 1);
  const amaxes = lineAmaxes && readRanges(lineAmaxes, chosen, 1);
  const scale = tensorScale && readWhole(tensorScale);
  const amaxBytes = amax && readWhole(amax);
  return (async () => {
    const [codeBytes, scaleBytes] = [await codes, await scales];
    const [factorBytes, lineAmaxBytes] = [await factors, await amaxes];
    const [tensorScaleBytes, tensorAmaxBytes] = [await scale, await amaxBytes];
    return (reference: Tensor["backend"]): GemmOperand => {
      const vector = (bytes: Uint8Array | undefined): Tensor<"f32"> | undefined =>
        bytes && tensorOfBytes(reference, bytes, [bytes.length / 4], "f32");
      return {
        ...operand,
        transposed: false,
        data: tensorOfBytes(reference, codeBytes, [chosen.length, depth], data.dtype),
        blockScales: blockScales && scaleBytes && rebuiltScales(reference, blockScales, scaleBytes, lines),
        tensorScale: vector(tensorScaleBytes),
        lineScales: vector(factorBytes),
        lineAmaxes: vector(lineAmaxBytes),
        amax: vector(tensorAmaxBytes),
      };
    };
  })();
}

/** Reads lines of an operand that is stored as [K, lines]. Returns them as [lines, K]. */
async function readColumns(
  { backend, run }: SampledCall<"gemm">,
  data: Tensor,
  { item, chosen, total, depth }: Lines,
): Promise<Uint8Array> {
  const count = chosen.length;
  const size = storageBits(data.dtype) / 8;
  using matrix = data.slice(item * depth * total, [depth, total]);
  using gathered = new Tensor(backend, data.dtype, [depth, count]);
  for (const [i, line] of chosen.entries())
    run("copySlice", {
      ...{ x: matrix, xLength: total, xFirst: line },
      ...{ out: gathered, outLength: count, outFirst: i },
      ...{ count: 1, outer: depth, inner: 1 },
    });
  const columns = await readWhole(gathered);
  const lines = new Uint8Array(columns.length);
  for (let k = 0; k < depth; k++)
    for (let i = 0; i < count; i++)
      lines.set(columns.subarray((k * count + i) * size, (k * count + i + 1) * size), (i * depth + k) * size);
  return lines;
}

/** Reads the block scales of lines: one row of blocks for each line, or all scales if rows are not contiguous. */
function readScales(scales: GemmBlockScales, { chosen, depth }: Lines): Promise<Uint8Array> {
  const { tensor, lines, length, lineStride, blockStride } = scales;
  if (blockStride !== 1) return readWhole(tensor);
  const begins = chosen.map((line) => Math.floor(line / lines) * lineStride);
  return readRanges(tensor, begins, Math.ceil(depth / length));
}

/** The scales of the sampled lines, one row of blocks for each line. */
function rebuiltScales(
  reference: Tensor["backend"],
  scales: GemmBlockScales,
  bytes: Uint8Array,
  { chosen, depth }: Lines,
): GemmBlockScales {
  const { tensor, lines, length, lineStride, blockStride } = scales;
  const blocks = Math.ceil(depth / length);
  const size = storageBits(tensor.dtype) / 8;
  let rows = bytes;
  if (blockStride !== 1) {
    rows = new Uint8Array(chosen.length * blocks * size);
    for (const [i, line] of chosen.entries())
      for (let block = 0; block < blocks; block++) {
        const from = Math.floor(line / lines) * lineStride + block * blockStride;
        rows.set(bytes.subarray(from * size, (from + 1) * size), (i * blocks + block) * size);
      }
  }
  return {
    ...{ lines: 1, length, lineStride: blocks, blockStride: 1 },
    tensor: tensorOfBytes(reference, rows, [chosen.length, blocks], tensor.dtype),
  };
}

/** Returns some columns of rows that were read whole. Elements have at least 8 bits. */
function columnsOf(
  rows: Uint8Array,
  { dtype }: Tensor,
  width: number,
  columns: readonly number[],
): Uint8Array {
  const size = storageBits(dtype) / 8;
  const count = rows.length / size / width;
  const part = new Uint8Array(count * columns.length * size);
  for (let row = 0; row < count; row++)
    for (const [i, column] of columns.entries()) {
      const from = (row * width + column) * size;
      part.set(rows.subarray(from, from + size), (row * columns.length + i) * size);
    }
  return part;
}
