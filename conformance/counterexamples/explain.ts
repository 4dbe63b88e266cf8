/** Explains the first differing element of a counterexample: the computation of the expected one, and the subject's. */
import { openBackend } from "../../src/backends/open.js";
import { explainQuantize } from "../../src/explain/explain-quantize.js";
import { explainGemm } from "../../src/explain/gemm.js";
import { roundTo } from "../../src/explain/rounding.js";
import { Suspicions } from "../../src/explain/suspicion.js";
import { codeText, gemmText, numberText, quantizeText } from "../../src/explain/text.js";
import { hasGivenScale } from "../../src/formats/block.js";
import { factsOf } from "../../src/formats/derive.js";
import { Scope } from "../../src/tensor/scope.js";
import { asMatrix } from "../../src/tensor/shape.js";
import type { EncodeCase } from "../operations/cast/encode.js";
import { directionsOf, type GemmCase } from "../operations/gemm/case.js";
import { uploadOperand } from "../operations/gemm/operand.js";
import type { Cases, OperationName } from "../operations/operations.js";
import type { QuantizeCase } from "../operations/quantize/quantize.js";
import { differenceOf } from "../values/difference.js";
import { type PlainTensor, upload, wideValues } from "../values/plain.js";
import { wrongDirections } from "./suspects/copies.js";
import type { Evidence } from "./suspects/suspect.js";
import { View } from "./suspects/view.js";

type Explain<K extends OperationName> = (
  evidence: Evidence<Cases[K]>,
) => readonly string[] | Promise<readonly string[]>;

const EXPLAIN: { readonly [K in OperationName]?: Explain<K> } = { quantize, encode, gemm };

/** Lines that explain the first differing element. Empty for an operation that has no explanation. */
export async function explained<K extends OperationName>(
  operation: K,
  evidence: Evidence<Cases[K]>,
): Promise<readonly string[]> {
  const explain = EXPLAIN[operation];
  return explain ? await explain(evidence) : [];
}

function quantize(evidence: Evidence<QuantizeCase>): readonly string[] {
  const { input, actual, expected } = evidence;
  const [direction] = wrongDirections(evidence);
  if (!direction || input.scaleLayout !== "logical" || input.part || input.noop === 1) return [];
  const parts = ["data", "scaleInv"].map((part) => {
    const name = `${direction}.${part}`;
    return [actual[name]?.codes, expected[name]?.codes] as const;
  });
  const [[codes, right], [scales, rightScales]] = parts as [(typeof parts)[number], (typeof parts)[number]];
  if (!codes || !right || !scales || !rightScales) return [];
  const view = new View(input, direction);
  const at = Array.from(view.scaleOf.keys()).filter(
    (i) =>
      codes[view.codeOf[i] as number] !== right[view.codeOf[i] as number] ||
      scales[view.scaleOf[i] as number] !== rightScales[view.scaleOf[i] as number],
  );
  // the element that determines the scale says more than a zero in its block
  const largest = (i: number) =>
    Math.abs(view.source.value(Math.floor(i / view.source.columns), i % view.source.columns));
  const isScale = (i: number) => scales[view.scaleOf[i] as number] !== rightScales[view.scaleOf[i] as number];
  // a wrong tensor amax is explained at the element that has the amax
  const [
    first = Array.from(view.scaleOf.keys()).reduce((best, i) => (largest(i) > largest(best) ? i : best), 0),
  ] = at;
  if (view.scaleOf.length === 0) return [];
  const inBlock = at.filter((i) => view.scaleOf[i] === view.scaleOf[first]);
  const chosen = isScale(first)
    ? inBlock.reduce((best, i) => (largest(i) > largest(best) ? i : best), first)
    : first;
  const { columns } = view.source;
  const [row, column] = [Math.floor(chosen / columns), chosen % columns];
  const [, columnCount] = asMatrix(input.x.shape);
  if (columnCount !== columns || row >= input.x.matrix[0]) return [];
  const { spec, random } = input;
  const randomBits = (direction === "rowwise" ? input.randomBits : input.randomBitsColumnwise)?.data as
    | Uint32Array
    | undefined;
  const scale = hasGivenScale(spec) ? input.scale : undefined;
  const values = { data: input.x.data, dtype: input.x.dtype, shape: input.x.matrix };
  const suspicions = new Suspicions(values, { spec, context: { direction, scale, random, randomBits } });
  const elementOf = (of: ArrayLike<number>, by: ArrayLike<number>) => ({
    code: of[view.codeOf[chosen] as number] as number,
    scale: by[view.scaleOf[chosen] as number] as number,
  });
  // suspects fit all answers, so no guess is made from a single element
  const described = suspicions.difference(
    row,
    column,
    elementOf(right, rightScales),
    elementOf(codes, scales),
  );
  return [
    ...(at.length > 0 ? [described] : []),
    ...quantizeText(
      explainQuantize(values, {
        spec,
        at: [row, column],
        direction,
        ...(scale === undefined ? {} : { scale }),
        ...(spec.stochastic ? { random, randomBits } : {}),
      }),
    ),
  ];
}

