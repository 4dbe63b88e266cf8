/** A verdict on a kernel of any order, in plain words. */
import { hexFloat } from "../../../src/explain/binary.js";
import { ACCUMULATORS } from "../../../src/orders/accumulators.js";
import type { OrderFinding, OrderVerdict } from "../../../src/orders/judge.js";
import { MAX_OTHERS } from "../../../src/orders/search.js";
import type { Cases } from "../../operations/operations.js";
import type { Drawn, OrderedOperation } from "./draw.js";

const count = (number: number): string => number.toLocaleString("en-US");

/** A number with three digits, without an exponent if it is of ordinary size. */
function textOf(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  return Number(value.toPrecision(7)) === value
    ? String(value)
    : `${hexFloat(value)} (${value.toPrecision(8)})`;
}

/** The shape and the kind of an input. */
function inputWords({ input, flavour }: Drawn<Cases[OrderedOperation]>): string {
  if ("x" in input) return `sums of the columns of ${input.x.dtype} [${input.x.shape}], values: ${flavour}`;
  const [x, w] = [input.b.codes, input.a.codes];
  return `x ${x.dtype} [${x.matrix}], w ${w.dtype} [${w.matrix}], values: ${flavour}`;
}

function findingWords(finding: OrderFinding, inputs: readonly Drawn<Cases[OrderedOperation]>[]): string {
  const { result, row, column, actual, interval, words } = finding;
  const input = inputs[result] as Drawn<Cases[OrderedOperation]>;
  return `input ${result} (${inputWords(input)}): [${row},${column}] is ${textOf(actual)}; ${words}; the exact value is ${textOf(interval.exact)}`;
}

/** How many times wider each tolerance is than the intervals. */
function widthWords({ widths }: OrderVerdict): readonly string[] {
  const widthLines = widths
    .filter(({ ratio }) => !Number.isNaN(ratio))
    .map(({ tolerance, ratio }) =>
      ratio === Number.POSITIVE_INFINITY
        ? `${tolerance} is wider than an interval of one value`
        : `${tolerance} is ${count(Number(ratio.toPrecision(2)))} times as wide`,
    );
  return widthLines.length > 0
    ? [`compared with the interval of all orders, in the median: ${widthLines.join("; ")}`]
    : [];
}

/** The lines of a verdict. */
export function verdictLines(
  verdict: OrderVerdict,
  inputs: readonly Drawn<Cases[OrderedOperation]>[],
): readonly string[] {
  const { orders, counts, others, findings, wrong, by, accumulator } = verdict;
  const candidates = `${count(counts.candidates)} candidate orders`;
  const orderLines = orders.map(({ depth, words, elements }) => {
    const condition = depth === undefined ? "" : ` for K = ${depth}`;
    return `order${condition}: ${words} (explains ${count(elements)} elements bit for bit)`;
  });
  return [
    ...orderLines,
    ...(by === "order"
      ? [
          `held to the order: ${count(counts.elements - counts.bounded)} elements, found by exclusion among ${candidates}`,
        ]
      : [
          `none of ${candidates} explains ${orderLines.length > 0 ? "the other" : "all"} elements, so ${count(counts.bounded)} of ${count(counts.elements)} elements are held to the interval that contains every order (accumulator: ${ACCUMULATORS[accumulator].words})`,
        ]),
    ...(by === "order" && counts.bounded > 0
      ? [`held to intervals: ${count(counts.bounded)} elements with NaN or infinities among their operands`]
      : []),
    ...(others > 0
      ? [
          `these inputs do not distinguish ${others}${others < MAX_OTHERS ? "" : " or more"} other orders from it`,
        ]
      : []),
    ...widthWords(verdict),
    ...(wrong > 0 ? [`${count(wrong)} wrong elements:`] : []),
    ...findings.map((finding) => `  ${findingWords(finding, inputs)}`),
  ];
}
