/** Random programs for the ranks of a group: the inputs of each rank, and the results that the oracle expects. */
import fc from "fast-check";
import { MESH_AXES, type MeshAxis, type MeshSizes, membersAlong } from "../../../../src/collectives/mesh.js";
import { viewAs } from "../../../../src/tensor/data.js";
import {
  DTYPES,
  type DType,
  elementCount,
  isWide,
  type Shape,
  storageBits,
  type WideDType,
} from "../../../../src/tensor/shape.js";
import { wideTensor, wideType } from "../../../arbitraries/wide.js";
import * as oracle from "../../../oracle/collective/collective.js";
import { add } from "../../../oracle/core/rational.js";
import { PlainTensor, wideValues } from "../../../values/plain.js";
import { rounded } from "../../../values/rounded.js";
import { WIDE_TYPES } from "../../../values/samples.js";

/** One call on one rank. */
export interface RankCall {
  readonly op: string;
  readonly axis?: MeshAxis | undefined;
  readonly dtype: DType;
  readonly shape: Shape;
  /** The bytes of the input, in base64. */
  readonly bytes: string;
  readonly options: Readonly<Record<string, unknown>>;
  /** Whether the program adds the result to itself before it reads it. */
  readonly addsToItself: boolean;
  /** Whether the program runs the call on the side stream. */
  readonly onSide: boolean;
}

export interface RankProgram {
  readonly mesh?: MeshSizes | undefined;
  readonly calls: readonly RankCall[];
}

/** One call on all members of one group. */
interface GroupCall {
  /** The call on each member. */
  readonly calls: readonly RankCall[];
  /** The expected result on each member. */
  readonly expected: readonly (PlainTensor | undefined)[];
}

/** A program for each rank, and the expected results of its calls. */
export interface Case {
  readonly programs: readonly RankProgram[];
  readonly expected: readonly (readonly (PlainTensor | undefined)[])[];
}

const IDLE_CALL: RankCall = {
  ...{ op: "none", dtype: "u8", shape: [0], bytes: "", options: {} },
  ...{ addsToItself: false, onSide: false },
};

const dtype = fc.constantFrom(...DTYPES);
const rowShape = fc.constantFrom<Shape>([], [1], [2], [3, 2], [33]);
const padToByte = (type: DType, unit: Shape): Shape => (storageBits(type) < 8 ? [...unit, 2] : unit);

/** The number of rows on each rank. It is often zero, and usually differs between ranks. */
const rowCounts = (size: number): fc.Arbitrary<readonly number[]> =>
  fc.array(fc.nat(5), { minLength: size, maxLength: size });

function anyTensor(type: DType, shape: Shape): fc.Arbitrary<PlainTensor> {
  const bytes = (elementCount(shape) * storageBits(type)) / 8;
  return fc
    .uint8Array({ minLength: bytes, maxLength: bytes })
    .map((data) => new PlainTensor(type, shape, viewAs(type, data.slice())));
}

/** Summands that cancel, absorb each other, or overflow. */
const EDGES = [0, 1, 2 ** -24, 2 ** 24, 65504, 2 ** 127, 3.4e38];
const wideInput = (type: WideDType, shape: Shape): fc.Arbitrary<PlainTensor<WideDType>> =>
  wideTensor(shape, { dtype: type, edges: EDGES });

const tuple = <T>(arbitraries: readonly fc.Arbitrary<T>[]): fc.Arbitrary<T[]> => fc.tuple(...arbitraries);

function call(op: string, x: PlainTensor, options: RankCall["options"]): RankCall {
  const { buffer, byteOffset, byteLength } = x.data;
  const bytes = Buffer.from(buffer, byteOffset, byteLength).toString("base64");
  return { op, dtype: x.dtype, shape: x.shape, bytes, options, addsToItself: false, onSide: false };
}

/** The bytes of elements [begin, begin + count) of a tensor. */
function elementBytes({ dtype: type, data }: PlainTensor, begin: number, count: number): Uint8Array {
  const { buffer, byteOffset } = data;
  const bits = storageBits(type);
  return new Uint8Array(buffer, byteOffset + (begin * bits) / 8, (count * bits) / 8);
}

