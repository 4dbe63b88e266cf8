/** Findings at their limits: a wrong global scale is named, and a right one raises no alarm. */
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { FindingName } from "../../../src/checkpoints/judge/findings.js";
import { Correlation } from "../../../src/checkpoints/judge/statistics/correlation.js";
import { statisticsOf } from "../../../src/checkpoints/judge/statistics/statistics.js";
import { judgeStatistics } from "../../../src/checkpoints/judge/weights/from-statistics.js";
import { FusedScales } from "../../../src/checkpoints/judge/weights/fused.js";
import { Kernels } from "../../../src/checkpoints/kernels/kernels.js";
import { openCheckpointFiles } from "../../../src/checkpoints/stored/open.js";
import { readScales } from "../../../src/checkpoints/stored/scales.js";
import { surveyFiles } from "../../../src/checkpoints/survey.js";
import { isGlob, matchesGlob } from "../../../src/text/glob.js";
import { draws } from "../harness/draws.js";
import {
  type Contents,
  FIXTURES,
  readContents,
  reportOf,
  reportOfContents,
  type StoredTensor,
  VECTORS,
} from "./files/checkpoints.js";

const Q = "model.layers.0.self_attn.q_proj";
const GATE = "model.layers.0.mlp.gate_proj";

const get = ({ tensors }: Contents, name: string): StoredTensor => {
  const tensor = tensors.get(name);
  if (!tensor) throw new Error(`${name} is not there`);
  return tensor;
};

/** The findings about a fixture after a change. */
async function findingsOf(fixture: string, alter: (contents: Contents) => void): Promise<FindingName[]> {
  const contents = await readContents(join(VECTORS, fixture));
  alter(contents);
  return (await reportOfContents(contents)).findings.map(({ name }) => name);
}

const f32 = (...values: number[]): Uint8Array => new Uint8Array(Float32Array.from(values).buffer);

describe.each([
  ["ct-nvfp4", `${Q}.weight_global_scale`],
  ["modelopt-nvfp4", `${Q}.weight_scale_2`],
  ["torchao-nvfp4", `${Q}._weight_per_tensor_scale`],
])("the global scale of %s", (fixture, name) => {
  it.each<[FindingName, Uint8Array, readonly number[]]>([
    ["scale-negative", f32(-1), []],
    ["scale-zero", f32(0), []],
    ["scale-not-finite", f32(Number.NaN), []],
    ["scale-not-finite", f32(-Infinity), []],
    ["scale-shape", f32(1, 1), [2]],
  ])("has %s", async (finding, bytes, shape) => {
    const findings = await findingsOf(fixture, (contents) => {
      contents.tensors.set(name, { dtype: "F32", shape, bytes });
    });
    expect(findings).toContain(finding);
  });
});

describe("no alarm is raised", () => {
  const QUIET: readonly (readonly [string, string, FindingName, (contents: Contents) => void])[] = [
    [
      "a configuration that names no format",
      "ct-nvfp4",
      "config-method",
      ({ json }) => {
        const claim = json.get("config.json")?.quantization_config as Record<string, unknown>;
        Object.assign(claim, { format: undefined, config_groups: {} });
      },
    ],
    [
      "a scale of activations of 1",
      "modelopt-fp8",
      "scale-one",
      (contents) => Object.assign(get(contents, `${Q}.input_scale`), { bytes: f32(1) }),
    ],
    [
      "few blocks of MX under 1",
      "ct-mxfp4",
      "scale-constant",
      (contents) => get(contents, `${Q}.weight_scale`).bytes.fill(127),
    ],
    [
      "codes of which most are NaN are not of e4m3fnuz",
      "ct-fp8-channel",
      "codes-fnuz",
      (contents) => get(contents, `${Q}.weight`).bytes.fill(0x7f),
    ],
  ];

  it.each(QUIET)("by %s", async (_, fixture, finding, alter) => {
    expect(await findingsOf(fixture, alter)).not.toContain(finding);
  });

  it("by metadata of torchao that are no JSON", async () => {
    const findings = await findingsOf("torchao-nvfp4", ({ metadata }) =>
      Object.assign(metadata, { [`${GATE}.weight`]: "{", "lm_head.weight": "[" }),
    );
    expect(findings).not.toContain("config-missing");
  });
});

it("many blocks of MX under 1 are constant, and companions of many elements are read", async () => {
  const constant = await findingsOf("ct-mxfp8", (contents) =>
    get(contents, `${GATE}.weight_scale`).bytes.fill(127),
  );
  expect(constant).toContain("scale-constant");
  const foundNames = await findingsOf("modelopt-fp8", (contents) => {
    const values = new Array<number>(64).fill(1);
    values[63] = Number.NaN;
    contents.tensors.set(`${Q}.pre_quant_scale`, { dtype: "F32", shape: [64], bytes: f32(...values) });
  });
  expect(foundNames).toContain("scale-not-finite");
});

