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

const REDUCTIONS = ["ranked", "mean", "ring", "max"] as const;

/**
 * The parts of several ranks. A gap of `gap` elements follows each part, and each address is `skip` elements after an aligned
 * one.
 */
interface FoldCase {
  readonly reduction: (typeof REDUCTIONS)[number];
  readonly contributions: readonly PlainTensor<WideDType>[];
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
      reduction: fc.constantFrom(...REDUCTIONS),
      contributions: fc.array(wideTensor([count], { dtype, edges: EDGES }), {
        minLength: ranks,
        maxLength: ranks,
      }),
      separateRank: fc.nat(ranks),
      gap: fc.constantFrom(0, 0, 8, 3),
      skips: fc.array(fc.constantFrom(0, 0, 0, 8, 1), { minLength: 3, maxLength: 3 }),
      inPlace: fc.boolean(),
    }),
  );

function expectedResult({ reduction, contributions }: FoldCase): PlainTensor<WideDType> {
  const { dtype, shape } = contributions[0] as PlainTensor<WideDType>;
  const round = (x: number): number => wideValues(rounded(dtype, [1], [x]))[0] as number;
  const values = contributions.map((part) => wideValues(part));
  const order = contributions.map((_, rank) => rank);
  const splits = contributions.map((_, rank) =>
    rank === contributions.length - 1 ? (shape[0] as number) : 0,
  );
  const sums = {
    ranked: () => oracle.rankedSum(values, (x) => x),
    mean: () => oracle.meanOfSums(oracle.rankedSum(values, round), contributions.length, round),
    ring: () => oracle.ringSum(values, order, splits, round),
    max: () => oracle.maximum(values),
  };
  return rounded(dtype, shape, sums[reduction]());
}

const dataBytes = ({ data: { buffer, byteOffset, byteLength } }: PlainTensor): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength);

export function checkFold(
  exports: AddonExports,
  runs: { readonly numRuns: number; readonly seed: number },
): void {
  const addon = namingArguments(exports);
  const device: DeviceHandle = new addon.Device(0);
  const check = (testCase: FoldCase): void => {
    const { reduction, contributions, separateRank, gap, skips, inPlace } = testCase;
    const { dtype, shape } = contributions[0] as PlainTensor<WideDType>;
    const [count] = shape as [number];
    const bytes = storageBits(dtype) / 8;
    const stride = count + gap;
    const [poolOffset, separateOffset, resultOffset] = skips.map((skip) => skip * bytes) as [
      number,
      number,
      number,
    ];
    const isSeparate = separateRank < contributions.length;
    const blocks = [
      addon.allocate(device, poolOffset + contributions.length * stride * bytes),
      addon.allocate(device, separateOffset + count * bytes),
      addon.allocate(device, resultOffset + count * bytes),
    ] as const;
    const [poolAddress, separateAddress] = [blocks[0] + poolOffset, blocks[1] + separateOffset];
    const resultAddress = inPlace && isSeparate ? separateAddress : blocks[2] + resultOffset;
    let poolIndex = 0;
    for (const [rank, contribution] of contributions.entries()) {
      const address =
        isSeparate && rank === separateRank ? separateAddress : poolAddress + poolIndex++ * stride * bytes;
      if (count > 0) addon.write(device, address, dataBytes(contribution));
    }
    addon.fold(device, {
      parts: { address: poolAddress },
      stride,
      own: isSeparate ? { address: separateAddress } : undefined,
      ownAt: isSeparate ? separateRank : undefined,
      ranks: contributions.length,
      type: WIDE[dtype],
      sumType: reduction === "ring" ? WIDE[dtype] : WIDE.f32,
      maximum: reduction === "max",
      factor: reduction === "mean" ? 1 / contributions.length : 1,
      out: { address: resultAddress },
      count,
    });
    const result = viewAs(dtype, addon.readSync(device, resultAddress, count * bytes));
    assertSame(reduction, new PlainTensor(dtype, shape, result), expectedResult(testCase));
    for (const block of blocks) addon.free(device, block);
  };
  try {
    fc.assert(fc.property(foldCase, check), runs);
  } finally {
    addon.close(device);
  }
}