function concatenate(type: DType, shape: Shape, parts: readonly Uint8Array[]): PlainTensor {
  return new PlainTensor(type, shape, viewAs(type, new Uint8Array(Buffer.concat(parts))));
}

const sum = (counts: readonly number[]): number => counts.reduce((a, b) => a + b, 0);
const rowsBefore = (counts: readonly number[], rank: number): number => sum(counts.slice(0, rank));

function allGather(size: number): fc.Arbitrary<GroupCall> {
  return fc
    .tuple(dtype, rowShape, rowCounts(size), fc.boolean())
    .chain(([type, tail, rowsOfRanks, isEven]) => {
      const unit = padToByte(type, tail);
      const rows = isEven ? rowsOfRanks.map(() => rowsOfRanks[0] as number) : rowsOfRanks;
      return tuple(rows.map((count) => anyTensor(type, [count, ...unit]))).map((parts) => {
        const out = concatenate(
          type,
          [sum(rows), ...unit],
          parts.map((part) => elementBytes(part, 0, elementCount(part.shape))),
        );
        return {
          calls: parts.map((part) => call("allGather", part, isEven ? {} : { rows })),
          expected: parts.map(() => out),
        };
      });
    });
}

function allToAll(size: number): fc.Arbitrary<GroupCall> {
  const table = fc.array(rowCounts(size), { minLength: size, maxLength: size });
  return fc.tuple(dtype, rowShape, table, fc.boolean()).chain(([type, tail, rowTable, isEven]) => {
    const unit = padToByte(type, tail);
    const rowElements = elementCount(unit);
    // row r: the numbers of elements that rank r sends to each rank
    const sentRows = isEven ? rowTable.map((row) => row.map(() => rowTable[0]?.[0] as number)) : rowTable;
    return tuple(sentRows.map((row) => anyTensor(type, [sum(row), ...unit]))).map((parts) => {
      const receivedRows = sentRows.map((_, to) => sentRows.map((row) => row[to] as number));
      return {
        calls: parts.map((part, rank) =>
          call("allToAll", part, isEven ? {} : { sent: sentRows[rank], received: receivedRows[rank] }),
        ),
        expected: parts.map((_, to) =>
          concatenate(
            type,
            [sum(receivedRows[to] as readonly number[]), ...unit],
            parts.map((part, from) => {
              const row = sentRows[from] as readonly number[];
              return elementBytes(part, rowsBefore(row, to) * rowElements, (row[to] as number) * rowElements);
            }),
          ),
        ),
      };
    });
  });
}

function broadcast(size: number): fc.Arbitrary<GroupCall> {
  return fc.tuple(dtype, rowShape, fc.nat(4), fc.nat(size - 1)).chain(([type, tail, rows, root]) => {
    const shape = [rows, ...padToByte(type, tail)];
    return tuple(Array.from({ length: size }, () => anyTensor(type, shape))).map((parts) => ({
      calls: parts.map((part) => call("broadcast", part, { root })),
      expected: parts.map(() => parts[root] as PlainTensor),
    }));
  });
}

function message(size: number): fc.Arbitrary<GroupCall> {
  return fc
    .tuple(dtype, rowShape, fc.nat(4), fc.nat(size - 1), fc.integer({ min: 1, max: size - 1 }))
    .chain(([type, tail, rows, sender, distance]) => {
      const receiver = (sender + distance) % size;
      const shape = [rows, ...padToByte(type, tail)];
      return fc.tuple(anyTensor(type, shape), anyTensor(type, shape)).map(([input, target]): GroupCall => {
        const calls = Array.from({ length: size }, () => IDLE_CALL);
        calls[sender] = call("send", input, { to: receiver });
        calls[receiver] = call("recv", target, { from: sender });
        return { calls, expected: calls.map((_, rank) => (rank === receiver ? input : undefined)) };
      });
    });
}

interface ReductionPlan {
  readonly type: WideDType;
  readonly reduction: "sum" | "mean" | "max";
  readonly algorithm: "ranked" | "ring" | undefined;
  readonly order: readonly number[] | undefined;
}

