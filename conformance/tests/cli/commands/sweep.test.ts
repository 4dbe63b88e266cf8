/** sweep --function: digests of results that other code computes, and options that it refuses. */
import { describe, expect, it } from "vitest";
import { SPECIAL_INSTRUCTIONS } from "../../../oracle/core/special-instructions.js";
import { useWorkspace } from "../../harness/cli.js";
import { bitsToValue, valueToBits } from "../../harness/special-functions.js";

const w = useWorkspace();

/** The first digest in exact integers, by the formula of docs/cli.md. */
function digestOf(multiplier: bigint, codes: readonly number[]): number {
  const sum = codes.reduce((total, code, i) => {
    const foldedIndex = BigInt.asUintN(32, (BigInt(i) ^ (BigInt(i) >> 16n)) * multiplier);
    return total + BigInt(code + 1) * ((foldedIndex ^ (foldedIndex >> 15n)) | 1n);
  }, 0n);
  return Number(BigInt.asUintN(32, sum));
}

describe("sweep --function", () => {
  it.each(["tanh.approx.f16", "ex2.approx.ftz.bf16"] as const)("digests the oracle's %s", async (name) => {
    const dtype = name.endsWith("bf16") ? "bf16" : "f16";
    const codes = Array.from({ length: 65_536 }, (_, bits) =>
      valueToBits(dtype, SPECIAL_INSTRUCTIONS[name](bitsToValue(dtype, bits))),
    );
    const { chunks, counts } = JSON.parse(await w.succeed("sweep", "--function", name, "--json"));
    expect(chunks).toEqual([[0, digestOf(0x7feb352dn, codes), digestOf(0x846ca68bn, codes)]]);
    expect(counts.nan).toBe(codes.filter((code) => code === 0x7fff).length);
    expect(counts.zero).toBe(codes.filter((code) => (code & 0x7fff) === 0).length);
    const total = Object.values<number>(counts).reduce((sum, count) => sum + count, 0);
    expect(total).toBe(65_536);
  });

  it.each([
    [[], /--format F is needed, or --function NAME/],
    [["--format", "e4m3", "--function", "sin.approx.f32"], /--format and --function exclude each other/],
    [["--function", "powf"], /powf has two arguments; a sweep takes functions of one/],
    [["--function", "sin.approx.f32", "--seed", "1"], /--seed is no option of sweep --function/],
    [
      ["--function", "tanh.approx.f16", "--chunks", "1"],
      /--chunks: tanh.approx.f16 has one chunk, 0; 1 was given/,
    ],
  ] as const)("refuses %j", async (options, message) => {
    const { status, stderr } = await w.run("sweep", ...options);
    expect({ status, stderr }).toEqual({ status: 2, stderr: expect.stringMatching(message) });
  });
});