function encode({ input, actual, expected }: Evidence<EncodeCase>): readonly string[] {
  const { x, format, rounding, overflow, scale } = input;
  const [ours, right] = [actual.codes, expected.codes];
  if (typeof format !== "string" || rounding === "stochastic" || !ours || !right) return [];
  const packed = right.codes.length * 2 === x.codes.length;
  const codeAt = ({ codes }: PlainTensor, i: number): number =>
    packed ? ((codes[i >> 1] as number) >> (4 * (i & 1))) & 15 : (codes[i] as number);
  const first = x.codes.findIndex((_, i) => codeAt(ours, i) !== codeAt(right, i));
  if (first < 0) return [];
  const value = wideValues(x)[first] as number;
  const product = scale === 1 ? value : Math.fround(value * Math.fround(scale));
  const { lower, upper, tie, decision, result } = roundTo(product, { format, rounding, overflow });
  const { bits } = factsOf(format);
  const side = (each: typeof upper) =>
    each && `${numberText(each.value)}${each.code === undefined ? "" : ` (${codeText(each.code, bits)})`}`;
  return [
    `x = ${numberText(value)}${scale === 1 ? "" : `, times ${numberText(scale)} = ${numberText(product)}`}, to ${format} by ${rounding}, ${overflow}`,
    ...(lower && upper ? [`between ${side(lower)} and ${side(upper)}${tie ? ": an exact tie" : ""}`] : []),
    `${decision}: code ${codeText(codeAt(right, first), bits)} = ${numberText(result)}, yours ${codeText(codeAt(ours, first), bits)}`,
  ];
}

async function gemm({ input, actual, expected }: Evidence<GemmCase>): Promise<readonly string[]> {
  const { a, b, c, bias, layout, alpha, beta, datapath, useSplitAccumulator, splitK, outDtype, outScale } =
    input;
  const [ours, right] = [actual.out, expected.out];
  if (input.gelu || input.geluInput || input.biasGradient || input.accumulate || !ours || !right) return [];
  const difference = ours.codes.length === right.codes.length ? differenceOf(ours, right) : undefined;
  if (!difference) return [];
  const backend = await openBackend("wasm", { threads: 1 });
  try {
    using _scope = new Scope();
    const directions = directionsOf(layout);
    const explanation = explainGemm({
      a: uploadOperand(backend, a, directions.a),
      b: uploadOperand(backend, b, directions.b),
      layout,
      alpha,
      ...(c ? { c: upload(backend, c), ...(beta === undefined ? {} : { beta }) } : {}),
      ...(bias ? { bias: upload(backend, bias) } : {}),
      datapath,
      useSplitAccumulator,
      splitK,
      ...(outDtype ? { outDtype, outScale } : {}),
      at: difference.coordinate,
    });
    return gemmText(explanation);
  } finally {
    await backend.dispose();
  }
}
