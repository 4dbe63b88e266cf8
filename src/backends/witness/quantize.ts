/** Samples of quantizations: the codes and scales of some rows of the rowwise copy. */

import { blocksIn, isTensorWide, scaleSpan, tileSize } from "../../formats/block.js";
import { copyGeometry } from "../../tensor/geometry.js";
import { scaleIndex } from "../../tensor/places.js";
import type { QuantizedCopy } from "../../tensor/quantized.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, storageBits } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import type { QuantizeArgs } from "../ops/quantize.js";
import { runOn } from "../run.js";
import { bytesOf } from "./rows.js";
import {
  type Compare,
  compareResults,
  isWholeBytes,
  readRanges,
  readWhole,
  type Sampler,
  tensorOfBytes,
} from "./sample.js";

/** The largest scale tensor that is read. */
const MAX_SCALE_BYTES = 1 << 24;

/** Returns why a quantization cannot be sampled, or undefined. */
function refusal({
  spec,
  rowwise,
  amax,
  noop,
  randomBits,
  randomBitsColumnwise,
}: QuantizeArgs): string | undefined {
  if (!rowwise) return "columnwise copies are not sampled";
  if (noop) return "quantizations with a flag are not sampled";
  if (spec.stochastic || randomBits || randomBitsColumnwise) return "stochastic rounding is not sampled";
  if (rowwise.amax && !amax && !spec.rowScaled && spec.scaleRule !== "twoLevel")
    return "a scale of the whole tensor is not sampled";
  if (rowwise.scaleInv.byteLength > MAX_SCALE_BYTES)
    return `scales of more than ${MAX_SCALE_BYTES} bytes are not sampled`;
  return undefined;
}

/**
 * The amax of a whole tensor is an input here: the one that the copy stores for NVFP4, or that follows from the scale. What is
 * compared is what rows make of it.
 */
export const sampleQuantize: Sampler<"quantize"> = ({ args, elements, choose }) => {
  const reason = refusal(args);
  if (reason) return reason;
  const { x, spec, rowwise, scale, amax } = args;
  const copy = rowwise as QuantizedCopy;
  if (isTensorWide(spec.tile) && !scale && !amax) return "a scale of the whole tensor is not sampled";
  const [rows, columns] = asMatrix(x.shape);
  // rows of a tile share scales, also if a scale is stored for each row
  const height = Math.max(1, tileSize(spec.tile)[0]);
  if (!isWholeBytes(x, columns) || !isWholeBytes(copy.data, columns)) return "rows are no whole bytes";
  const groups = Math.floor(rows / height);
  if (groups === 0) return "no group of rows that share scales is complete";
  const chosen = choose(groups, Math.max(1, Math.ceil(elements / (columns * height))));
  const count = chosen.length * height;
  const begins = chosen.map((group) => group * height * columns);
  const inputs = [
    readRanges(x, begins, height * columns),
    scale && readWhole(scale),
    amax && readWhole(amax),
  ];
  const sourceRow = (row: number): number =>
    (chosen[Math.floor(row / height)] as number) * height + (row % height);
  return {
    results: async (): Promise<Compare> => {
      const outputs = [
        readRanges(copy.data, begins, height * columns),
        readWhole(copy.scaleInv),
        copy.amax && readWhole(copy.amax),
      ];
      const [values, scaleBytes, amaxBytes] = await Promise.all(inputs);
      const [codes, scales, storedAmax] = await Promise.all(outputs);
      return (reference) => {
        using _scope = new Scope();
        const geometry = copyGeometry(spec, [count, columns], "rowwise", "logical");
        const result = {
          ...{ geometry, data: new Tensor(reference, geometry.dataType, geometry.dataShape) },
          scaleInv: new Tensor(reference, geometry.scaleType, geometry.scaleShape),
          ...(geometry.amaxShape ? { amax: new Tensor(reference, "f32", geometry.amaxShape) } : {}),
        };
        const scalar = (bytes: Uint8Array | undefined): Tensor<"f32"> | undefined =>
          bytes && tensorOfBytes(reference, bytes, [1], "f32");
        runOn(reference, "quantize", {
          ...{ spec, random: args.random, rowwise: result },
          x: tensorOfBytes(reference, values as Uint8Array, [count, columns], x.dtype),
          scale: scalar(scaleBytes),
          amax: spec.rowScaled ? undefined : scalar(amaxBytes ?? storedAmax),
        });
        return compareResults([
          {
            ...{
              name: "codes",
              dtype: copy.data.dtype,
              actual: codes as Uint8Array,
              expected: bytesOf(result.data),
            },
            indexOf: (i) => [sourceRow(Math.floor(i / columns)), i % columns],
          },
          scaleResult(copy, result, { spec, scales: scales as Uint8Array, columns, count, sourceRow }),
        ]);
      };
    },
  };
};

interface ScaleSource {
  readonly spec: QuantizeArgs["spec"];
  /** The stored scales of the whole copy. */
  readonly scales: Uint8Array;
  readonly columns: number;
  /** The number of sampled rows. */
  readonly count: number;
  readonly sourceRow: (row: number) => number;
}

/** The scales of the sampled rows, in the order of their groups of rows and blocks. */
function scaleResult(
  copy: QuantizedCopy,
  result: QuantizedCopy,
  { spec, scales, columns, count, sourceRow }: ScaleSource,
) {
  const size = storageBits(copy.scaleInv.dtype) / 8;
  const [lines, length] = isTensorWide(spec.tile) ? [count, columns] : scaleSpan(spec);
  const blocks = blocksIn(columns, length);
  const groups = count / lines;
  const expectedBytes = bytesOf(result.scaleInv);
  const [actual, expected] = [0, 1].map(() => new Uint8Array(groups * blocks * size)) as [
    Uint8Array,
    Uint8Array,
  ];
  for (let group = 0; group < groups; group++)
    for (let block = 0; block < blocks; block++) {
      const to = (group * blocks + block) * size;
      const along = block === 0 ? 0 : block * length;
      const from = scaleIndex(spec, copy.geometry, { line: sourceRow(group * lines), along });
      actual.set(scales.subarray(from * size, (from + 1) * size), to);
      const own = scaleIndex(spec, result.geometry, { line: group * lines, along });
      expected.set(expectedBytes.subarray(own * size, (own + 1) * size), to);
    }
  return {
    ...{ name: "scales", dtype: copy.scaleInv.dtype, actual, expected },
    indexOf: (i: number) => [
      sourceRow(Math.floor(i / blocks) * lines),
      i % blocks === 0 ? 0 : (i % blocks) * length,
    ],
  };
}
