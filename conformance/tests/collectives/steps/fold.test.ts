/** The maximum over ranks of each pair of special values: zeros of both signs, infinities, NaN, and numbers next to these. */
import { expect, it } from "vitest";
import { loopbackOver } from "../../../../src/collectives/loopback/loopback.js";
import { WIDE_DTYPES, type WideDType } from "../../../../src/tensor/shape.js";
import { maximum } from "../../../oracle/collective/collective.js";
import { differenceOf } from "../../../values/difference.js";
import { fromCodes, PlainTensor, upload, wideValues } from "../../../values/plain.js";
import { rounded } from "../../../values/rounded.js";
import { useBackends } from "../../harness/ranks/backends.js";

const RANKS = 2;
const backends = useBackends(RANKS);

/** The codes of 1 and of infinity. */
const CODES = { f32: [0x3f800000, 0x7f800000], bf16: [0x3f80, 0x7f80], f16: [0x3c00, 0x7c00] } as const;

/** Zero, the smallest number, 1 and its neighbours, the largest number, infinity and NaN, with both signs. */
function specials(dtype: WideDType): readonly number[] {
  const [oneCode, infinity] = CODES[dtype];
  const sign = dtype === "f32" ? 2 ** 31 : 2 ** 15;
  const positiveCodes = [
    0,
    1,
    oneCode - 1,
    oneCode,
    oneCode + 1,
    infinity - 1,
    infinity,
    infinity + 1,
    sign - 1,
  ];
  return [...positiveCodes, ...positiveCodes.map((code) => code + sign)];
}

it.each(WIDE_DTYPES)("of each pair of special values of %s equals the definition", async (dtype) => {
  const codes = specials(dtype);
  const pairs = codes.flatMap((x) => codes.map((y) => [x, y] as const));
  const partsByRank = Array.from({ length: RANKS }, (_, rank) =>
    fromCodes(
      dtype,
      [pairs.length],
      pairs.map((pair) => pair[rank] as number),
    ),
  ) as PlainTensor<WideDType>[];
  const expected = rounded(dtype, [pairs.length], maximum(partsByRank.map(wideValues)));
  const results = loopbackOver(backends, 20_000).map((group, rank) => {
    using x = upload(group.backend, partsByRank[rank] as PlainTensor<WideDType>);
    return group.allReduce(x, { reduction: "max" });
  });
  for (const result of results) {
    const actual = new PlainTensor(dtype, result.shape, await result.data());
    expect(differenceOf(actual, expected)).toBeUndefined();
    result.dispose();
  }
});
