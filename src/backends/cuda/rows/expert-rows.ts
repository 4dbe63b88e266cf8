/** Rows of experts on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";
import { bounded, type Declarations, reads, scratch, writes } from "../native-arguments.js";

export const EXPERT_ROWS_CALLS = {
  /** Assigns rows to the entries of a routing map with `width` columns, in the order of experts. */
  rowIdMap: {
    tokens: "count",
    width: "count",
    experts: bounded({ to: 65535 }),
    align: bounded({ from: 1 }),
    total: "count",
    indices: "flag",
    routingMap: reads.i32("tokens * width"),
    rows: writes.i32("tokens * width"),
    sources: writes.i32("total"),
    tokensPerExpert: writes.i32("experts"),
    workspace: scratch.u32("experts", "The number of entries of each expert."),
  },
  /** out[n] = x[sources[n] / period] * weights[sources[n]], or +0 for an index that x does not have. */
  takeRows: {
    count: "count",
    rows: "count",
    columns: "count",
    period: bounded({ from: 1 }),
    x: reads.wide("rows * columns"),
    sources: reads.i32("count"),
    "weights?": reads.wide("rows * period"),
    out: writes.wide("count * columns"),
  },
} as const satisfies Declarations;

/** The maximum number of experts of a grid with one block per expert. */
const MAX_EXPERTS = 65535;

export const rowIdMap: Lowering<"rowIdMap"> = {
  supports: ({ tokensPerExpert: { size } }) =>
    size <= MAX_EXPERTS
      ? { ok: true, agrees: "bits" }
      : { ok: false, reason: `${size} experts are more than a kernel takes, ${MAX_EXPERTS}` },
  run({ addon, device, withTemporary }, { routingMap, indices, align, rows, sources, tokensPerExpert }) {
    const [tokens, width] = asMatrix(routingMap.shape);
    const experts = tokensPerExpert.size;
    const total = sources.size;
    withTemporary(4 * experts, (workspace) =>
      addon.rowIdMap(device, {
        ...{ tokens, width, experts, align, total, indices },
        ...{ routingMap, rows, sources, tokensPerExpert, workspace },
      }),
    );
  },
};

export const takeRows: Lowering<"takeRows"> = {
  run({ addon, device }, { x, sources, period, weights, out }) {
    const [rows, columns] = asMatrix(x.shape);
    addon.takeRows(device, { count: sources.size, rows, columns, period, x, sources, weights, out });
  },
};
