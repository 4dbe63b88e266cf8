/** Explains differences between a recorded and a computed output. */
import { LockstepError } from "../errors.js";
import { explainGemm } from "../explain/gemm.js";
import { gemmText } from "../explain/text.js";
import { codeText } from "../io/codes.js";
import type { GemmSettings } from "../ops/gemm/options.js";
import { Scope } from "../tensor/scope.js";
import type { Shape } from "../tensor/shape.js";
import type { FirstDifference } from "../tensor/statistics/difference-count.js";
import { type Call, isValue } from "./call.js";
import { SPLIT_PRODUCTS, searchProduct } from "./product-search.js";
import type { OperatorRow } from "./table.js";
import { broadcast, itemSize, stridesOf, type Value } from "./value.js";

/** A recorded output that differs from the computed output. */
export interface Difference {
  /** The index of the output. */
  readonly output: number;
  /** The number of elements that differ; undefined if only the hash was recorded. */
  readonly different?: number;
  /** The number of elements that were compared. */
  readonly elements: number;
  /** The first element that differs: `a` is the recorded code, `b` is the computed code. */
  readonly first?: FirstDifference;
  /** All recorded bytes, if the whole output was recorded. */
  readonly recorded?: Uint8Array;
  readonly computed: Value;
  /** Whether only a sample of the output was recorded. */
  readonly isSample?: true;
  /** The explanation, as lines of text. */
  readonly lines: readonly string[];
}

/** Other products. A result that differs from the expected product is compared with them. */
const OTHER_PRODUCTS: readonly { readonly name: string; readonly settings: GemmSettings }[] = [
  ...[true, false].map((useSplitAccumulator) => ({
    name: "with the other kind of accumulator (use_fast_accum)",
    settings: { useSplitAccumulator },
  })),
  ...SPLIT_PRODUCTS.map(({ settings }) => ({ name: `with ${settings.splitK} splits of K`, settings })),
  { name: "with the sums rounded once (datapath exact)", settings: { datapath: "exact" } },
  { name: "with sums in a plain loop of f32 (datapath fp32)", settings: { datapath: "fp32" } },
];

/** The indices of an element in a shape. */
export function elementCoordinates(shape: Shape, index: number): readonly number[] {
  return stridesOf(shape).map((stride, dim) => Math.floor(index / stride) % (shape[dim] as number));
}

/** Adds an explanation of the first element that differs. */
export function explainDifference(difference: Difference, { product }: OperatorRow, call: Call): Difference {
  const { first, computed, lines } = difference;
  if (!first) return difference;
  const coordinates = elementCoordinates(computed.shape, first.index);
  const explanation = product
    ? productLines(difference, product, call, coordinates)
    : operandLines(call, computed, first.index);
  return { ...difference, lines: [...lines, ...explanation] };
}

function productLines(
  { recorded, computed }: Difference,
  gemmOptions: NonNullable<OperatorRow["product"]>,
  call: Call,
  coordinates: readonly number[],
): readonly string[] {
  using _ = new Scope();
  const options = gemmOptions(call);
  const match = recorded && searchProduct(options, { ...computed, bytes: recorded }, OTHER_PRODUCTS);
  const explanation = match ? [`every recorded element is the product ${match.name}`] : [];
  return [...explanation, ...gemmText(explainGemm({ ...options, at: coordinates }))];
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
