/** Sums and fused multiply-adds whose exact value is a tie of f32, or nearer to one than f64 resolves. */
import fc from "fast-check";
import { splitmix32 } from "../../arbitraries/random.js";

/** Three f32 numbers, as inputs of the exact a * b + c, rounded once. */
export interface Triple {
  readonly a: number;
  readonly b: number;
  readonly c: number;
}

const MIN_EXPONENT = -149;
const MAX_EXPONENT = 127;

type Draw = (below: number) => number;

const drawOf = (seed: number): Draw => {
  const next = splitmix32(seed);
  return (below) => next() % below;
};

const oddNumber = (draw: Draw, from: number, to: number): number => (from + draw(to - from + 1)) | 1;

/** ±(1 + m / 2^23) * 2^exponent, an f32; a subnormal one has the bits that f32 has. */
function nearPower(draw: Draw, exponent: number): number {
  const mantissa = draw(3) === 0 ? 0 : draw(2 ** 23);
  return (draw(2) === 0 ? 1 : -1) * Math.fround((1 + mantissa / 2 ** 23) * 2 ** exponent);
}

/**
 * The exponent of a number that changes at most the last bit of an f64 sum with exponent `top`: by a small, a medium or a large
 * distance.
 */
function smallExponent(draw: Draw, top: number): number {
  const greatest = Math.max(1, top - 52 - MIN_EXPONENT);
  const below = [draw(4), draw(Math.min(greatest, 56)), draw(greatest)][draw(3)] as number;
  return Math.max(MIN_EXPONENT, top - 52 - below);
}

/** Two numbers whose product is an odd number of 25 bits: with a factor 2^k it is halfway between two f32. */
function oddProduct(draw: Draw, bits: number): readonly [number, number] {
  const odd1 = oddNumber(draw, 3, 2 ** bits - 1);
  const [smallest, greatest] = [Math.ceil(2 ** 24 / odd1), Math.floor((2 ** 25 - 1) / odd1)];
  const odd2 = oddNumber(draw, smallest, greatest - 1);
  return odd1 * odd2 < 2 ** 25 ? [odd1, odd2] : [odd1, odd2 - 2];
}

/** The product is a tie, and the addend decides to which side the sum rounds. `bits` is the maximum width of a factor. */
function productAtTie(draw: Draw, bits: number): Triple {
  const [odd1, odd2] = oddProduct(draw, 2 + draw(bits - 1));
  const exponent = -90 + draw(190);
  const top = exponent + 24;
  return {
    a: odd1,
    b: (draw(2) === 0 ? 1 : -1) * odd2 * 2 ** exponent,
    c: draw(8) === 0 ? 0 : nearPower(draw, smallExponent(draw, top)),
  };
}

/**
 * The addend and the higher part of the product make a tie, and the lowest bits of the product decide: (x + s)(x - s) is x^2
 * minus a square that f64 drops. The result may be subnormal.
 */
function sumAtTie(draw: Draw): Triple {
  const shift = 15 + draw(9);
  const x = oddNumber(draw, 1, 2 ** (24 - shift) - 1) * 2 ** shift;
  const shiftExtra = draw(8) === 0 ? 0 : 1 + draw(Math.floor(2 ** (shift - 15)));
  const isSubnormal = draw(4) === 0;
  const unit = isSubnormal ? MIN_EXPONENT : -125 + draw(200);
  const scale = unit - 2 * shift - 1;
  const ofA = Math.max(-120, Math.min(60, Math.trunc(scale / 2)));
  const significand = isSubnormal ? draw(2 ** 23) : 2 ** 23 + draw(2 ** 23);
  const [signA, signC] = [draw(2), draw(2)].map((sign) => (sign === 0 ? 1 : -1)) as [number, number];
  return {
    a: signA * (x + shiftExtra >= 2 ** 24 ? x : x + shiftExtra) * 2 ** ofA,
    b: (x + shiftExtra >= 2 ** 24 ? x : x - shiftExtra) * 2 ** (scale - ofA),
    c: signC * significand * 2 ** unit,
  };
}

/** The addend is the negative of the rounded product, or a neighbour of it. */
function nearNegative(draw: Draw): Triple {
  const [a, b] = [nearPower(draw, -30 + draw(60)), nearPower(draw, -30 + draw(60))];
  const product = Math.fround(a * b);
  return { a, b, c: Math.fround(-product * (1 + (draw(5) - 2) * 2 ** -23)) };
}

const fromSeed = <T>(make: (draw: Draw) => T): fc.Arbitrary<T> =>
  fc.integer({ min: 0, max: 0x7fffffff }).map((seed) => make(drawOf(seed)));

const isF32 = ({ a, b, c }: Triple): boolean =>
  [a, b, c].every((value) => Number.isFinite(value) && Math.fround(value) === value);

/** Triples at ties, next to ties, and with cancellation. */
export const tiedTriple: fc.Arbitrary<Triple> = fc
  .oneof(
    { weight: 4, arbitrary: fromSeed((draw) => productAtTie(draw, 23)) },
    { weight: 4, arbitrary: fromSeed(sumAtTie) },
    { weight: 1, arbitrary: fromSeed(nearNegative) },
  )
  .filter(isF32);