describe("of a weight of NVFP4", () => {
  it("scales that fit their blocks as they lie are never said to be swizzled", async () => {
    const checkpoint = await openCheckpointFiles(join(VECTORS, "ct-nvfp4"));
    const [weight] = (await surveyFiles(checkpoint)).weights;
    if (!weight) throw new Error("there is a weight");
    const scales = await readScales(weight);
    const statistics = await statisticsOf(await Kernels.open(), weight, scales);
    await checkpoint.close();
    const correlationAt = (slope: number): Correlation => {
      const correlation = new Correlation();
      for (let i = 0; i < 400; i++) correlation.add(i % 20, -slope * (i % 20) + 10 * Math.sin(i * 1.7));
      return correlation;
    };
    let [numNamed, numQuiet] = [0, 0];
    for (let step = 0; step <= 40; step++)
      for (const oppositeSlope of [0, 0.3, 1, 3]) {
        const [correlation, oppositeCorrelation] = [correlationAt(step / 40), correlationAt(oppositeSlope)];
        const names = judgeStatistics(
          weight,
          { ...statistics, correlation, oppositeCorrelation },
          scales,
        ).map(({ name }) => name);
        const isNamed = names.includes("scales-swizzled");
        if (isNamed) numNamed++;
        else if (oppositeSlope === 3) numQuiet++;
        if (correlation.significance < -3) expect(isNamed).toBe(false);
      }
    expect(Math.min(numNamed, numQuiet)).toBeGreaterThan(0);
  });

  it("fused projections of which one shares its global scale differ, others vary", async () => {
    for (const [fixtures, name] of [
      [["ct-nvfp4", "modelopt-fp8"], "fused-scales-differ"],
      [["modelopt-fp8", "modelopt-fp8"], "fused-scales-vary"],
    ] as const) {
      const fusedScales = new FusedScales();
      for (const [i, fixture] of fixtures.entries()) {
        const checkpoint = await openCheckpointFiles(join(VECTORS, fixture));
        const weight = (await surveyFiles(checkpoint)).weights.find(
          (candidate) => candidate.name === `${Q}.weight`,
        );
        if (!weight) throw new Error("there is a weight");
        const values = Float32Array.of(1 + i);
        const scales = { ...(await readScales(weight)), values };
        fusedScales.add({ ...weight, name: `layer.${i === 0 ? "q" : "k"}_proj.weight` }, scales);
        await checkpoint.close();
      }
      expect(fusedScales.findings().map((finding) => finding.name)).toEqual([name]);
    }
  });
});

it.each(FIXTURES)("the bits of weights of %s equal the bits of their tensors", async (fixture) => {
  const path = join(VECTORS, fixture);
  const { weights, elements, bitsPerWeight } = await reportOf(path);
  const checkpoint = await openCheckpointFiles(path);
  for (const { name, codes, scale, global } of (await surveyFiles(checkpoint)).weights) {
    const sources = [codes, scale, ...(global ? [global] : [])];
    const bytes = sources.reduce((sum, { entry }) => sum + entry.end - entry.begin, 0);
    const report = weights.find((candidate) => candidate.name === name);
    const count = report?.shape.reduce((product, size) => product * size, 1) ?? 0;
    expect((report?.bits ?? 0) * count).toBeCloseTo(8 * bytes, 6);
  }
  const numBytes = [...checkpoint.tensors.values()].reduce(
    (sum, { entry }) => sum + entry.end - entry.begin,
    0,
  );
  expect(bitsPerWeight * elements).toBeCloseTo(8 * numBytes, 6);
  await checkpoint.close();
});

it("a pattern of names is the regular expression that it stands for", () => {
  const pattern = fc
    .array(fc.constantFrom("a", "b", ".", "*", "?"), { maxLength: 8 })
    .map((characters) => characters.join(""));
  const name = fc
    .array(fc.constantFrom("a", "b", "."), { maxLength: 8 })
    .map((characters) => characters.join(""));
  fc.assert(
    fc.property(pattern, name, (glob, text) => {
      const source = [...glob]
        .map((character) => ({ "*": ".*", "?": ".", ".": "\\." })[character] ?? character)
        .join("");
      expect(matchesGlob(glob, text)).toBe(new RegExp(`^${source}$`).test(text));
      expect(isGlob(glob)).toBe(/[*?]/.test(glob));
    }),
    { numRuns: draws(2000) },
  );
});
