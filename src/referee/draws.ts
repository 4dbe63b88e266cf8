/** Models of operators that draw random numbers from PyTorch's CUDA generator (DistributionTemplates.h, Dropout.cu). */
import { ShapeError } from "../errors.js";
import { philox } from "../random.js";
import { elementCount, type Shape, sameShape } from "../tensor/shape.js";
import type { Call, GeneratorState, Model } from "./call.js";
import { roundedValue, toFloat32 } from "./conversions.js";
import { applyMath, fma } from "./float32.js";
import { NotModelled } from "./not-modelled.js";
import { mapElements } from "./pointwise.js";
import { itemSize, type Value } from "./value.js";

const { fround, sqrt } = Math;

/** The maximum number of threads that draw: 8 blocks of 256 threads on each of the 132 processors of an H200. */
const MAX_BLOCKS = 132 * 8;
const BLOCK = 256;
/** The number of words that Philox returns at a time. */
const PHILOX_WORDS = 4;

/** Receives the index of an element, the words that its thread draws, and the position of the element's word among them. */
type Draw = (index: number, words: Uint32Array, word: number) => void;

/**
 * Calls `draw` for each of `count` elements. Each thread draws its own words, and each word is for one element. The elements are
 * grouped in vectors of `width`; vector i belongs to thread i modulo the number of threads.
 */
function forEachDraw({ seed, offset }: GeneratorState, count: number, width: number, draw: Draw): void {
  if (offset % PHILOX_WORDS !== 0)
    throw new NotModelled(`the offset ${offset} of the generator, no multiple of ${PHILOX_WORDS}`);
  const threads = BLOCK * Math.min(Math.ceil(count / BLOCK), MAX_BLOCKS);
  const vectors = Math.ceil(count / width);
  for (let thread = 0; thread < Math.min(threads, vectors); thread++) {
    const wordCount = width * Math.ceil((vectors - thread) / threads);
    const words = new Uint32Array(PHILOX_WORDS * Math.ceil(wordCount / PHILOX_WORDS));
    philox({ seed, offset: BigInt(thread) }, offset / PHILOX_WORDS, words);
    for (let word = 0; word < wordCount; word++) {
      const index = (thread + Math.floor(word / width) * threads) * width + (word % width);
      if (index < count) draw(index, words, word);
    }
  }
}

/** Maps a word to a number above 0 and at most 1. */
const toUniform = (word: number): number => fround(fround(word) * 2 ** -32 + 2 ** -33);

function requireGenerator({ randomness: { generator } }: Call): GeneratorState {
  if (generator) return generator;
  throw new NotModelled("the state of the generator was not recorded");
}

/** `count` numbers above 0 and at most 1, for elements in vectors of `width`. */
function uniforms(call: Call, count: number, width = 1): Float32Array {
  const out = new Float32Array(count);
  forEachDraw(requireGenerator(call), count, width, (index, words, word) => {
    out[index] = toUniform(words[word] as number);
  });
  return out;
}

/** Values in the argument `size`, rounded to the argument `dtype`, by default f32. */
function createOfSize(call: Call, drawValues: (count: number) => Float32Array): Value {
  const shape: Shape = call.integers("size");
  return roundedValue(call.backend, call.dtype("dtype") ?? "F32", shape, drawValues(elementCount(shape)));
}

/** Uniform numbers, rounded to the dtype; 1 becomes 0. */
export const rand: Model = (call) => {
  const out = createOfSize(call, (count) => uniforms(call, count));
  const values = toFloat32(call.backend, out);
  return [
    roundedValue(
      call.backend,
      out.dtype,
      out.shape,
      mapElements((u) => (u === 1 ? 0 : u), values),
    ),
  ];
};

const RADIANS_PER_WORD = fround(2 * Math.PI) * 2 ** -32;

/**
 * Normal numbers by the method of Box and Muller. The first of two words gives u, the second word gives an angle. The results are
 * the sine and the cosine of the angle, multiplied by sqrtf(-2 logf(u)).
 */
