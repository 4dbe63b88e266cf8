/** The candidate orders, as products of short lists. Common orders come first. */
import { DATAPATHS, type DatapathName, type DatapathRow, type DotAdd } from "../formats/datapath.js";
import type { AccumulatorName } from "./accumulators.js";
import type { JoinName, Lanes, Pairwise, ScalingName, Splits, SummationOrder } from "./order.js";

/** The properties of the inputs that decide which orders they can distinguish. */
export interface CandidateScope {
  /** The largest number of terms. */
  readonly depth: number;
  /** The number of terms that share block scales; 0 without block scales. */
  readonly scaleLength: number;
}

const ONE_LANE: Lanes = { count: 1, run: 1, join: "ascending" };
const ONE_SPLIT: Splits = { count: 1, tile: 1, join: "ascending" };

const BLOCKS = [0, 128, 64, 32, 16, 256, 8, 4, 96, 192, 320, 384, 512];
const LANE_COUNTS = [2, 4, 8, 16, 32];
const RUNS = [1, 2, 4, 8];
/** The numbers of lanes that take whole tiles in turn, as an interleaved split-K does. */
const TILE_COUNTS = [2, 3, 4, 8];
const TILE_RUNS = [16, 32, 64, 128];
const LANE_JOINS: readonly JoinName[] = ["halves", "neighbours", "ascending"];
const SPLIT_COUNTS = [2, 3, 4, 5, 6, 7, 8, 12, 16];
const SPLIT_TILES = [1, 8, 16, 32, 64, 128];
const SPLIT_JOINS: readonly JoinName[] = ["ascending", "halves", "descending"];
const BASES = [1, 2, 4, 8, 16, 32, 64, 128];
const SCALINGS: readonly ScalingName[] = [
  "fmaOfProduct",
  "addOfProduct",
  "fmaInTurn",
  "addInTurn",
  "addInTurnFromW",
  "elements",
];

/** The arithmetic of one chain, and the accumulator that the arithmetic requires. */
type Chain = Pick<SummationOrder, "arithmetic" | "accumulator">;

const ROUNDED: readonly Chain[] = [
  { arithmetic: { kind: "fused" }, accumulator: "f32" },
  { arithmetic: { kind: "rounded" }, accumulator: "f32" },
];
const DOUBLE: Chain = { arithmetic: { kind: "double" }, accumulator: "f64" };
const NARROW: readonly Chain[] = (["bf16", "f16"] as const).map((format) => ({
  arithmetic: { kind: "narrow", format },
}));

/** Step lengths that no row of `DATAPATHS` has. They are combined with the alignment bits of the rows. */
const OTHER_STEPS = [4, 8, 16, 32];

const TENSOR_CORES = [
  "hopper-half",
  "ada-half",
  "blackwell-narrow",
] as const satisfies readonly DatapathName[];

/** The chains of tensor cores: the rows of `DATAPATHS`, and the same alignment for groups of other lengths. */
function tensorCores(): readonly Chain[] {
  const rules = new Map<string, DotAdd>();
  for (const name of TENSOR_CORES) {
    const { dotAdd }: DatapathRow = DATAPATHS[name];
    if (!dotAdd) continue;
    for (const step of [dotAdd.step, ...OTHER_STEPS])
      rules.set(`${step} ${dotAdd.alignBits}`, { ...dotAdd, step });
  }
  return Array.from(rules.values(), (rule) => ({
    arithmetic: { kind: "dotAdd", rule },
    accumulator: "tensor-core",
  }));
}

/** The 13-bit FP8 chains of Hopper and Ada, which a kernel has to declare. */
function narrowCores(): readonly { readonly chain: Chain; readonly blocks: readonly number[] }[] {
  return (["hopper-fp8", "ada-fp8"] as const).flatMap((name) => {
    const { dotAdd: rule, promotionInterval }: DatapathRow = DATAPATHS[name];
    if (!rule) return [];
    const chainFor = (accumulator: AccumulatorName): Chain => ({
      arithmetic: { kind: "dotAdd", rule },
      accumulator,
    });
    return [
      { chain: chainFor("hopper-fp8"), blocks: [promotionInterval, 64, 32] },
      { chain: chainFor("hopper-fp8-fast"), blocks: [0, 256, 512] },
    ];
  });
}

/** All combinations of lanes. */
function laneForms(): readonly Lanes[] {
  const interleaved = LANE_COUNTS.flatMap((count) =>
    RUNS.flatMap((run) => LANE_JOINS.map((join) => ({ count, run, join }))),
  );
  const tiles = TILE_COUNTS.flatMap((count) =>
    TILE_RUNS.flatMap((run) => (["ascending", "halves"] as const).map((join) => ({ count, run, join }))),
  );
  return [ONE_LANE, ...interleaved, ...tiles];
}

