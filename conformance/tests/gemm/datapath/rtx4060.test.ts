/** The reference's `ada` datapath equals a GeForce RTX 4060 in every bit of every element of recorded FP8 products. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { tensor } from "../../../../src/ops/create.js";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import type { GemmInput } from "../../../../src/ops/gemm/operand.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { download } from "../../../values/plain.js";
import type { RecordedGemm } from "../../harness/gemm/recorded-gemm.js";
import { useBackend } from "../../harness/suite.js";

interface Case extends RecordedGemm<"e4m3" | "e5m2"> {
  /** The bit patterns of the operands' f32 scales. */
  readonly scaleX: string;
  readonly scaleW: string;
  /** The codes of x, [m, k], and of w, [n, k], in hexadecimal. */
  readonly a: string;
  readonly b: string;
}

const path = new URL("../../../vectors/rtx4060-gemm.json", import.meta.url);
const { origin, cases } = JSON.parse(readFileSync(path, "utf8")) as {
  readonly origin: { readonly project: string; readonly version: string };
  readonly cases: readonly Case[];
};

describe(`the ada datapath, against ${origin.project}, ${origin.version}`, () => {
  const backend = useBackend();

  function product(each: Case, datapath: "ada" | "hopper"): string {
    using _scope = new Scope();
    const operand = (codes: string, format: Case["x"], lines: number, scale: string): GemmInput => ({
      data: tensor(backend(), Uint8Array.from(Buffer.from(codes, "hex")), [lines, each.k], format),
      scaleInv: tensor(backend(), new Float32Array(Uint32Array.of(Number.parseInt(scale, 16)).buffer)),
      tile: "tensor",
    });
    const { out } = gemm({
      a: operand(each.b, each.w, each.n, each.scaleW),
      b: operand(each.a, each.x, each.m, each.scaleX),
      outDtype: "f32",
      datapath,
      useSplitAccumulator: each.splitAccumulator,
    });
    return wordsOf([...download(out).codes]);
  }

  it("gives every recorded result, in both accumulation modes and for mixed formats", () => {
    expect(cases.length).toBeGreaterThan(200);
    const differ = cases.filter((testCase) => product(testCase, "ada") !== wordsOf(parse(testCase.bits)));
    expect(differ).toEqual([]);
  });

  it("differs from the hopper datapath in some of them", () => {
    const told = cases.filter((each) => product(each, "hopper") !== wordsOf(parse(each.bits)));
    expect(told.length).toBeGreaterThan(4);
  });
});

function parse(text: string): number[] {
  return Array.from(text.matchAll(/.{8}/g), ([word]) => Number.parseInt(word, 16));
}

/** The words as text, with all NaNs equal. */
function wordsOf(words: readonly number[]): string {
  const canonical = (word: number): number => ((word & 0x7fffffff) > 0x7f800000 ? 0x7fffffff : word >>> 0);
  return words.map((word) => canonical(word).toString(16).padStart(8, "0")).join(" ");
}