export const randn: Model = (call) => [
  createOfSize(call, (count) => {
    const [uniform, angle, isCosine] = [0, 1, 2].map(() => new Float32Array(count)) as [
      Float32Array,
      Float32Array,
      Float32Array,
    ];
    forEachDraw(requireGenerator(call), count, 1, (index, words, word) => {
      const pair = word - (word % 2);
      uniform[index] = toUniform(words[pair] as number);
      angle[index] = fma(fround(words[pair + 1] as number), RADIANS_PER_WORD, RADIANS_PER_WORD / 2);
      isCosine[index] = word % 2;
    });
    const radius = mapElements((l) => sqrt(fround(-2 * l)), applyMath(call.backend, "logf", uniform));
    const sines = applyMath(call.backend, "sin.approx.f32", angle);
    const cosines = applyMath(call.backend, "cos.approx.f32", angle);
    const ratio = mapElements((s, c, selector) => (selector === 0 ? s : c), sines, cosines, isCosine);
    // the mean, which is 0, makes a -0 positive
    return mapElements((r, t) => fround(r * t) + 0, radius, ratio);
  }),
];

/** 1 with probability p, else 0. */
export const bernoulli: Model = (call) => {
  const { dtype, shape } = call.tensor("self");
  const p = fround(call.number("p", 0.5));
  return [
    roundedValue(
      call.backend,
      dtype,
      shape,
      mapElements((u) => Number(u < p), uniforms(call, elementCount(shape))),
    ),
  ];
};

/** The number of bytes that a thread of dropout reads at a time. */
const VECTOR_BYTES = 16;

/** The number of elements that a thread of dropout reads at a time: a power of two that divides the number of elements. */
function vectorWidth({ dtype, shape }: Value): number {
  let width = VECTOR_BYTES / itemSize(dtype);
  while (elementCount(shape) % width !== 0) width /= 2;
  return width;
}

/** The mask of dropout as recorded, or as the generator draws it: whether a uniform number is less than 1 - p. */
function dropoutMask(call: Call, x: Value, keep: number): Float32Array {
  const { generator, drawn } = call.randomness;
  if (generator === undefined && drawn) {
    if (drawn.dtype === "BOOL" && sameShape(drawn.shape, x.shape)) return Float32Array.from(drawn.bytes);
    throw new ShapeError(`a mask ${drawn.dtype} [${drawn.shape}] of [${x.shape}]`);
  }
  return mapElements((u) => Number(u < keep), uniforms(call, elementCount(x.shape), vectorWidth(x)));
}

/** self * mask * (1 / (1 - p)) in f32, rounded once. The mask is the second result. */
export const dropout: Model = (call) => {
  const x = call.tensor("input");
  const p = call.number("p");
  if (!call.boolean("train", true) || !(p > 0 && p < 1)) throw new NotModelled("dropout that draws nothing");
  const keep = fround(1 - p);
  const scale = fround(1 / keep);
  const mask = dropoutMask(call, x, keep);
  const values = mapElements((v, m) => fround(v * m) * scale, toFloat32(call.backend, x), mask);
  return [
    roundedValue(call.backend, x.dtype, x.shape, values),
    { dtype: "BOOL", shape: x.shape, bytes: Uint8Array.from(mask) },
  ];
};

/** Whether the generator's state was recorded, and the call draws at most as many numbers as the recorded calls. */
const isComparedCount = (call: Call, count: number): boolean =>
  call.randomness.generator !== undefined && count <= 300_000;

export const isComparedSize = (call: Call): boolean =>
  isComparedCount(call, elementCount(call.integers("size")));

export const isComparedProbability = (call: Call): boolean =>
  isComparedCount(call, elementCount(call.tensor("self").shape));

/** As `isComparedCount`, and whether the elements are whole vectors of 16 bytes. */
export const isComparedDropout = (call: Call): boolean => {
  const x = call.tensor("input");
  return isComparedCount(call, elementCount(x.shape)) && vectorWidth(x) * itemSize(x.dtype) === VECTOR_BYTES;
};