function pairwiseForms({ arithmetic }: Chain): readonly Pairwise[] {
  // a chain of one fused product equals a chain of one rounded product
  const bases = BASES.filter((base) => base > 1 || arithmetic.kind === "rounded");
  const recursive = bases.flatMap((base) => (["middle", "power"] as const).map((split) => ({ base, split })));
  return [...recursive, { base: 128, split: "numpy" }];
}

/** Whether K, divided into splits of whole tiles, has `count` splits and not fewer. */
function splitsAre(count: number, tile: number, depth: number): boolean {
  const tiles = Math.ceil(depth / tile);
  return Math.ceil(tiles / Math.ceil(tiles / count)) === count;
}

function splitForms(depth: number): readonly Splits[] {
  const divided = SPLIT_COUNTS.flatMap((count) =>
    SPLIT_TILES.filter((tile) => splitsAre(count, tile, depth)).flatMap((tile) =>
      SPLIT_JOINS.filter((join) => count > 2 || join === "ascending").map((join) => ({ count, tile, join })),
    ),
  );
  return [ONE_SPLIT, ...divided];
}

/** The block lengths that inputs of this depth can show. */
const blocksFor = (depth: number): readonly number[] => BLOCKS.filter((block) => block < depth);

/**
 * The candidate orders that inputs of this scope may distinguish. Orders that only longer inputs would show are left out.
 */
export function candidateOrders({ depth, scaleLength }: CandidateScope): readonly SummationOrder[] {
  if (scaleLength > 0) return scaledOrders(depth, scaleLength);
  const blocks = blocksFor(depth);
  const splits = splitForms(depth);
  const lanes = laneForms().filter(({ count, run }) => count === 1 || run < depth);
  const few = lanes.filter(({ count, run }) => count <= 8 && run === 1);
  const orderOf = (chain: Chain, block: number, changes: Partial<SummationOrder> = {}): SummationOrder => ({
    ...chain,
    lanes: ONE_LANE,
    block,
    splits: ONE_SPLIT,
    ...changes,
  });
  const withSplits = (chain: Chain, block: number): readonly SummationOrder[] =>
    splits.map((each) => orderOf(chain, block, { splits: each }));
  // an order with blocks may be bitwise equal to an order with splits; its description is simpler
  const chains = ROUNDED.flatMap((chain) => blocks.map((block) => orderOf(chain, block)));
  const roundedOrders = ROUNDED.flatMap((chain) =>
    blocks.flatMap((block) => [
      ...withSplits(chain, block).slice(1),
      ...lanes.slice(1).map((each) => orderOf(chain, block, { lanes: each })),
      ...pairwiseForms(chain).map((pairwise) => orderOf(chain, block, { pairwise })),
    ]),
  );
  const lanesAndSplits = ROUNDED.flatMap((chain) =>
    few
      .slice(1)
      .flatMap((each) => splits.slice(1).map((split) => orderOf(chain, 0, { lanes: each, splits: split }))),
  );
  const cores = tensorCores().flatMap((chain) => blocks.flatMap((block) => withSplits(chain, block)));
  const narrowOrders = narrowCores().flatMap(({ chain, blocks: lengths }) =>
    lengths.flatMap((block) => withSplits(chain, block)),
  );
  const double = blocks.map((block) =>
    orderOf(block === 0 ? DOUBLE : { ...DOUBLE, accumulator: "f32" }, block),
  );
  const mistakes = NARROW.flatMap((chain) => blocks.map((block) => orderOf(chain, block)));
  return [...chains, ...roundedOrders, ...double, ...cores, ...narrowOrders, ...lanesAndSplits, ...mistakes];
}

/** Orders under block scales: each block of scales is a chain, or elements are multiplied by their scales first. */
function scaledOrders(depth: number, scaleLength: number): readonly SummationOrder[] {
  const blocks = [scaleLength, 64, 32, 16].filter((block) => scaleLength % block === 0);
  const chains = [...ROUNDED, { ...DOUBLE, accumulator: "f32" } as const, ...tensorCores()];
  const narrowChains = narrowCores().flatMap(({ chain }) => chain);
  const lanes = [
    ONE_LANE,
    ...laneForms().filter(({ count, run }) => count > 1 && count * run <= scaleLength),
  ];
  const scaled = [...chains, ...narrowChains].flatMap((chain) =>
    SCALINGS.flatMap((scaling) =>
      blocks.flatMap((block) =>
        (chain.arithmetic.kind === "dotAdd" ? [ONE_LANE] : lanes).map((laneForm) => ({
          ...chain,
          lanes: laneForm,
          block,
          splits: ONE_SPLIT,
          scaling,
        })),
      ),
    ),
  );
  const elementOrders = candidateOrders({ depth, scaleLength: 0 }).filter(
    ({ arithmetic }) => arithmetic.kind !== "narrow",
  );
  return [...scaled, ...elementOrders.map((order) => ({ ...order, scaling: "elements" as const }))];
}