function reductionPlans(size: number): fc.Arbitrary<ReductionPlan> {
  const ranks = Array.from({ length: size }, (_, rank) => rank);
  return fc.record({
    type: wideType(),
    reduction: fc.constantFrom("sum" as const, "mean" as const, "max" as const),
    algorithm: fc.constantFrom(undefined, "ranked" as const, "ring" as const),
    order: fc.option(fc.shuffledSubarray(ranks, { minLength: size }), { nil: undefined }),
  });
}

/** The combination of all inputs as values, and the options of the call. */
function reduceInputs(
  parts: readonly PlainTensor<WideDType>[],
  { type, reduction, algorithm, order }: ReductionPlan,
  splits: readonly number[],
): readonly [values: number[], options: Record<string, unknown>] {
  const values = parts.map(wideValues);
  const round = WIDE_TYPES.find(({ name }) => name === type)?.round as (x: number) => number;
  if (reduction === "max") return [oracle.maximum(values), { reduction }];
  const ring = order ?? parts.map((_, rank) => rank);
  const isRing = algorithm === "ring";
  const sums = isRing ? oracle.ringSum(values, ring, splits, round) : oracle.rankedSum(values, round);
  const plan = algorithm && { algorithm, ...(isRing ? { order } : {}) };
  const options = { reduction, ...(plan ? { plan } : {}) };
  return reduction === "mean"
    ? [oracle.meanOfSums(sums, parts.length, round), options]
    : [sums, plan ? options : {}];
}

function allReduce(size: number): fc.Arbitrary<GroupCall> {
  const splits = fc.option(rowCounts(size), { nil: undefined });
  return fc
    .tuple(reductionPlans(size), rowShape, fc.nat(5), splits)
    .chain(([reductionPlan, tail, rows, explicitSplits]) => {
      const shape = explicitSplits ? [sum(explicitSplits)] : [rows, ...tail];
      return tuple(Array.from({ length: size }, () => wideInput(reductionPlan.type, shape))).map((parts) => {
        const elements = elementCount(shape);
        const chunk = Math.ceil(elements / size);
        const evenSplits = parts.map((_, rank) => Math.max(0, Math.min(chunk, elements - rank * chunk)));
        const [values, { plan, ...options }] = reduceInputs(
          parts,
          reductionPlan,
          explicitSplits ?? evenSplits,
        );
        const callOptions = plan
          ? {
              ...options,
              plan: { ...(plan as object), ...(explicitSplits ? { splits: explicitSplits } : {}) },
            }
          : options;
        const out = rounded(reductionPlan.type, shape, values);
        return {
          calls: parts.map((part) => call("allReduce", part, callOptions)),
          expected: parts.map(() => out),
        };
      });
    });
}

function reduceScatter(size: number): fc.Arbitrary<GroupCall> {
  return fc
    .tuple(reductionPlans(size), rowShape, rowCounts(size), fc.boolean())
    .chain(([reductionPlan, tail, rowsOfRanks, isEven]) => {
      const rows = isEven ? rowsOfRanks.map(() => rowsOfRanks[0] as number) : rowsOfRanks;
      const rowElements = elementCount(tail);
      return tuple(rows.map(() => wideInput(reductionPlan.type, [sum(rows), ...tail]))).map((parts) => {
        const splits = rows.map((count) => count * rowElements);
        const [values, options] = reduceInputs(parts, reductionPlan, splits);
        return {
          calls: parts.map((part) => call("reduceScatter", part, isEven ? options : { ...options, rows })),
          expected: rows.map((count, rank) => {
            const begin = rowsBefore(splits, rank);
            return rounded(
              reductionPlan.type,
              [count, ...tail],
              values.slice(begin, begin + count * rowElements),
            );
          }),
        };
      });
    });
}

/** One call on all members of a group of this size. */
function groupCall(size: number): fc.Arbitrary<GroupCall> {
  const kinds = [allGather, allToAll, broadcast, allReduce, reduceScatter, ...(size > 1 ? [message] : [])];
  return fc
    .oneof(...kinds.map((operation) => operation(size)))
    .chain((groupCalls) =>
      fc
        .tuple(fc.boolean(), fc.boolean())
        .map(([doubled, aside]) => onStream(aside, doubled ? twice(groupCalls) : groupCalls)),
    );
}

