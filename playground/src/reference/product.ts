/** A dot product step by step, as plain data: explanations of one element of a product under three datapaths. */
import {
  type Backend,
  BLOCK_FORMATS,
  type BlockFormat,
  DATAPATHS,
  type DatapathFamily,
  type DatapathRow,
  type ExplainedChain,
  type ExplainedDotAdd,
  type ExplainedSum,
  encode,
  explainGemm,
  factsOf,
  type GemmExplanation,
  type QuantizedTensor,
  quantizerOf,
  type ScalarFormat,
  type Tensor,
  tensor,
} from "lockstep";
import { within } from "./backend.js";
import type { Choice } from "./choices.js";
import { roundUp } from "./quantization.js";

/** The quantization of a vector before multiplication: codes of a format, or a dialect's quantizer with scales. */
export type Operand = ScalarFormat | Choice;

/** How a dot product is summed. */
export interface ProductSettings {
  readonly x: Operand;
  readonly w: Operand;
  readonly datapath: DatapathFamily;
  readonly splitAccumulator: boolean;
  readonly splitK: number;
}

/** A step of a tensor core, and its position. */
export interface PlacedStep {
  readonly step: ExplainedDotAdd;
  readonly chain: ExplainedChain;
  readonly split: number;
}

/** A dot product under a datapath, in f32 and exactly; its steps, and its sums along K. */
export interface ProductAnswer {
  /** The number of products, without the zeros that pad the vectors. */
  readonly depth: number;
  readonly explained: GemmExplanation;
  readonly fp32: GemmExplanation;
  readonly exact: GemmExplanation;
  readonly row: DatapathRow;
  readonly steps: readonly PlacedStep[];
  /** The sum after each step, or after each product for datapaths without steps. */
  readonly sums: Sums;
  readonly fp32Sums: Sums;
  readonly exactSums: Sums;
}

/** Positions along K, and the sums up to them. */
type Sums = readonly (readonly [end: number, sum: number])[];

/** Multiplies two vectors. Throws an error of the library for operands that a datapath does not multiply. */
export function explainProduct(
  backend: Backend,
  xs: Float32Array,
  ws: Float32Array,
  { x, w, datapath, splitAccumulator, splitK }: ProductSettings,
): ProductAnswer {
  const depth = Math.min(xs.length, ws.length);
  const padded = [x, w].reduce((size, operand) => roundUp(size, multipleOf(operand)), depth);
  return within(() => {
    const made = (values: Float32Array, operand: Operand) => {
      const all = new Float32Array(padded);
      all.set(values.subarray(0, depth));
      return operandOf(tensor(backend, all, [1, padded]), operand);
    };
    const operands = { x: made(xs, x), w: made(ws, w), outDtype: "f32", at: [0, 0] } as const;
    const explained = explainGemm({ ...operands, datapath, useSplitAccumulator: splitAccumulator, splitK });
    const [fp32, exact] = (["fp32", "exact"] as const).map((name) =>
      explainGemm({ ...operands, datapath: name }),
    ) as [GemmExplanation, GemmExplanation];
    return {
      depth,
      explained,
      fp32,
      exact,
      row: DATAPATHS[explained.plan.datapath],
      steps: stepsOf(explained.sum),
      sums: sumsOf(explained.sum),
      fp32Sums: sumsOf(fp32.sum),
      exactSums: sumsOf(exact.sum),
    };
  });
}

/** The number that divides the length of an operand. */
function multipleOf(operand: Operand): number {
  if (typeof operand === "string") return factsOf(operand).bits < 8 ? 2 : 1;
  return (BLOCK_FORMATS[operand.quantizer] as BlockFormat).multiple;
}

function operandOf(x: Tensor<"f32">, operand: Operand): Tensor | QuantizedTensor {
  if (typeof operand === "string") return encode(x, { format: operand });
  const { dialect, quantizer, format, tile } = operand;
  return quantizerOf({ dialect, quantizer, format, tile }).quantize(x);
}

function stepsOf(sum: ExplainedSum): readonly PlacedStep[] {
  if (sum.kind !== "tensorCore") return [];
  return sum.splits.flatMap(({ chains }, split) =>
    chains.flatMap((chain) => chain.dotAdds.map((step) => ({ step, chain, split }))),
  );
}

function sumsOf(sum: ExplainedSum): Sums {
  if (sum.kind !== "tensorCore") return sum.products.map(({ k, total }) => [k + 1, total]);
  return stepsOf(sum).map(({ step }) => [step.to, step.total]);
}
