/**
 * Results of an H100 and an H200 as hashes of their bits: fixed cases of every operation, derived from seeds, that every backend
 * can compute. A product is recorded with the plan that the GPU chose, and is recomputed under it.
 */
import { readFileSync } from "node:fs";
import type { GemmPlan } from "../../../../src/ops/gemm/plan.js";
import { OPERATION_NAMES, type OperationName } from "../../../operations/operations.js";
import { drawnCases, type FrozenCase, type Hashes } from "./case.js";
import { ELEMENTWISE_CASES } from "./elementwise.js";
import { BATCHED_CASES } from "./products.js";
import { QUANTIZED_CASES } from "./quantized.js";
import { ROW_CASES } from "./rows.js";

const EXPLICIT_CASES: readonly FrozenCase[] = [
  ...QUANTIZED_CASES,
  ...ELEMENTWISE_CASES,
  ...ROW_CASES,
  ...BATCHED_CASES,
];

/** The operations with the cases above; `gemm` has products. */
const EXPLICIT_OPERATIONS = new Set<OperationName>([
  "gemm",
  ...EXPLICIT_CASES.map(({ operation }) => operation),
]);

/** All frozen cases except products, which are recorded together with their plans. */
export const FROZEN: readonly FrozenCase[] = [
  ...EXPLICIT_CASES,
  ...OPERATION_NAMES.filter((operation) => !EXPLICIT_OPERATIONS.has(operation)).flatMap(drawnCases),
];

/** The contents of conformance/vectors/h100-results.json and h200-results.json. */
export interface FrozenFile {
  readonly origin: { readonly project: string; readonly version: string };
  readonly results: readonly { readonly name: string; readonly sha256: Hashes }[];
  readonly products: readonly { readonly name: string; readonly plan: GemmPlan; readonly sha256: Hashes }[];
}

/** The recordings, one for each GPU. The older one lacks newer cases. */
export const RECORDINGS: readonly FrozenFile[] = ["h200", "h100"].map((gpu) =>
  JSON.parse(readFileSync(new URL(`../../../vectors/${gpu}-results.json`, import.meta.url), "utf8")),
);