function onStream(onSide: boolean, { calls, expected }: GroupCall): GroupCall {
  return { calls: calls.map((rankCall) => ({ ...rankCall, onSide })), expected };
}

/**
 * Returns the call with each result added to itself before any result is read. Returns a call with a quantized result unchanged.
 */
function twice(call: GroupCall): GroupCall {
  const { calls, expected } = call;
  if (!expected.every((result) => result === undefined || isWide(result.dtype))) return call;
  return {
    calls: calls.map((rankCall) => ({ ...rankCall, addsToItself: true })),
    expected: expected.map((result) => {
      if (!result) return result;
      const values = wideValues(result as PlainTensor<WideDType>);
      return rounded(
        (result as PlainTensor<WideDType>).dtype,
        result.shape,
        Array.from(values, (x) => add(x, x)),
      );
    }),
  };
}

const MESHES: readonly MeshSizes[] = [
  { tp: 2 },
  { dp: 3 },
  { tp: 2, dp: 2 },
  { cp: 2, pp: 2 },
  { dp: 2, tp: 3 },
  { tp: 2, cp: 2, dp: 2 },
  { pp: 4, dp: 2, tp: 1 },
];
const meshSize = ({ tp = 1, cp = 1, dp = 1, pp = 1 }: MeshSizes): number => tp * cp * dp * pp;

/** A call on the full group, or on all groups along one axis of the mesh. */
function meshCalls(size: number, mesh: MeshSizes | undefined): fc.Arbitrary<GroupCall> {
  if (!mesh) return groupCall(size);
  const { tp = 1, cp = 1, dp = 1, pp = 1 } = mesh;
  const sizes = { tp, cp, dp, pp };
  return fc.constantFrom(undefined, ...MESH_AXES).chain((axis) => {
    if (!axis) return groupCall(size);
    const members = Array.from({ length: size }, (_, rank) => membersAlong(sizes, rank, axis));
    const groups = members.filter((members, rank) => members[0] === rank);
    return tuple(groups.map((members) => groupCall(members.length))).map((perGroup): GroupCall => {
      const locate = (rank: number) => {
        const group = groups.findIndex((members) => members.includes(rank));
        return [perGroup[group] as GroupCall, (groups[group] as readonly number[]).indexOf(rank)] as const;
      };
      return {
        calls: members.map((_, rank) => {
          const [groupCall, member] = locate(rank);
          return { ...(groupCall.calls[member] as RankCall), axis };
        }),
        expected: members.map((_, rank) => {
          const [groupCall, member] = locate(rank);
          return groupCall.expected[member];
        }),
      };
    });
  });
}

/** Programs for 1 to `maxRanks` ranks. */
export function distributedCase(maxRanks: number): fc.Arbitrary<Case> {
  const singleGroups = fc.integer({ min: 1, max: maxRanks }).map((size) => ({ size, mesh: undefined }));
  const meshes = fc
    .constantFrom(...MESHES.filter((mesh) => meshSize(mesh) <= maxRanks))
    .map((mesh) => ({ size: meshSize(mesh), mesh }));
  return fc
    .oneof({ weight: 3, arbitrary: singleGroups }, { weight: 1, arbitrary: meshes })
    .chain(({ size, mesh }) =>
      fc.array(meshCalls(size, mesh), { minLength: 1, maxLength: 4 }).map((drawnCalls) => ({
        programs: Array.from({ length: size }, (_, rank) => ({
          mesh,
          calls: drawnCalls.map(({ calls }) => calls[rank] as RankCall),
        })),
        expected: Array.from({ length: size }, (_, rank) => drawnCalls.map(({ expected }) => expected[rank])),
      })),
    );
}

/** Parses a result from the line that a rank prints. */
export function parseResult(line: string | undefined): PlainTensor | undefined {
  if (line === undefined) return undefined;
  const [type, sizes, bytes] = line.split(" ") as [DType, string, string];
  const shape = sizes === "" ? [] : sizes.split(",").map(Number);
  return new PlainTensor(type, shape, viewAs(type, new Uint8Array(Buffer.from(bytes, "base64"))));
}
