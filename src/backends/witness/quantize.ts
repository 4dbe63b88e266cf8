/** Samples of quantizations: the codes and scales of some rows of the rowwise copy. */

import { blocksIn, isTensorWide, scaleSpan, tileSize } from "../../formats/block.js";
import { copyGeometry } from "../../tensor/geometry.js";
import { scaleIndex } from "../../tensor/places.js";
import type { QuantizedCopy } from "../../tensor/quantized.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, storageBits } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import type { QuantizeArgs } from "../ops/quantize.js";
import type { OpArgs, OpName } from "../ops.js";
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

/** The maximum size in bytes of a scale tensor that is read. */
const MAX_SCALE_BYTES = 1 << 24;

/** The operations that quantize, and the tensors that each has in addition to the tensors of `quantize`. */
const TENSORS = {
  quantize: { rows: [], whole: [], results: [], sums: [] },
  biasGradQuantize: { rows: [], whole: [], results: [], sums: ["biasGrad"] },
  activationQuantize: { rows: ["grad"], whole: [], results: [], sums: [] },
  normQuantize: { rows: [], whole: ["gamma", "beta"], results: ["mean", "rstd"], sums: [] },
} as const satisfies { readonly [K in OpName]?: QuantizeTensors };

interface QuantizeTensors {
  /** Inputs with a row for each row of x. */
  readonly rows: readonly string[];
  /** Inputs that every row needs whole. */
  readonly whole: readonly string[];
  /** Results with an element for each row. */
  readonly results: readonly string[];
  /** Results that are sums over all rows. They are not compared. */
  readonly sums: readonly string[];
}

type QuantizeOp = keyof typeof TENSORS;
type QuantizeOpArgs = OpArgs[QuantizeOp] & Pick<QuantizeArgs, "noop">;

/** Returns why a quantization cannot be sampled, or undefined. */
function refusal({ spec, rowwise, scale, amax, noop, ...args }: QuantizeOpArgs): string | undefined {
  if (!rowwise) return "columnwise copies are not sampled";
  if (noop) return "quantizations with a flag are not sampled";
  if (spec.stochastic || args.randomBits || args.randomBitsColumnwise)
    return "stochastic rounding is not sampled";
  const storesAmax = rowwise.amax && (spec.rowScaled || spec.scaleRule === "twoLevel");
  if ((isTensorWide(spec.tile) || rowwise.amax) && !scale && !amax && !storesAmax)
    return "a scale of the whole tensor is not sampled";
  if (rowwise.scaleInv.byteLength > MAX_SCALE_BYTES)
    return `scales of more than ${MAX_SCALE_BYTES} bytes are not sampled`;
  return undefined;
}

/**
 * Returns the sampler of an operation that quantizes. The amax of a whole tensor is an input of the sampled rows: the amax
 * argument of the call, or the amax that an NVFP4 copy stores. Only the results computed from it are compared.
 */
export function quantizeSampler<K extends QuantizeOp>(op: K): Sampler<K> {
  const names: QuantizeTensors = TENSORS[op];
  return ({ args, elements, choose }) => {
    const reason = refusal(args);
    if (reason) return reason;
    const { x, spec, scale, amax } = args;
    const fields = args as object as Readonly<Record<string, Tensor | undefined>>;
    const copy = args.rowwise as QuantizedCopy;
    const [rows] = asMatrix(x.shape);
    const columns = copy.data.size / rows;
    // rows of a tile share scales, also if a scale is stored for each row
    const height = Math.max(1, tileSize(spec.tile)[0]);
    const groups = Math.floor(rows / height);
    if (groups === 0) return "no group of rows that share scales is complete";
    const chosen = choose(groups, Math.max(1, Math.ceil(elements / (columns * height))));
    const count = chosen.length * height;
    const readRows = (tensor: Tensor): Promise<Uint8Array> => {
      const width = (tensor.size / rows) * height;
      return readRanges(
        tensor,
        chosen.map((group) => group * width),
        width,
      );
    };
    const present = (list: readonly string[]): readonly (readonly [string, Tensor])[] =>
      list.flatMap((name) => {
        const tensor = fields[name];
        return tensor ? [[name, tensor] as const] : [];
      });
    const divided = present(["x", ...names.rows]);
    if (
      ![...divided.map(([, tensor]) => tensor), copy.data].every((each) =>
        isWholeBytes(each, each.size / rows),
      )
    )
      return "rows are no whole bytes";
    const fullInputs = present(names.whole);
    const statistics = present(names.results);
    const inputs = [
      ...divided.map(([, tensor]) => readRows(tensor)),
      ...fullInputs.map(([, each]) => readWhole(each)),
    ];
    const scalars = [scale && readWhole(scale), amax && readWhole(amax)];
    const sourceRow = (row: number): number =>
      (chosen[Math.floor(row / height)] as number) * height + (row % height);
    return {
      results: async (): Promise<Compare> => {
        const outputs = [copy.data, ...statistics.map(([, tensor]) => tensor)].map(readRows);
        const stored = [readWhole(copy.scaleInv), copy.amax && readWhole(copy.amax)];
        const [values, [scaleBytes, amaxBytes]] = [await Promise.all(inputs), await Promise.all(scalars)];
        const [actual, [scales, storedAmax]] = [await Promise.all(outputs), await Promise.all(stored)];
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
          const tensors: Record<string, Tensor> = {};
          for (const [i, [name, { size, shape, dtype }]] of [...divided, ...fullInputs].entries())
            tensors[name] = tensorOfBytes(
              reference,
              values[i] as Uint8Array,
              i < divided.length ? [count, size / rows] : shape,
              dtype,
            );
          for (const [name, { dtype }] of statistics) tensors[name] = new Tensor(reference, dtype, [count]);
          for (const [name, { dtype, shape }] of present(names.sums))
            tensors[name] = new Tensor(reference, dtype, shape);
          runOn(reference, op, {
            ...args,
            ...tensors,
            ...{ rowwise: result, columnwise: undefined, amaxColumnwise: undefined },
            ...{ part: undefined, amaxRecord: undefined },
            scale: scalar(scaleBytes),
            amax: spec.rowScaled ? undefined : scalar(amaxBytes ?? storedAmax),
          });
          const layout = { columns, count, sourceRow };
          return compareResults([
            {
              ...{ name: "codes", dtype: copy.data.dtype, actual: actual[0] as Uint8Array },
              expected: bytesOf(result.data),
              indexOf: (i) => [sourceRow(Math.floor(i / columns)), i % columns],
            },
            scaleResult(copy, result, { spec, scales: scales as Uint8Array, ...layout }),
            ...statistics.map(([name, { dtype }], i) => ({
              ...{ name, dtype, actual: actual[i + 1] as Uint8Array },
              expected: bytesOf(tensors[name] as Tensor),
              indexOf: (row: number) => [sourceRow(row)],
            })),
          ]);
        };
      },
    };
  };
}

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
      const index = scaleIndex(spec, result.geometry, { line: group * lines, along });
      expected.set(expectedBytes.subarray(index * size, (index + 1) * size), to);
    }
  return {
    ...{ name: "scales", dtype: copy.scaleInv.dtype, actual, expected },
    indexOf: (i: number) => [
      sourceRow(Math.floor(i / blocks) * lines),
      i % blocks === 0 ? 0 : (i % blocks) * length,
    ],
  };
}
