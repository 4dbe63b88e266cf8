/**
 * The choice of a cuBLASLt algorithm for a product: the first proposal whose order of additions is known, or the algorithm of a
 * given plan.
 */
import { unknownOrder } from "../../../formats/chips.js";
import {
  type GemmAlgorithm,
  REDUCTION_SCHEME,
  type ReductionScheme,
} from "../../../formats/gemm-algorithm.js";
import type { NativeAlgorithm } from "../addon.js";
import type { LoweringContext } from "../lowering.js";
import type { ArgumentsOf } from "../native-arguments.js";
import { ALGORITHM_WORDS } from "./calls.js";

/** The number of proposals that are requested at first (`FEW`), and if none of them is acceptable (`MANY`). */
const FEW = 8;
const MANY = 128;
const ALL_SCHEMES = 7;

/** The conditions that the algorithm of a plan must satisfy. */
export interface AlgorithmRequirements {
  /** The number of the plan (native/gemm/plan.h). */
  readonly plan: number;
  readonly extent: GemmAlgorithm["extent"];
  readonly splitK: number | "auto";
  /** The algorithm of a given plan. If set, no other one is accepted. */
  readonly pinned?: GemmAlgorithm | undefined;
  /** The maximum workspace in bytes. */
  readonly workspace: number;
  /** The alignment of the operands' addresses in bytes. Default: the alignment of allocations. */
  readonly alignment?: number;
  /** Whether additions must follow the order of datapath.md §2. */
  readonly ordered: boolean;
}

/** Chooses and sets the plan's algorithm. Returns undefined if none is acceptable. */
export function chooseAlgorithm(
  context: LoweringContext,
  requirements: AlgorithmRequirements,
): GemmAlgorithm | undefined {
  const { pinned } = requirements;
  for (const proposal of pinned
    ? replayed(context, requirements, pinned)
    : proposals(context, requirements)) {
    if (!isAcceptable(proposal, requirements)) continue;
    const chosen = choose(context, requirements, proposal.words);
    if (chosen) return chosen;
  }
  return undefined;
}

function isAcceptable(proposal: NativeAlgorithm, { splitK, ordered }: AlgorithmRequirements): boolean {
  const scheme = schemeOf(proposal.scheme);
  if (!scheme || (splitK !== "auto" && proposal.splitK !== splitK)) return false;
  return !ordered || unknownOrder(proposal) === undefined;
}

function* proposals(
  context: LoweringContext,
  requirements: AlgorithmRequirements,
): Generator<NativeAlgorithm> {
  const { addon, device } = context;
  const { plan, splitK, workspace, alignment = 256 } = requirements;
  const request = (count: number, schemes: number) =>
    addon.gemmCandidates(device, { plan, count, schemes, alignment, workspace });
  yield* request(FEW, splitK === 1 ? REDUCTION_SCHEME.none : REDUCTION_SCHEME.computeType);
  const all = request(MANY, ALL_SCHEMES);
  yield* all;
  if (splitK === "auto") return;
  const scheme = splitK > 1 ? REDUCTION_SCHEME.computeType : REDUCTION_SCHEME.none;
  for (const proposal of all) {
    const variant = { ...proposal, splitK, scheme };
    if (!isAcceptable(variant, requirements)) continue;
    const configured = addon.gemmConfigure(device, { plan, scheme, ...attributes(variant) });
    if (configured) yield configured;
  }
}

/**
 * Yields candidates for a stored algorithm: its own bytes if this version of cuBLASLt wrote them, then an algorithm with the
 * same attributes.
 */
function* replayed(
  { addon, device }: LoweringContext,
  { plan }: AlgorithmRequirements,
  pinned: GemmAlgorithm,
): Generator<NativeAlgorithm> {
  const scheme = REDUCTION_SCHEME[pinned.scheme];
  if (pinned.version === addon.versions().cublasLt)
    yield { ...pinned, scheme, workspace: 0, words: wordsIn(pinned.data) };
  const configured = addon.gemmConfigure(device, { plan, scheme, ...attributes(pinned) });
  if (configured) yield configured;
}

/**
 * Sets the plan's algorithm and returns it. Returns undefined if cuBLASLt rejects it, or if the attributes read back are not
 * acceptable.
 */
function choose(
  { addon, device }: LoweringContext,
  requirements: AlgorithmRequirements,
  words: readonly number[],
): GemmAlgorithm | undefined {
  const chosen = addon.gemmChoose(device, { plan: requirements.plan, ...namedWords(words) });
  const scheme = chosen && schemeOf(chosen.scheme);
  if (!chosen || !scheme || !isAcceptable(chosen, requirements)) return undefined;
  const { words: readBack, workspace: _, ...fields } = chosen;
  const { cublasLt: version } = addon.versions();
  const data = Array.from(readBack, (word) => word.toString(16).padStart(8, "0")).join("");
  return { library: "cublasLt", version, ...fields, scheme, extent: requirements.extent, data };
}

function attributes(algorithm: Omit<NativeAlgorithm, "words" | "workspace" | "scheme">) {
  const { id, tile, stages, splitK, swizzle, customOption, innerShape, cluster } = algorithm;
  return { id, tile, stages, splitK, swizzle, customOption, innerShape, cluster };
}

/** Names the 32-bit words of an algorithm as the addon's arguments do. */
export function namedWords(words: readonly number[]): AlgorithmWords {
  const names = Object.keys(ALGORITHM_WORDS);
  return Object.fromEntries(names.map((name, i) => [name, words[i] ?? 0])) as AlgorithmWords;
}

type AlgorithmWords = ArgumentsOf<typeof ALGORITHM_WORDS>;

function wordsIn(data: string): readonly number[] {
  return Array.from({ length: 16 }, (_, i) => Number.parseInt(data.slice(8 * i, 8 * i + 8), 16));
}

function schemeOf(number: number): ReductionScheme | undefined {
  const names = Object.keys(REDUCTION_SCHEME) as ReductionScheme[];
  return names.find((name) => REDUCTION_SCHEME[name] === number);
}
