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
  readonly doubled: boolean;
  /** Whether the program runs the call on the side stream. */
  readonly aside: boolean;
}

export interface RankProgram {
  readonly mesh?: MeshSizes | undefined;
  readonly calls: readonly RankCall[];
}

/** One call on all members of one group. */
interface Drawn {
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

const NO_CALL: RankCall = {
  ...{ op: "none", dtype: "u8", shape: [0], bytes: "", options: {} },
  ...{ doubled: false, aside: false },
};

const dtype = fc.constantFrom(...DTYPES);
const rest = fc.constantFrom<Shape>([], [1], [2], [3, 2], [33]);
const fits = (type: DType, unit: Shape): Shape => (storageBits(type) < 8 ? [...unit, 2] : unit);

/** The number of rows on each rank: often zero, and usually different for each rank. */
const rowsOf = (size: number): fc.Arbitrary<readonly number[]> =>
  fc.array(fc.nat(5), { minLength: size, maxLength: size });

function anyTensor(type: DType, shape: Shape): fc.Arbitrary<PlainTensor> {
  const bytes = (elementCount(shape) * storageBits(type)) / 8;
  return fc
    .uint8Array({ minLength: bytes, maxLength: bytes })
    .map((data) => new PlainTensor(type, shape, viewAs(type, data.slice())));
}

/** Summands that cancel, absorb each other, or overflow. */
const EDGES = [0, 1, 2 ** -24, 2 ** 24, 65504, 2 ** 127, 3.4e38];
const wide = (type: WideDType, shape: Shape): fc.Arbitrary<PlainTensor<WideDType>> =>
  wideTensor(shape, { dtype: type, edges: EDGES });

const tuple = <T>(each: readonly fc.Arbitrary<T>[]): fc.Arbitrary<T[]> => fc.tuple(...each);

function call(op: string, x: PlainTensor, options: RankCall["options"]): RankCall {
  const { buffer, byteOffset, byteLength } = x.data;
  const bytes = Buffer.from(buffer, byteOffset, byteLength).toString("base64");
  return { op, dtype: x.dtype, shape: x.shape, bytes, options, doubled: false, aside: false };
}

/** The bytes of elements [begin, begin + count) of a tensor. */
function piece({ dtype: type, data }: PlainTensor, begin: number, count: number): Uint8Array {
  const { buffer, byteOffset } = data;
  const bits = storageBits(type);
  return new Uint8Array(buffer, byteOffset + (begin * bits) / 8, (count * bits) / 8);
}

function joined(type: DType, shape: Shape, parts: readonly Uint8Array[]): PlainTensor {
  return new PlainTensor(type, shape, viewAs(type, new Uint8Array(Buffer.concat(parts))));
}

const sum = (counts: readonly number[]): number => counts.reduce((a, b) => a + b, 0);
const before = (counts: readonly number[], rank: number): number => sum(counts.slice(0, rank));

function allGather(size: number): fc.Arbitrary<Drawn> {
  return fc.tuple(dtype, rest, rowsOf(size), fc.boolean()).chain(([type, tail, ragged, even]) => {
    const unit = fits(type, tail);
    const rows = even ? ragged.map(() => ragged[0] as number) : ragged;
    return tuple(rows.map((count) => anyTensor(type, [count, ...unit]))).map((parts) => {
      const out = joined(
        type,
        [sum(rows), ...unit],
        parts.map((part) => piece(part, 0, elementCount(part.shape))),
      );
      return {
        calls: parts.map((part) => call("allGather", part, even ? {} : { rows })),
        expected: parts.map(() => out),
      };
    });
  });
}

function allToAll(size: number): fc.Arbitrary<Drawn> {
  const table = fc.array(rowsOf(size), { minLength: size, maxLength: size });
  return fc.tuple(dtype, rest, table, fc.boolean()).chain(([type, tail, ragged, even]) => {
    const unit = fits(type, tail);
    const each = elementCount(unit);
    // row r: the numbers of elements that rank r sends to each rank
    const sent = even ? ragged.map((row) => row.map(() => ragged[0]?.[0] as number)) : ragged;
    return tuple(sent.map((row) => anyTensor(type, [sum(row), ...unit]))).map((parts) => {
      const received = sent.map((_, to) => sent.map((row) => row[to] as number));
      return {
        calls: parts.map((part, rank) =>
          call("allToAll", part, even ? {} : { sent: sent[rank], received: received[rank] }),
        ),
        expected: parts.map((_, to) =>
          joined(
            type,
            [sum(received[to] as readonly number[]), ...unit],
            parts.map((part, from) => {
              const row = sent[from] as readonly number[];
              return piece(part, before(row, to) * each, (row[to] as number) * each);
            }),
          ),
        ),
      };
    });
  });
}

function broadcast(size: number): fc.Arbitrary<Drawn> {
  return fc.tuple(dtype, rest, fc.nat(4), fc.nat(size - 1)).chain(([type, tail, rows, root]) => {
    const shape = [rows, ...fits(type, tail)];
    return tuple(Array.from({ length: size }, () => anyTensor(type, shape))).map((parts) => ({
      calls: parts.map((part) => call("broadcast", part, { root })),
      expected: parts.map(() => parts[root] as PlainTensor),
    }));
  });
}

function message(size: number): fc.Arbitrary<Drawn> {
  return fc
    .tuple(dtype, rest, fc.nat(4), fc.nat(size - 1), fc.integer({ min: 1, max: size - 1 }))
    .chain(([type, tail, rows, from, by]) => {
      const to = (from + by) % size;
      const shape = [rows, ...fits(type, tail)];
      return fc.tuple(anyTensor(type, shape), anyTensor(type, shape)).map(([sent, old]): Drawn => {
        const calls = Array.from({ length: size }, () => NO_CALL);
        calls[from] = call("send", sent, { to });
        calls[to] = call("recv", old, { from });
        return { calls, expected: calls.map((_, rank) => (rank === to ? sent : undefined)) };
      });
    });
}

interface Reduced {
  readonly type: WideDType;
  readonly reduction: "sum" | "mean" | "max";
  readonly algorithm: "ranked" | "ring" | undefined;
  readonly order: readonly number[] | undefined;
}

function reduced(size: number): fc.Arbitrary<Reduced> {
  const ranks = Array.from({ length: size }, (_, rank) => rank);
  return fc.record({
    type: wideType(),
    reduction: fc.constantFrom("sum" as const, "mean" as const, "max" as const),
    algorithm: fc.constantFrom(undefined, "ranked" as const, "ring" as const),
    order: fc.option(fc.shuffledSubarray(ranks, { minLength: size }), { nil: undefined }),
  });
}

/** The combination of all inputs as values, and the options of the call. */
function combined(
  parts: readonly PlainTensor<WideDType>[],
  { type, reduction, algorithm, order }: Reduced,
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
    ? [oracle.meanOf(sums, parts.length, round), options]
    : [sums, plan ? options : {}];
}

function allReduce(size: number): fc.Arbitrary<Drawn> {
  const splits = fc.option(rowsOf(size), { nil: undefined });
  return fc.tuple(reduced(size), rest, fc.nat(5), splits).chain(([how, tail, rows, ownSplits]) => {
    const shape = ownSplits ? [sum(ownSplits)] : [rows, ...tail];
    return tuple(Array.from({ length: size }, () => wide(how.type, shape))).map((parts) => {
      const elements = elementCount(shape);
      const most = Math.ceil(elements / size);
      const even = parts.map((_, rank) => Math.max(0, Math.min(most, elements - rank * most)));
      const [values, { plan, ...options }] = combined(parts, how, ownSplits ?? even);
      const full = plan
        ? { ...options, plan: { ...(plan as object), ...(ownSplits ? { splits: ownSplits } : {}) } }
        : options;
      const out = rounded(how.type, shape, values);
      return { calls: parts.map((part) => call("allReduce", part, full)), expected: parts.map(() => out) };
    });
  });
}

function reduceScatter(size: number): fc.Arbitrary<Drawn> {
  return fc.tuple(reduced(size), rest, rowsOf(size), fc.boolean()).chain(([how, tail, ragged, even]) => {
    const rows = even ? ragged.map(() => ragged[0] as number) : ragged;
    const each = elementCount(tail);
    return tuple(rows.map(() => wide(how.type, [sum(rows), ...tail]))).map((parts) => {
      const splits = rows.map((count) => count * each);
      const [values, options] = combined(parts, how, splits);
      return {
        calls: parts.map((part) => call("reduceScatter", part, even ? options : { ...options, rows })),
        expected: rows.map((count, rank) => {
          const begin = before(splits, rank);
          return rounded(how.type, [count, ...tail], values.slice(begin, begin + count * each));
        }),
      };
    });
  });
}

/** One call on all members of a group of this size. */
function drawn(size: number): fc.Arbitrary<Drawn> {
  const kinds = [allGather, allToAll, broadcast, allReduce, reduceScatter, ...(size > 1 ? [message] : [])];
  return fc
    .oneof(...kinds.map((kind) => kind(size)))
    .chain((call) =>
      fc
        .tuple(fc.boolean(), fc.boolean())
        .map(([doubled, aside]) => onStream(aside, doubled ? twice(call) : call)),
    );
}

function onStream(aside: boolean, { calls, expected }: Drawn): Drawn {
  return { calls: calls.map((each) => ({ ...each, aside })), expected };
}

/** The case with each result added to itself before any result is read. Unchanged if a result is quantized. */
function twice(call: Drawn): Drawn {
  const { calls, expected } = call;
  if (!expected.every((each) => each === undefined || isWide(each.dtype))) return call;
  return {
    calls: calls.map((each) => ({ ...each, doubled: true })),
    expected: expected.map((each) => {
      if (!each) return each;
      const values = wideValues(each as PlainTensor<WideDType>);
      return rounded(
        (each as PlainTensor<WideDType>).dtype,
        each.shape,
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
const count = ({ tp = 1, cp = 1, dp = 1, pp = 1 }: MeshSizes): number => tp * cp * dp * pp;

/** Calls on the whole group, and on the groups along each axis of the mesh. */
function callsOf(size: number, mesh: MeshSizes | undefined): fc.Arbitrary<Drawn> {
  if (!mesh) return drawn(size);
  const { tp = 1, cp = 1, dp = 1, pp = 1 } = mesh;
  const sizes = { tp, cp, dp, pp };
  return fc.constantFrom(undefined, ...MESH_AXES).chain((axis) => {
    if (!axis) return drawn(size);
    const all = Array.from({ length: size }, (_, rank) => membersAlong(sizes, rank, axis));
    const groups = all.filter((members, rank) => members[0] === rank);
    return tuple(groups.map((members) => drawn(members.length))).map((perGroup): Drawn => {
      const place = (rank: number) => {
        const group = groups.findIndex((members) => members.includes(rank));
        return [perGroup[group] as Drawn, (groups[group] as readonly number[]).indexOf(rank)] as const;
      };
      return {
        calls: all.map((_, rank) => {
          const [of, member] = place(rank);
          return { ...(of.calls[member] as RankCall), axis };
        }),
        expected: all.map((_, rank) => {
          const [of, member] = place(rank);
          return of.expected[member];
        }),
      };
    });
  });
}

/** Programs for 1 to `most` ranks. */
export function distributedCase(most: number): fc.Arbitrary<Case> {
  const alone = fc.integer({ min: 1, max: most }).map((size) => ({ size, mesh: undefined }));
  const meshes = fc
    .constantFrom(...MESHES.filter((mesh) => count(mesh) <= most))
    .map((mesh) => ({ size: count(mesh), mesh }));
  return fc.oneof({ weight: 3, arbitrary: alone }, { weight: 1, arbitrary: meshes }).chain(({ size, mesh }) =>
    fc.array(callsOf(size, mesh), { minLength: 1, maxLength: 4 }).map((drawnCalls) => ({
      programs: Array.from({ length: size }, (_, rank) => ({
        mesh,
        calls: drawnCalls.map(({ calls }) => calls[rank] as RankCall),
      })),
      expected: Array.from({ length: size }, (_, rank) => drawnCalls.map(({ expected }) => expected[rank])),
    })),
  );
}

/** Parses a result from the line that a rank prints. */
export function parsed(line: string | undefined): PlainTensor | undefined {
  if (line === undefined) return undefined;
  const [type, sizes, bytes] = line.split(" ") as [DType, string, string];
  const shape = sizes === "" ? [] : sizes.split(",").map(Number);
  return new PlainTensor(type, shape, viewAs(type, new Uint8Array(Buffer.from(bytes, "base64"))));
}
