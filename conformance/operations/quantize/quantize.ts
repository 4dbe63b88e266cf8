/** The operation `quantize`: wide matrices to codes and scales, under every quantizer. */
import * as fc from "fast-check";
import type { Backend } from "../../../src/backends/backend.js";
import type { MatrixPart } from "../../../src/backends/ops.js";
import { BLOCK_FORMATS, type BlockFormatName, blockedRows } from "../../../src/formats/block.js";
import { factsOf } from "../../../src/formats/derive.js";
import { callable } from "../../../src/options.js";
import type { Quantizer } from "../../../src/quantizers/quantizer.js";
import type { RandomSource } from "../../../src/random.js";
import { copyGeometry } from "../../../src/tensor/geometry.js";
import type { QuantizedTensor, QuantizeSpec, ScaleLayout, Usage } from "../../../src/tensor/quantized.js";
import { DIRECTIONS } from "../../../src/tensor/quantized.js";
import { type DType, elementCount, type Shape, type WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { randomSource } from "../../arbitraries/formats.js";
import { anyRows, drawnBlock, wideMatrix } from "../../arbitraries/matrices.js";
import { words } from "../../arbitraries/random.js";
import { quantizeSpec, scaleLayout, sourceType, usage } from "../../arbitraries/specs.js";
import * as oracle from "../../oracle/quantize/quantize.js";
import { download, fromCodes, PlainTensor, upload, wideValues } from "../../values/plain.js";
import type { Answer, Operation } from "../operation.js";
import { downloadQuantized, layOut, oracleSpec, SpecQuantizer } from "./quantized.js";

/** The options of a quantization. */
export interface Quantization {
  /** The quantizer and all options that affect bits, except the random bits. */
  readonly spec: QuantizeSpec;
  /** The copies to create. */
  readonly usage: Usage;
  /** The layout of the scales. */
  readonly scaleLayout: ScaleLayout;
  /** Seed and offset, which stochastic rounding uses. */
  readonly random: RandomSource;
  /**
   * The position of the matrix in a larger one, whose element positions select the random bits. Absent: it is not part of
   * another.
   */
  readonly part?: MatrixPart | undefined;
  /** Random bits for stochastic rounding instead of a seed: one word for each element of the rowwise copy. */
  readonly randomBits?: PlainTensor<"u32"> | undefined;
  /** As `randomBits`, for the columnwise copy. */
  readonly randomBitsColumnwise?: PlainTensor<"u32"> | undefined;
  /** The caller's scale; `fp8-delayed` only. */
  readonly scale: number;
  /** Whether the amax is recorded; `fp8-delayed` only. Default true. */
  readonly records?: boolean;
}

/** One input of the operation `quantize`, as plain data. */
export interface QuantizeCase extends Quantization {
  /** The input values. */
  readonly x: PlainTensor<WideDType>;
  /** The `noop` flag of an update of an existing target, whose bytes are other ones. Absent: a new tensor is created. */
  readonly noop?: number | undefined;
}

/** Values of the flag: absent, exactly 1 (no update), and others, which have no effect. */
export const NOOPS = [undefined, 1, 0, 2, Number.NaN] as const;

const delayedScale = fc.oneof(fc.constantFrom(1, 2, 448, 2 ** -10), fc.float({ min: 0, noNaN: true }));

/** Shapes for a format: columns are multiples of `multiple`, and blocks have the length `block`. */
export type Shapes = (multiple: number, block: number) => fc.Arbitrary<Shape>;

/** Draws the other options of a quantization by `spec`. */
export function quantizationBy(spec: QuantizeSpec): fc.Arbitrary<Quantization> {
  return fc.record({
    spec: fc.constant(spec),
    usage: usage(),
    scaleLayout: scaleLayout(spec),
    random: randomSource(),
    scale: delayedScale,
    records: fc.integer({ min: 0, max: 3 }).map((n) => n < 3),
  });
}

/**
 * Draws calls of the quantizers `names`. The matrices come from `wideMatrix`, which plants values that are difficult
 * for block scaling. Throws `ArgumentError` for an unknown name.
 */
export function quantizeCase(
  names?: readonly BlockFormatName[],
  shapes: Shapes = anyRows,
): fc.Arbitrary<QuantizeCase> {
  callable("quantizeCase", "shapes", shapes);
  return quantizeCaseBy(quantizeSpec(names), shapes);
}

/** As `quantizeCase`, with specs, types and values that the caller draws. */
export function quantizeCaseBy(
  specs: fc.Arbitrary<QuantizeSpec>,
  shapes: Shapes = anyRows,
  type = sourceType,
  values: (x: PlainTensor<WideDType>) => PlainTensor<WideDType> = (x) => x,
): fc.Arbitrary<QuantizeCase> {
  return specs.chain((spec) => {
    const block = drawnBlock(spec.tile);
    const { multiple } = BLOCK_FORMATS[spec.quantizer];
    const aim = fc.tuple(type(spec), shapes(multiple, block));
    const { max } = factsOf(spec.format);
    const x = aim.chain(([dtype, shape]) => wideMatrix({ dtype, shape, block, max }).map(values));
    const noop = fc.oneof({ weight: 5, arbitrary: fc.constant(undefined) }, fc.constantFrom(...NOOPS));
    const wordsSeed = spec.stochastic ? fc.option(fc.nat(), { nil: undefined }) : fc.constant(undefined);
    return fc.tuple(x, quantizationBy(spec), noop, wordsSeed).map(([source, rest, flag, seed]) => {
      const bits = seed === undefined ? {} : randomBitsFor(rest, source.matrix, seed);
      return { ...rest, ...bits, x: source, noop: flag };
    });
  });
}

/** Frequent random words: one that always rounds up, one that never does, words with few bits, and any. */
const WORDS = [0xffffffff, 0, 0x80000000, 0x7f000000, 0x00ffffff, 1] as const;

/** Random bits for the copies of a matrix of this size: words drawn from `seed`, some of them from `WORDS`. */
export function randomBitsFor(
  { spec, usage: copies }: Pick<Quantization, "spec" | "usage">,
  [rows, columns]: readonly [rows: number, columns: number],
  seed: number,
): Pick<Quantization, "randomBits" | "randomBitsColumnwise"> {
  const bits = (shape: Shape, salt: number): PlainTensor<"u32"> => {
    const drawn = words((seed + salt) | 0, elementCount(shape));
    const codes = drawn.map((word) =>
      word % 8 === 0 ? (WORDS[(word >>> 3) % WORDS.length] as number) : word,
    );
    return fromCodes("u32", shape, codes);
  };
  const rowCount = blockedRows(spec, rows);
  const { data } = copyGeometry(spec, [rows, columns], "columnwise", "logical");
  return {
    ...(copies.rowwise ? { randomBits: bits([rows, columns], 0) } : {}),
    ...(copies.columnwise
      ? { randomBitsColumnwise: bits(data === "transposed" ? [columns, rowCount] : [rowCount, columns], 1) }
      : {}),
  };
}

/** Runs `quantize` with these options. The answer includes the recorded amax. */
export function runQuantizer(
  backend: Backend,
  how: Quantization,
  quantize: (quantizer: Quantizer) => QuantizedTensor,
): Answer {
  const { spec, usage: copies, scaleLayout: layout, random, part, scale, records = true } = how;
  const options = { ...copies, scaleLayout: layout };
  if (spec.quantizer !== "fp8-delayed") {
    const [randomBits, randomBitsColumnwise] = [how.randomBits, how.randomBitsColumnwise].map(
      (bits) => bits && upload(backend, bits),
    );
    const inputs = { random, part, randomBits, randomBitsColumnwise };
    return downloadQuantized(quantize(new SpecQuantizer(spec, options, inputs)));
  }
  const factor = upload(backend, scalar(scale));
  if (!records) return downloadQuantized(quantize(new SpecQuantizer(spec, options, { scale: factor })));
  const amaxRecord = upload(backend, scalar(0));
  const copy = downloadQuantized(quantize(new SpecQuantizer(spec, options, { scale: factor, amaxRecord })));
  return { ...copy, amax: download(amaxRecord) };
}

/** The oracle's answer to the same call, for a matrix of this size. */
export function askOracle(
  how: Quantization,
  matrix: readonly [rows: number, columns: number],
  quantize: (spec: oracle.QuantizeSpec) => oracle.Quantized,
): Answer {
  const { spec, usage: copies, scaleLayout: layout, random, part, scale, records = true } = how;
  const directions = DIRECTIONS.filter((direction) => copies[direction]);
  const callerWords = { rowwise: how.randomBits?.codes, columnwise: how.randomBitsColumnwise?.codes };
  const result = quantize({
    ...oracleSpec(spec),
    ...random,
    words: callerWords,
    part,
    scale,
    usage: directions,
  });
  const answer: Record<string, PlainTensor> = {};
  for (const direction of directions) {
    const copy = result[direction];
    if (!copy) continue;
    const { dataType, dataShape, scaleType, scaleShape } = copyGeometry(spec, matrix, direction, layout);
    const [rows = 1, columns = 1] = copy.scaleShape;
    const { values } = layOut({ values: copy.scale, shape: [rows, columns] }, spec, direction, layout);
    answer[`${direction}.data`] = fromCodes(dataType, dataShape, copy.codes);
    answer[`${direction}.scaleInv`] = fromCodes(scaleType, scaleShape, values);
    const amaxes = copy.amaxes ?? (copy.amax === undefined ? undefined : [copy.amax]);
    if (amaxes) answer[`${direction}.amax`] = fromCodes("f32", [amaxes.length], amaxes);
  }
  if (result.amax !== undefined && records) answer.amax = fromCodes("f32", [1], [result.amax]);
  return answer;
}

/** The bytes of a target before an update: all byte values. */
function bytesBefore<D extends DType>(dtype: D, shape: Shape): PlainTensor<D> {
  return fromCodes(dtype, shape, words(1, elementCount(shape)));
}

function update(quantizer: Quantizer, x: Tensor<WideDType>, flag: number): QuantizedTensor {
  const target = quantizer.makeEmpty(x.backend, x.shape, x.dtype);
  for (const member of target.members) member.write(bytesBefore(member.dtype, member.shape).data);
  quantizer.updateQuantized(x, target, { noop: upload(x.backend, scalar(flag)) });
  return target;
}

export const quantizeOperation: Operation<QuantizeCase> = {
  arbitrary: quantizeCase(),
  run: (backend, { x, noop, ...how }) =>
    runQuantizer(backend, how, (quantizer) => {
      const source = upload(backend, x);
      return noop === undefined ? quantizer.quantize(source) : update(quantizer, source, noop);
    }),
  oracle({ x, noop, ...how }) {
    const answer = askOracle(how, x.matrix, (spec) =>
      oracle.quantize({ data: wideValues(x), shape: x.matrix, dtype: x.dtype }, spec),
    );
    if (noop !== 1) return answer;
    const before = Object.entries(answer).map(([name, { dtype, shape }]) => [
      name,
      name === "amax" ? scalar(0) : bytesBefore(dtype, shape),
    ]);
    return Object.fromEntries(before);
  },
};

/** A tensor of one f32. */
export function scalar(value: number): PlainTensor<"f32"> {
  return new PlainTensor("f32", [1], Float32Array.of(value));
}
