/** An order in plain words. */
import { DATAPATHS, type DatapathName, type DatapathRow } from "../formats/datapath.js";
import { EPILOGUES, type EpilogueName } from "./epilogues.js";
import type { Arithmetic, JoinName, Lanes, Pairwise, ScalingName, SummationOrder } from "./order.js";

const JOINS: Readonly<Record<JoinName, string>> = {
  ascending: "in ascending order",
  descending: "in descending order",
  halves: "by halves (i with i + n/2)",
  neighbours: "in pairs of neighbours",
};

const SCALINGS: Readonly<Record<ScalingName, string>> = {
  elements: "elements are multiplied by their scales first",
  fmaOfProduct: "fma(chain, sX ⊗ sW, total)",
  addOfProduct: "total ⊕ chain ⊗ (sX ⊗ sW)",
  fmaInTurn: "fma(chain ⊗ sX, sW, total)",
  addInTurn: "total ⊕ (chain ⊗ sX) ⊗ sW",
  addInTurnFromW: "total ⊕ (chain ⊗ sW) ⊗ sX",
};

function arithmeticWords(arithmetic: Arithmetic): string {
  switch (arithmetic.kind) {
    case "fused":
      return "fused multiply-add in f32";
    case "rounded":
      return "products rounded to f32, then added in f32";
    case "double":
      return "products added in f64";
    case "narrow":
      return `sums rounded to ${arithmetic.format} after each addition`;
    case "dotAdd": {
      const { step, alignBits, fractionBits } = arithmetic.rule;
      const name = (Object.keys(DATAPATHS) as DatapathName[]).find((candidate) => {
        const { dotAdd }: DatapathRow = DATAPATHS[candidate];
        return (
          dotAdd?.step === step && dotAdd.alignBits === alignBits && dotAdd.fractionBits === fractionBits
        );
      });
      return `tensor-core steps of ${step} products, aligned to ${alignBits} bits and truncated to ${fractionBits}${name ? ` (${name})` : ""}`;
    }
  }
}

function laneWords({ count, run, join }: Lanes): string {
  const assignment =
    run === 1
      ? `element k goes to accumulator k mod ${count}`
      : `runs of ${run} elements go to ${count} accumulators in turn`;
  return `${assignment}, joined ${JOINS[join]}`;
}

function pairwiseWords({ base, split }: Pairwise): string {
  if (split === "numpy") return "numpy's pairwise sum (8 accumulators up to 128 elements, then halves)";
  const boundary = split === "middle" ? "in the middle" : "at a power of two";
  return `pairwise, divided ${boundary} down to ${base} element${base === 1 ? "" : "s"}`;
}

/** Describes an order in one sentence without a capital or a period. */
export function orderWords(order: SummationOrder, epilogue: EpilogueName = "fused"): string {
  const { arithmetic, lanes, pairwise, block, splits, scaling } = order;
  const inner = pairwise ? pairwiseWords(pairwise) : lanes.count > 1 ? laneWords(lanes) : "ascending k";
  const clauses = [
    `${inner}, ${arithmeticWords(arithmetic)}`,
    ...(block > 0 ? [`blocks of ${block} along K start at zero and are added to the total in f32`] : []),
    ...(scaling ? [`block scales: ${SCALINGS[scaling]}`] : []),
    ...(splits.count > 1
      ? [`${splits.count} splits of K in multiples of ${splits.tile}, added ${JOINS[splits.join]}`]
      : []),
    ...(epilogue === "fused" ? [] : [`then ${EPILOGUES[epilogue].words}`]),
  ];
  return clauses.join("; ");
}
