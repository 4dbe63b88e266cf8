/** Explains why a recorded output differs from the computed one. */
import { LockstepError } from "../errors.js";
import { explainGemm } from "../explain/gemm.js";
import { gemmText } from "../explain/text.js";
import { codeText } from "../io/codes.js";
import { gemm } from "../ops/gemm/gemm.js";
import type { GemmSettings } from "../ops/gemm/options.js";
import { Scope } from "../tensor/scope.js";
import type { Shape } from "../tensor/shape.js";
import type { FirstDifference } from "../tensor/statistics/difference-count.js";
import { type Call, isValue } from "./call.js";
import type { OperatorRow } from "./table.js";
import { broadcast, itemSize, stridesOf, toValue, type Value } from "./value.js";

/** An output that differs from the computed one. */
export interface Difference {
  /** The index of the output. */
  readonly output: number;
  /** The number of elements that differ; undefined if only the hash was recorded. */
  readonly different?: number;
  /** The number of elements that were compared. */
  readonly elements: number;
  /** The first element that differs: `a` is the recorded code, `b` the computed one. */
  readonly first?: FirstDifference;
  /** All recorded bytes, if the whole output was recorded. */
  readonly recorded?: Uint8Array;
  readonly computed: Value;
  /** Whether only a sample of the output was recorded. */
  readonly isSample?: true;
  /** The explanation, as lines of text. */
  readonly lines: readonly string[];
}

/** Settings of a product that a result which differs is compared with. */
const OTHER_PRODUCTS: readonly (readonly [name: string, settings: GemmSettings])[] = [
  ["with the other kind of accumulator (use_fast_accum)", { useSplitAccumulator: true }],
  ["with the other kind of accumulator (use_fast_accum)", { useSplitAccumulator: false }],
  ...[2, 3, 4, 5, 6, 7, 8, 16, 32].map((splitK) => [`with ${splitK} splits of K`, { splitK }] as const),
  ["with the sums rounded once (datapath exact)", { datapath: "exact" }],
  ["with sums in a plain loop of f32 (datapath fp32)", { datapath: "fp32" }],
];

/** The indices of an element in a shape. */
export function coordinatesOf(shape: Shape, index: number): readonly number[] {
  return stridesOf(shape).map((stride, dim) => Math.floor(index / stride) % (shape[dim] as number));
}

/** Adds an explanation of the first element that differs. */
export function explainDifference(difference: Difference, { product }: OperatorRow, call: Call): Difference {
  const { first, computed, lines } = difference;
  if (!first) return difference;
  const at = coordinatesOf(computed.shape, first.index);
  const how = product
    ? productLines(difference, product, call, at)
    : operandLines(call, computed, first.index);
  return { ...difference, lines: [...lines, ...how] };
}

function productLines(
  { recorded }: Difference,
  optionsOf: NonNullable<OperatorRow["product"]>,
  call: Call,
  at: readonly number[],
): readonly string[] {
  using _ = new Scope();
  const options = optionsOf(call);
  const match =
    recorded && OTHER_PRODUCTS.find(([, settings]) => isProduct(recorded, { ...options, ...settings }));
  const found = match ? [`every recorded element is the product ${match[0]}`] : [];
  return [...found, ...gemmText(explainGemm({ ...options, at }))];
}

/** Whether a product with these options has the recorded bytes. False if the options exclude each other. */
function isProduct(recorded: Uint8Array, options: Parameters<typeof gemm>[0]): boolean {
  using _ = new Scope();
  try {
    return Buffer.compare(toValue(gemm(options).out).bytes, recorded) === 0;
  } catch (error) {
    if (error instanceof LockstepError) return false;
    throw error;
  }
}

/** The operands of element `index` of an elementwise operator, as lines of text. */
function operandLines(call: Call, { shape }: Value, index: number): readonly string[] {
  return [...call.arguments].flatMap(([name, argument]) => {
    if (typeof argument === "number") return [`${name} = ${argument}`];
    if (!isValue(argument)) return [];
    try {
      return [`${name} = ${elementText(broadcast(argument, shape), index)}`];
    } catch (error) {
      // the operator is not elementwise
      if (error instanceof LockstepError) return [];
      throw error;
    }
  });
}

function elementText({ dtype, bytes }: Value, index: number): string {
  const size = itemSize(dtype);
  const code = bytes
    .subarray(index * size, (index + 1) * size)
    .reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
  const { value, code: hex } = codeText(dtype, code);
  return `${value} (${hex})`;
}