/** As the first kind of `tiedTriple`, where `a` is an odd integer of at most 4 bits. */
export const narrowTiedTriple: fc.Arbitrary<Triple> = fromSeed((draw) => productAtTie(draw, 4)).filter(isF32);

/** `terms` in a drawn order. */
function inDrawnOrder<T>(draw: Draw, terms: readonly T[]): readonly T[] {
  return terms
    .map((term) => [draw(2 ** 16), term] as const)
    .sort(([a], [b]) => a - b)
    .map(([, term]) => term);
}

/**
 * A tie in two parts. Far below it: one number, or a larger one, a smaller one and the negative of the larger. Far above it: a
 * pair that cancels. Zeros make the sum as long as a sum of more terms.
 */
function fewTerms(draw: Draw): readonly number[] {
  const exponent = -60 + draw(120);
  const top = exponent + 24;
  const sign = draw(2) === 0 ? 1 : -1;
  const sum = oddNumber(draw, 2 ** 24, 2 ** 25 - 1);
  const low = oddNumber(draw, 1, 2 ** (1 + draw(12)) - 1);
  const addends = [sum - low, low].map((addend) => [sign * addend * 2 ** exponent]);
  const powerBelow = (below: number): number => nearPower(draw, Math.max(MIN_EXPONENT, top - below));
  const singleTerm = (): number[] => [
    draw(2) === 0 ? powerBelow(53 + draw(56)) : nearPower(draw, smallExponent(draw, top)),
  ];
  const middleTerms = (): number[] => {
    const larger = powerBelow(46 + draw(8));
    return [larger, 2 ** Math.max(MIN_EXPONENT, top - 98 - draw(10)), -larger];
  };
  const residual = [() => [], singleTerm, middleTerms, middleTerms][draw(4)]?.() ?? [];
  const above = draw(2) === 0 ? nearPower(draw, Math.min(MAX_EXPONENT - 8, top + draw(100))) : 0;
  const zeros = new Array<number>(draw(2) === 0 ? draw(60) : 0).fill(0);
  return [
    ...inDrawnOrder(draw, [...addends, residual, above === 0 ? [] : [above], [-above]]).flat(),
    ...zeros,
  ];
}

/** Many large numbers of one sign, numbers that make their sum a tie, and one number far below it. */
function manyTerms(draw: Draw): readonly number[] {
  const exponent = -40 + draw(60);
  const sign = draw(2) === 0 ? 1 : -1;
  const largeTerms = Array.from({ length: 3 + draw(125) }, () => 2 ** 24 - 1 - draw(2 ** 12));
  const sum = largeTerms.reduce((a, b) => a + b);
  const half = 2 ** (Math.floor(Math.log2(sum)) - 24);
  const rest = (2 * Math.floor(sum / half / 2) + 1) * half - sum;
  const terms = [...largeTerms, rest].map((term) => sign * term * 2 ** exponent);
  const top = exponent + Math.floor(Math.log2(sum));
  const distantTerms = Array.from({ length: 1 + draw(2) }, () => nearPower(draw, smallExponent(draw, top)));
  return inDrawnOrder(
    draw,
    [...terms, ...distantTerms].filter((term) => term !== 0),
  );
}

/** Numbers, all f32, whose exact sum is a tie or next to one. */
export const tiedTerms: fc.Arbitrary<readonly number[]> = fc
  .oneof(fromSeed(fewTerms), fromSeed(manyTerms))
  .filter((terms) => terms.every((term) => Math.fround(term) === term));

/** The inverse of an odd number modulo 2^30. */
function inverse(x: bigint): bigint {
  let divisor = x;
  for (let i = 0; i < 5; i++) divisor = (divisor * (2n - x * divisor)) & MASK;
  return divisor;
}

const MASK = (1n << 30n) - 1n;

/** Two operands, each a small odd integer times an f32. Their product has 54 bits: a tie of f32, plus the last bit. */
export interface ScaledPair {
  readonly elements: readonly [number, number];
  readonly scales: readonly [number, number];
}

/** The last bit of the product is one more than f64 has. */
export const tiedPair: fc.Arbitrary<ScaledPair> = fromSeed((draw) => {
  for (;;) {
    const element = oddNumber(draw, 9, 15);
    const scale = oddNumber(draw, 2 ** 23, 2 ** 24 - 1);
    const product = BigInt(element) * BigInt(scale);
    const tie = (1n << 29n) + (draw(2) === 0 ? 1n : MASK);
    const second = Number((tie * inverse(product)) & MASK);
    const factor = [3, 5, 7, 9, 11, 13, 15].find(
      (candidate) => second % candidate === 0 && second / candidate < 2 ** 24,
    );
    const bits = (product * BigInt(second)).toString(2).length;
    if (factor !== undefined && bits === 54)
      return { elements: [element, factor], scales: [scale * 2 ** (-40 + draw(40)), second / factor] };
  }
});
