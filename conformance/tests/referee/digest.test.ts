// The digest of bytes equals python/lockstep/_digest.py, and every change of elements or of their positions changes the digest.
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { computeDigest } from "../../../src/referee/digest.js";

/** The digest by arithmetic of big integers. */
function byDefinition(bytes: Uint8Array): string {
  const paddedBytes = [...bytes, 0, 0, 0].slice(0, 4 * Math.ceil(bytes.length / 4));
  const low = (x: bigint): bigint => x & 0xffffffffn;
  let [lowSum, highSum] = [0n, 0n];
  for (let i = 0n; i < BigInt(paddedBytes.length / 4); i++) {
    const digestWords = paddedBytes
      .slice(Number(4n * i), Number(4n * i) + 4)
      .reduceRight((sum, byte) => 256n * sum + BigInt(byte), 0n);
    let mixedWord = low(digestWords + i * 0x9e3779b1n);
    mixedWord ^= mixedWord >> 16n;
    mixedWord = low(mixedWord * 0x7feb352dn);
    mixedWord ^= mixedWord >> 15n;
    lowSum = low(lowSum + mixedWord);
    highSum = low(highSum + mixedWord * (2n * i + 1n));
  }
  return [lowSum, highSum].map((sum) => sum.toString(16).padStart(8, "0")).join("");
}

const bytes = fc.uint8Array({ maxLength: 64 });

it("the digest has the value of the formula in its documentation", () => {
  fc.assert(fc.property(bytes, (data) => computeDigest(data) === byDefinition(data)));
});

it("the digest has the value that Python computes", () => {
  // python -c 'from lockstep._digest import digest_of; print(digest_of(bytes(range(10))))'
  expect(computeDigest(Uint8Array.from({ length: 10 }, (_, i) => i))).toBe("6cab67a95095bb17");
  expect(computeDigest(new Uint8Array())).toBe("0000000000000000");
});

it("the digest changes with each bit, and with the order of words", () => {
  fc.assert(
    fc.property(bytes, fc.nat(), fc.integer({ min: 0, max: 7 }), (data, position, bit) => {
      fc.pre(data.length > 0);
      const changedData = data.slice();
      changedData[position % data.length] = (changedData[position % data.length] as number) ^ (1 << bit);
      expect(computeDigest(changedData)).not.toBe(computeDigest(data));
    }),
  );
  const bytesOfWords = (...list: number[]): Uint8Array => new Uint8Array(Uint32Array.from(list).buffer);
  fc.assert(
    fc.property(fc.nat(), fc.nat(), (a, b) => {
      fc.pre(a !== b);
      expect(computeDigest(bytesOfWords(a, b))).not.toBe(computeDigest(bytesOfWords(b, a)));
    }),
  );
});
