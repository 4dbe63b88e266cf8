/** Context parallelism: attention whose positions are divided among ranks. */
import type { ProcessGroup } from "../collectives/group.js";
import { ArgumentError, ShapeError } from "../errors.js";
import { attention as attend, attentionBackward } from "../ops/attention/attention.js";
import type { AttentionRuleOptions } from "../ops/attention/options.js";
import { castTo } from "../ops/cast/cast.js";
import { zeros } from "../ops/create.js";
import { swapAxes } from "../ops/layout/layout.js";
import { permute } from "../ops/layout/permute.js";
import { oneOf } from "../options.js";
import { differentiableOne } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { elementCount } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { type CollectOptions, collectPositions } from "./context-exchange.js";
import { slice, transpose } from "./layout.js";

/** How ranks that have different positions exchange them. */
export type ContextExchange = "all_gather" | "p2p" | "a2a";

/** Checks the name of an exchange. */
export const contextExchange = oneOf(["all_gather", "p2p", "a2a"]);

/** The queries, keys and values of an attention, and the logits of its sinks. */
export interface AttentionInputs {
  readonly q: Variable;
  readonly k: Variable;
  readonly v: Variable;
  readonly sinks: Variable | undefined;
}

/** The options of an attention whose positions are divided, without sinks. */
export type ContextRule = Omit<AttentionRuleOptions, "sinks" | "bias">;

/** Computes an attention of complete sequences. */
type FullAttention = (inputs: AttentionInputs, rule: ContextRule) => Variable;

/** A chain of a datapath adds this number of queries in a step, or a divisor of it. */
const QUERY_STEP = 16;

/** Options that name positions or pairs of the whole sequence. */
const OF_POSITIONS = ["mask", "queryLengths", "keyLengths", "cuQueries", "cuKeys"] as const;

/**
 * Computes this rank's rows of an attention. Rank 0 has the first positions, and all ranks have equally many. Throws
 * `ArgumentError` for options that the exchange cannot divide, `ShapeError` for heads that ranks cannot share.
 */
export function contextAttention(
  caller: string,
  inputs: AttentionInputs,
  rule: ContextRule,
  {
    group,
    exchange,
    wholeAttention,
  }: { group: ProcessGroup; exchange: ContextExchange; wholeAttention: FullAttention },
): Variable {
  requireDivisible(caller, rule, exchange);
  if (rule.layout !== "sbhd") {
    const { q, k, v, sinks } = inputs;
    const transposed = { q: transpose(q, 0, 1), k: transpose(k, 0, 1), v: transpose(v, 0, 1), sinks };
    const swappedRule = { ...rule, layout: "sbhd" as const };
    return transpose(
      contextAttention(caller, transposed, swappedRule, { group, exchange, wholeAttention }),
      0,
      1,
    );
  }
  return exchange === "a2a"
    ? attendByHeads(caller, inputs, rule, group, wholeAttention)
    : byPositions(inputs, rule, { group, around: exchange === "p2p" });
}

/** Whether no query sees a later key. */
const hidesLater = ({ causal = false, window }: ContextRule): boolean => causal || window?.[1] === 0;

function requireDivisible(caller: string, rule: ContextRule, exchange: ContextExchange): void {
  const unsupportedOption = OF_POSITIONS.find((name) => rule[name] !== undefined);
  if (unsupportedOption || rule.layout === "thd")
    throw new ArgumentError(
      `${caller}: cpGroup divides the positions of sequences of one length among ranks; leave out ${unsupportedOption ?? 'the layout "thd"'}`,
    );
  const [leftWindow, rightWindow] = rule.window ?? [-1, -1];
  const counts = leftWindow !== -1 || rightWindow !== -1 || rule.alibiSlopes || rule.dropout;
  if (exchange !== "a2a" && !hidesLater(rule) && counts)
    throw new ArgumentError(
      `${caller}: cpCommType "${exchange}" attends from positions of this rank to all others, without the distance that windows, ALiBi and dropout need; give causal: true, or cpCommType "a2a"`,
    );
}

/** Attention of all positions of some heads. */
function attendByHeads(
  caller: string,
  { q, k, v, sinks }: AttentionInputs,
  rule: ContextRule,
  group: ProcessGroup,
  wholeAttention: FullAttention,
): Variable {
  const { rank, size } = group;
  const [heads, keyHeads] = [q.shape.at(-2) as number, k.shape.at(-2) as number];
  if (keyHeads % size !== 0)
    throw new ShapeError(
      `${caller}: cpCommType "a2a" divides ${keyHeads} heads of keys and values among ${size} ranks; give a multiple of ${size}, or "p2p"`,
    );
  const count = heads / size;
  const { alibiSlopes: slopes, dropout } = rule;
  const headsRule: ContextRule = {
    ...rule,
    ...(slopes ? { alibiSlopes: sliceSlopes(slopes as Tensor<"f32">, rank * count, count) } : {}),
    ...(dropout
      ? {
          dropout: {
            ...dropout,
            allHeads: dropout.allHeads ?? heads,
            firstHead: (dropout.firstHead ?? 0) + rank * count,
          },
        }
      : {}),
  };
  const localRule = {
    q: headsForPositions(q, group),
    k: headsForPositions(k, group),
    v: headsForPositions(v, group),
    sinks: sinks && slice(sinks, 0, rank * count, (rank + 1) * count),
  };
  return positionsForHeads(wholeAttention(localRule, headsRule), group);
}

