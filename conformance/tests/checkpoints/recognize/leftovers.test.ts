/** What is left of a convention beside a weight without codes is reported, for every tensor of every convention. */
import { expect, it } from "vitest";
import { conventionOf } from "../../../../src/checkpoints/stored/conventions.js";
import { reportOfContents, type StoredTensor } from "../files/checkpoints.js";
import { contentsOf, STORED_NAMES } from "../files/drawn-files.js";

/** Suffixes that plain tensors have too. */
const COMMON = [".scale", ".scales", "_scale", "_scales", ""];

const CASES = STORED_NAMES.map(conventionOf).flatMap(({ codes, scale, global, others = [] }) =>
  [scale.suffix, global?.suffix ?? "", ...others]
    .filter((suffix) => codes.suffix !== "" && !COMMON.includes(suffix))
    .map((suffix) => [codes.suffix, suffix] as const),
);
const DISTINCT = new Map(CASES.map((each) => [String(each), each]));

it.each([...DISTINCT.values()])(
  "a BF16 m%s has no codes, so m%s is reported alone",
  async (codes, suffix) => {
    const weight: StoredTensor = { dtype: "BF16", shape: [32, 32], bytes: new Uint8Array(2048).fill(0x3f) };
    const left: StoredTensor = {
      dtype: "F32",
      shape: [],
      bytes: new Uint8Array(Float32Array.of(0.5).buffer),
    };
    const tensors = new Map<string, StoredTensor>([
      [`m${codes}`, weight],
      [`m${suffix}`, left],
    ]);
    const { findings, weights } = await reportOfContents(contentsOf(tensors, undefined));
    expect(weights).toEqual([]);
    expect(findings.map(({ name, subject }) => [name, subject])).toEqual([["scale-orphan", `m${suffix}`]]);
  },
);
