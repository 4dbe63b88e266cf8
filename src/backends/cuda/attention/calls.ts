/** The addon's calls for attention. */
import { bounded, type Declarations, group, reads, scratch, writes } from "../native-arguments.js";
import { RANDOM } from "../shared-arguments.js";

/** A size or a position. */
const size = bounded({ to: 2 ** 31 - 1, type: "int32_t" });
/** The size of a dimension that is not empty. */
const positive = bounded({ from: 1, to: 2 ** 31 - 1, type: "int32_t" });

/** The arguments of both passes (numerics.md §10). All tensors are contiguous. */
const RULE = {
  batch: size,
  heads: positive,
  keyHeads: positive,
  queries: size,
  keys: size,
  width: size,
  valueWidth: size,
  /** Row r of sequence b is row b * queryBatch + r * queryStep of `queryRows` rows of heads. Keys have the same layout. */
  queryRows: "count",
  queryBatch: "count",
  queryStep: "count",
  keyRows: "count",
  keyBatch: "count",
  keyStep: "count",
  q: reads.wide("queryRows * heads * width"),
  k: reads.wide("keyRows * keyHeads * width", undefined, "q"),
  v: reads.wide("keyRows * keyHeads * valueWidth", undefined, "q"),
  /** The step and the alignment bits of the dot-add (datapath.md §1); a step of 0 is the datapath fp32. */
  step: size,
  alignBits: size,
  zeroExponent: "int",
  blockKeys: positive,
  splitKeys: size,
  scale: "float",
  alignsEnd: "flag",
  left: "int",
  right: "int",
  /**
   * Whether lengths are cumulative: batch + 1 numbers, each the sum of the lengths of earlier sequences. Otherwise there are
   * `batch` lengths.
   */
  cumulative: "flag",
  lengthCount: "count",
  "queryLengths?": reads.i32("lengthCount"),
  "queryStarts?": reads.i32("lengthCount"),
  "keyLengths?": reads.i32("lengthCount"),
  "keyStarts?": reads.i32("lengthCount"),
  pageLength: size,
  pageCount: size,
  pagesOfSequence: size,
  "pages?": reads.i32("batch * pagesOfSequence"),
  maskBatches: size,
  maskHeads: size,
  "mask?": reads.u8("maskBatches * maskHeads * queries * keys"),
  biasBatches: size,
  biasHeads: size,
  "bias?": reads.wide("biasBatches * biasHeads * queries * keys"),
  biasBeforeScale: "flag",
  slopeBatches: size,
  "slopes?": reads.f32("slopeBatches * heads"),
  softcap: "float",
  inverseSoftcap: "float",
  "sinks?": reads.f32("heads"),
  /** A key is dropped if its 16 random bits are below `threshold`; `keep` is the factor of the other keys. */
  threshold: "word",
  keep: "float",
  allHeads: "word",
  firstHead: "word",
  /** The statistics of a row are element (b * heads + head) * queries + row, where b is 0 if `statisticBatches` is 1. */
  statisticBatches: size,
} as const;

const RULE_OF = { rule: group("AttentionRule", RULE), ...RANDOM } as const;
const STATISTICS = "rule.statisticBatches * rule.heads * rule.queries";
const QUERY_WIDTH = "rule.queryRows * rule.heads * rule.width";
const QUERY_VALUE_WIDTH = "rule.queryRows * rule.heads * rule.valueWidth";

export const ATTENTION_CALLS = {
  attention: {
    ...RULE_OF,
    out: writes.wide(QUERY_VALUE_WIDTH, undefined, "rule.q"),
    lse: writes.f32(STATISTICS),
    "maxLogits?": writes.f32("rule.heads"),
    /** The number of 32-bit elements of the workspace. */
    tiles: "count",
    "workspace?": scratch.i32(
      "tiles",
      "A list of tiles that the plain kernel computes; if keys are split, then partial results of each row.",
    ),
  },
  attentionBackward: {
    ...RULE_OF,
    grad: reads.wide(QUERY_VALUE_WIDTH, undefined, "rule.q"),
    result: reads.wide(QUERY_VALUE_WIDTH, undefined, "rule.q"),
    lse: reads.f32(STATISTICS),
    dq: writes.wide(QUERY_WIDTH, undefined, "rule.q"),
    dk: writes.wide("rule.keyRows * rule.keyHeads * rule.width", undefined, "rule.q"),
    dv: writes.wide("rule.keyRows * rule.keyHeads * rule.valueWidth", undefined, "rule.q"),
    "dbias?": writes.wide("rule.biasBatches * rule.biasHeads * rule.queries * rule.keys"),
    "dsinks?": writes.f32("rule.heads"),
    /** Whether one kernel computes dq, dk and dv. Applies to the kernels for Hopper's tensor cores. */
    sumsQueries: "flag",
    /** The number of 32-bit elements of the workspace. */
    tiles: "count",
    workspace: scratch.i32(
      "tiles",
      "The sum of gradient times result of each row, lists of tiles, and with `sumsQueries` a sum for each element of dq.",
    ),
  },
} as const satisfies Declarations;
