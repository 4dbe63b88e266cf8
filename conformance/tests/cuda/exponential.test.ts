/**
 * The exponentials and quotients of softmax and cross-entropy: their kernels use other formulas than the reference and
 * give the same bits.
 */
import { it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { crossEntropyBackward } from "../../../src/ops/rows/loss.js";
import { softmax } from "../../../src/ops/rows/softmax.js";
import { Scope } from "../../../src/tensor/scope.js";
import { splitmix32 } from "../../arbitraries/random.js";
import { assertSameAnswer } from "../../laws/laws.js";
import type { Answer } from "../../operations/operation.js";
import { download, fromCodes, type PlainTensor, upload } from "../../values/plain.js";
import { describeOnGpu, SEED, useGpu } from "../harness/gpu/gpu.js";

/**
 * Chunks of 2^24 bit patterns: all with CHUNKS=256, else those that contain 1 to 512 of either sign, 0, infinity and
 * NaN.
 */
const CHUNKS =
  process.env.CHUNKS === "256"
    ? Array.from({ length: 256 }, (_, chunk) => chunk)
    : [0x00, 0x3f, 0x42, 0x43, 0x7f, 0x80, 0xb8, 0xbf, 0xc0, 0xc1, 0xc2, 0xff];
const COLUMNS = 2 ** 12;
const ONE = 0x3f800000;

const filled = (count: number, code: number): number[] => new Array(count).fill(code);

/**
 * dx of logits whose rows have these maxima and totals, with target 0 and a gradient of 1: e^(x - maximum) / total,
 * minus 1 at the target.
 */
function shares(logits: PlainTensor<"f32">, maximum: readonly number[], total: readonly number[]) {
  const rows = [logits.shape[0] as number];
  return (backend: Backend): Answer => {
    using _scope = new Scope();
    const row = (codes: readonly number[]) => upload(backend, fromCodes("f32", rows, codes));
    const given = {
      logits: upload(backend, logits),
      targets: upload(backend, fromCodes("i32", rows, filled(rows[0] as number, 0))),
      grad: row(filled(rows[0] as number, ONE)),
      maximum: row(maximum),
      total: row(total),
    };
    return { dx: download(crossEntropyBackward(given)) };
  };
}

describeOnGpu("exponentials and quotients on a GPU", () => {
  const { gpu, reference } = useGpu();

  it.each(CHUNKS)("e^x of the f32 patterns of chunk %i", (chunk) => {
    const codes = Uint32Array.from({ length: 2 ** 24 }, (_, i) => chunk * 2 ** 24 + i);
    const rows = codes.length / COLUMNS;
    const run = shares(fromCodes("f32", [rows, COLUMNS], codes), filled(rows, 0), filled(rows, ONE));
    assertSameAnswer(run(gpu()), run(reference()));
  });

  // for totals between 2^-20 and 2^20 the kernel multiplies by the reciprocal; these totals are the two limits and
  // their neighbours
  const TOTALS = [0x35800000, 0x49800000].flatMap((bits) => [bits - 1, bits, bits + 1]);
  const SPECIAL = [0, 0x80000000, 1, 0x7f800000, 0xff800000, 0x7fc00000, 0xbf800000, 0x7f7fffff, 0x00800000];

  it("quotients by totals of every size, of exponentials down to none", () => {
    const next = splitmix32(SEED);
    const rows = 2 ** 10;
    const total = Array.from({ length: rows }, (_, row) => {
      const edge = [...TOTALS, ...SPECIAL][row];
      return edge ?? (row % 4 === 0 ? next() : (((112 + (next() % 30)) << 23) | (next() & 0x7fffff)) >>> 0);
    });
    // rows of logits within a few units of the maximum, or so far below it that results underflow
    const values = Float32Array.from({ length: rows * COLUMNS }, (_, i) => {
      const wide = Math.floor(i / COLUMNS) % 3 === 0 ? 110 : 12;
      return -(next() / 2 ** 32) * wide;
    });
    const logits = fromCodes("f32", [rows, COLUMNS], new Uint32Array(values.buffer));
    const run = shares(logits, filled(rows, 0), total);
    assertSameAnswer(run(gpu()), run(reference()));
  });

  it.each([8, 1000, 1001, 1504, 4096, 8200, 16384])(
    "softmax of rows of %i that reach far down",
    (columns) => {
      const next = splitmix32(SEED + columns);
      const rows = Math.min(64, columns);
      const values = Float32Array.from({ length: rows * columns }, (_, i) => {
        const row = Math.floor(i / columns);
        const far = [3, 30, 100, 1000][row % 4] as number;
        const value = -(next() / 2 ** 32) * far;
        return row % 16 === 7 && next() % 64 === 0 ? Number.NEGATIVE_INFINITY : value;
      });
      const x = fromCodes("f32", [rows, columns], new Uint32Array(values.buffer));
      const run = (backend: Backend): Answer => {
        using _scope = new Scope();
        const source = upload(backend, x);
        return { plain: download(softmax(source)), causal: download(softmax(source, { causal: true })) };
      };
      assertSameAnswer(run(gpu()), run(reference()));
    },
  );
});
