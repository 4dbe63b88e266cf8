/** The random Hadamard transform: its laws, properties of its matrix, threads and refusals. */
import { describe, expect } from "vitest";
import { DTypeError } from "../../../src/errors.js";
import { decode, encode } from "../../../src/ops/cast/cast.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { transpose } from "../../../src/ops/layout/layout.js";
import { hadamard, RHT_SIGNS } from "../../../src/ops/quantize/hadamard.js";
import { words } from "../../arbitraries/random.js";
import { assertSame } from "../../values/difference.js";
import { download, fromCodes, upload } from "../../values/plain.js";
import { derivedSeed } from "../harness/draws.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();
const threads = useThreads();

/** Integers of at most three bits, whose transforms bf16 represents exactly. */
const smallValues = fromCodes(
  "bf16",
  [48, 5],
  words(9, 48 * 5).map((bits) => ((bits & 0x8000) | 0x3f80) + (bits & 0x60)),
);

describeLaws(backend, ["hadamard"], { runs: 150, seed: derivedSeed(17) });

describe("results do not depend on the number of threads", () => {
  const x = fromCodes("bf16", [640, 704], words(5, 640 * 704));
  for (const signs of [0, RHT_SIGNS]) {
    testEqualBits(`signs 0x${signs.toString(16)}`, threads, (backend) => ({
      out: download(hadamard(upload(backend, x), signs)),
    }));
  }
});

describe("the matrix", () => {
  testInScope("is its own inverse without signs: twice is the transpose", () => {
    const x = upload(backend(), smallValues);
    const twice = hadamard(transpose(hadamard(x, 0)), 0);
    assertSame("twice", download(twice), download(transpose(x)));
  });

  testInScope("has the fixed signs by default", () => {
    const x = upload(backend(), smallValues);
    assertSame("the default", download(hadamard(x)), download(hadamard(x, RHT_SIGNS)));
    expect(download(hadamard(x)).codes).not.toEqual(download(hadamard(x, 0)).codes);
  });

  testInScope("negates the inputs whose bit is set before anything else", () => {
    const identityRows = new Float32Array(16 * 16);
    for (let i = 0; i < 16; i++) identityRows[17 * i] = 1;
    const identity = encode(tensor(backend(), identityRows, [16, 16]), { format: "bf16" });
    const firstColumn = (signs: number): number[] =>
      Array.from({ length: 16 }, (_, i) => decode(hadamard(identity, signs)).dataSync()[16 * i] as number);
    expect(firstColumn(0)).toEqual(Array(16).fill(0.25));
    expect(firstColumn(RHT_SIGNS)).toEqual(
      Array.from({ length: 16 }, (_, i) => ((RHT_SIGNS >> i) & 1 ? -0.25 : 0.25)),
    );
  });

  testInScope("propagates a NaN or infinity within its group of 16, and to no other", () => {
    for (const special of [0x7fc0, 0x7f80]) {
      const codes = Uint16Array.from({ length: 32 }, () => 0x3f80);
      codes[3] = special;
      const out = decode(hadamard(upload(backend(), fromCodes("bf16", [32, 1], codes)))).dataSync();
      expect(Array.from(out).map(Number.isFinite)).toEqual([
        ...Array(16).fill(false),
        ...Array(16).fill(true),
      ]);
    }
  });
});

describe("shapes and types", () => {
  testInScope("leading dimensions are rows", () => {
    const x = upload(backend(), smallValues);
    assertSame("[3,16,5]", download(hadamard(x.reshape([3, 16, 5]))), download(hadamard(x)));
    expect(hadamard(empty(backend(), "bf16", [0, 4]))).toMatchObject({ dtype: "bf16", shape: [4, 0] });
    expect(hadamard(empty(backend(), "bf16", [16, 0]))).toMatchObject({ dtype: "bf16", shape: [0, 16] });
  });

  testInScope("zeros fill the last 16 rows", () => {
    const onesTensor = tensor(backend(), new Uint16Array(17).fill(0x3f80), [17, 1], "bf16");
    const out = hadamard(onesTensor, 0);
    expect(out.shape).toEqual([1, 32]);
    // 1, …, 1 gives 16/4 and zeros; 1, 0, …, 0 gives 1/4 everywhere
    expect([...decode(out).dataSync()]).toEqual([
      4,
      ...new Array<number>(15).fill(0),
      ...new Array<number>(16).fill(0.25),
    ]);
  });

  testInScope("every type except bf16 is refused", () => {
    const x = empty(backend(), "f32", [16, 4]);
    expect(() => hadamard(x)).toThrow(DTypeError);
    expect(() => hadamard(x)).toThrow(/f32.*must be bf16/);
  });
});