/** The slopes [H] or [B, H] of some heads. */
function sliceSlopes(slopes: Tensor<"f32">, first: number, count: number): Tensor<"f32"> {
  const heads = slopes.shape.at(-1) as number;
  const byHead = slopes.shape.length === 1 ? slopes : swapAxes(slopes, 0, 1);
  const unit = byHead.size / heads;
  const part = byHead.slice(first * unit, [count, ...byHead.shape.slice(1)]) as Tensor<"f32">;
  return slopes.shape.length === 1 ? part : swapAxes(part, 0, 1);
}

/** [S, B, H, D] of this rank's positions becomes [n * S, B, H / n, D] of this rank's heads. */
function sendHeads<T extends Tensor>(x: T, group: ProcessGroup): T {
  const [positions, batch, heads, width] = x.shape as readonly [number, number, number, number];
  const { size } = group;
  const rows = x.reshape([positions * batch, size, (heads / size) * width]);
  const received = group.allToAll(swapAxes(rows, 0, 1));
  return received.reshape([size * positions, batch, heads / size, width]) as T;
}

/** Inverts `sendHeads`. */
function sendPositions<T extends Tensor>(x: T, group: ProcessGroup): T {
  const [positions, batch, heads, width] = x.shape as readonly [number, number, number, number];
  const { size } = group;
  const rows = (positions / size) * batch;
  const received = group.allToAll(x.reshape([size, rows, heads * width]));
  return swapAxes(received, 0, 1).reshape([positions / size, batch, size * heads, width]) as T;
}

function headsForPositions(x: Variable, group: ProcessGroup): Variable {
  return differentiableOne([x], () => ({
    result: sendHeads(wideOf("attention", x.value), group),
    backward: (grad) => [sendPositions(wideOf("attention: the gradient", grad), group)],
  }));
}

function positionsForHeads(x: Variable, group: ProcessGroup): Variable {
  return differentiableOne([x], () => ({
    result: sendPositions(wideOf("attention", x.value), group),
    backward: (grad) => [sendHeads(wideOf("attention: the gradient", grad), group)],
  }));
}

/** Puts rows of zeros before x, in place of queries that see no key of this rank, or of keys that no query of this rank sees. */
function withRowsBefore<T extends Tensor>(x: T, rows: number): T {
  if (rows === 0) return x;
  const [count = 0, ...rest] = x.shape;
  return zeros(x.backend, x.dtype, [rows + count, ...rest]).paste(x, rows * elementCount(rest)) as T;
}

/**
 * Attention of this rank's positions to the keys of other ranks. The backward pass computes the gradients of this rank's queries
 * from all keys that they see, and the gradients of this rank's keys and values from all queries that see them, so that each
 * gradient is one sum in the order of one rank.
 */
function byPositions(
  { q, k, v, sinks }: AttentionInputs,
  rule: ContextRule,
  options: Pick<CollectOptions, "group" | "around">,
): Variable {
  const causal = hidesLater(rule);
  const { group } = options;
  if (causal && q.shape[0] !== k.shape[0])
    throw new ShapeError(
      `attention: this rank has ${q.shape[0]} positions of queries and ${k.shape[0]} of keys; under the causal mask give as many of both`,
    );
  // the last query of this rank is at the last key that it sees
  const ofQueries = { ...rule, align: causal ? ("end" as const) : ("start" as const) };
  const lower: CollectOptions = { ...options, direction: causal ? "lower" : "all" };
  const higher: CollectOptions = { ...options, direction: causal ? "higher" : "all" };
  return differentiableOne([q, k, v, ...(sinks ? [sinks] : [])], () => {
    const [queries, keys, values] = ([q, k, v] as const).map((operand, i) =>
      wideOf(`attention: ${"qkv"[i]}`, operand.value),
    ) as [WideTensor, WideTensor, WideTensor];
    const sinkOption = sinks && { sinks: wideOf("attention: sinks", sinks.value) as Tensor<"f32"> };
    const [allKeys, allValues] = collectPositions([keys, values], lower) as [WideTensor, WideTensor];
    const { out, lse } = attend(queries, allKeys, allValues, { ...ofQueries, ...sinkOption });
    return {
      result: out,
      saved: [lse],
      backward: (grad) => {
        const gradOutput = castTo(wideOf("attention: the gradient", grad), out.dtype);
        const [seenKeys, seenValues] = collectPositions([keys, values], lower) as [WideTensor, WideTensor];
        const { dq, dsinks } = attentionBackward(gradOutput, queries, seenKeys, seenValues, out, lse, {
          ...ofQueries,
          ...sinkOption,
        });
        const byPosition = permute(lse, [2, 0, 1]);
        const higherTensors = collectPositions([queries, gradOutput, out, byPosition], higher);
        const [count] = keys.shape as readonly [number];
        const first = causal ? group.rank * count : 0;
        // dropout draws by position; a chain over queries must begin a step at the same query as on a single rank
        const firstQuery = rule.dropout ? first : first % QUERY_STEP;
        const [allQueries, grads, outs, logs] = higherTensors.map((x) => withRowsBefore(x, firstQuery)) as [
          WideTensor,
          WideTensor,
          WideTensor,
          Tensor<"f32">,
        ];
        const { dk, dv } = attentionBackward(
          ...([
            grads,
            allQueries,
            withRowsBefore(keys, firstQuery),
            withRowsBefore(values, firstQuery),
            outs,
          ] as const),
          permute(logs, [1, 2, 0]),
          { ...rule, align: "start", ...sinkOption },
        );
        const rest = [dk, dv].map((x) =>
          x.slice(firstQuery * elementCount(x.shape.slice(1)), [count, ...x.shape.slice(1)]),
        );
        return [dq, ...rest, ...(sinks ? [dsinks] : [])];
      },
    };
  });
}

type WideTensor = ReturnType<typeof wideOf>;
