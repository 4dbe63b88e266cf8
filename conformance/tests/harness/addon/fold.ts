/**
 * Tests that a device combines arrays of several ranks as the oracle does, for any dtype, order, number of ranks, position of
 * this rank's part, and alignment.
 */
import * as fc from "fast-check";
import {
  type AddonExports,
  type DeviceHandle,
  namingArguments,
} from "../../../../src/backends/cuda/addon.js";
import { WIDE } from "../../../../src/formats/contract.gen.js";
import { viewAs } from "../../../../src/tensor/data.js";
import { storageBits, type WideDType } from "../../../../src/tensor/shape.js";
import { wideTensor, wideType } from "../../../arbitraries/wide.js";
import * as oracle from "../../../oracle/collective/collective.js";
import { assertSame } from "../../../values/difference.js";
import { PlainTensor, wideValues } from "../../../values/plain.js";
import { rounded } from "../../../values/rounded.js";

const HOWS = ["ranked", "mean", "ring", "max"] as const;

/**
 * The parts of several ranks. A gap of `gap` elements follows each part, and each address is `skip` elements after an aligned
 * one.
 */
interface FoldCase {
  readonly how: (typeof HOWS)[number];
  readonly parts: readonly PlainTensor<WideDType>[];
  /** The rank whose part is stored separately. If it is out of range, all parts are stored together. */
  readonly separateRank: number;
  readonly gap: number;
  readonly skips: readonly number[];
  /** Whether the result overwrites the separate part. */
  readonly inPlace: boolean;
}

/** Elements whose sums cancel, absorb a summand, or overflow. */
const EDGES = [0, 1, 2 ** -24, 2 ** 24, 65504, 2 ** 127, 3.4e38];

const foldCase: fc.Arbitrary<FoldCase> = fc
  .tuple(
    wideType(),
    fc.oneof(fc.constantFrom(1, 2, 4, 8), fc.integer({ min: 1, max: 9 })),
    fc.oneof(fc.nat(40), fc.nat(700)),
  )
  .chain(([dtype, ranks, count]) =>
    fc.record({
      how: fc.constantFrom(...HOWS),
      parts: fc.array(wideTensor([count], { dtype, edges: EDGES }), { minLength: ranks, maxLength: ranks }),
      separateRank: fc.nat(ranks),
      gap: fc.constantFrom(0, 0, 8, 3),
      skips: fc.array(fc.constantFrom(0, 0, 0, 8, 1), { minLength: 3, maxLength: 3 }),
      inPlace: fc.boolean(),
    }),
  );

function expected({ how, parts }: FoldCase): PlainTensor<WideDType> {
  const { dtype, shape } = parts[0] as PlainTensor<WideDType>;
  const round = (x: number): number => wideValues(rounded(dtype, [1], [x]))[0] as number;
  const values = parts.map((part) => wideValues(part));
  const order = parts.map((_, rank) => rank);
  const last = parts.map((_, rank) => (rank === parts.length - 1 ? (shape[0] as number) : 0));
  const sums = {
    ranked: () => oracle.rankedSum(values, (x) => x),
    mean: () => oracle.meanOf(oracle.rankedSum(values, round), parts.length, round),
    ring: () => oracle.ringSum(values, order, last, round),
    max: () => oracle.maximum(values),
  };
  return rounded(dtype, shape, sums[how]());
}

const bytesOf = ({ data: { buffer, byteOffset, byteLength } }: PlainTensor): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength);

export function checkFold(
  exports: AddonExports,
  runs: { readonly numRuns: number; readonly seed: number },
): void {
  const addon = namingArguments(exports);
  const device: DeviceHandle = new addon.Device(0);
  const check = (drawn: FoldCase): void => {
    const { how, parts, separateRank, gap, skips, inPlace } = drawn;
    const { dtype, shape } = parts[0] as PlainTensor<WideDType>;
    const [count] = shape as [number];
    const bytes = storageBits(dtype) / 8;
    const stride = count + gap;
    const [first, second, third] = skips.map((skip) => skip * bytes) as [number, number, number];
    const isApart = separateRank < parts.length;
    const blocks = [
      addon.allocate(device, first + parts.length * stride * bytes),
      addon.allocate(device, second + count * bytes),
      addon.allocate(device, third + count * bytes),
    ] as const;
    const [at, mine] = [blocks[0] + first, blocks[1] + second];
    const out = inPlace && isApart ? mine : blocks[2] + third;
    let slot = 0;
    for (const [rank, part] of parts.entries()) {
      const to = isApart && rank === separateRank ? mine : at + slot++ * stride * bytes;
      if (count > 0) addon.write(device, to, bytesOf(part));
    }
    addon.fold(device, {
      parts: { address: at },
      stride,
      own: isApart ? { address: mine } : undefined,
      ownAt: isApart ? separateRank : undefined,
      ranks: parts.length,
      type: WIDE[dtype],
      sumType: how === "ring" ? WIDE[dtype] : WIDE.f32,
      maximum: how === "max",
      factor: how === "mean" ? 1 / parts.length : 1,
      out: { address: out },
      count,
    });
    const got = viewAs(dtype, addon.readSync(device, out, count * bytes));
    assertSame(how, new PlainTensor(dtype, shape, got), expected(drawn));
    for (const each of blocks) addon.free(device, each);
  };
  try {
    fc.assert(fc.property(foldCase, check), runs);
  } finally {
    addon.close(device);
  }
}
