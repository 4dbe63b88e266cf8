/** The output of `lockstep quantize` is a source of every conversion, and a target of conversions of weights. */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { LOCKSTEP_TARGETS } from "../../../../../src/checkpoints/convert/targets/lockstep.js";
import { blockFormat } from "../../../../../src/formats/block.js";
import { useWorkspace } from "../../../harness/cli.js";
import { sampleCases } from "../../../harness/draws.js";
import { useBackend } from "../../../harness/suite.js";
import {
  type Contents,
  convertTo,
  errorsIn,
  readContents,
  reportOf,
  VECTORS,
  valuesIn,
} from "../../files/checkpoints.js";

const w = useWorkspace();
const backend = useBackend({ threads: 1, datapath: "hopper" });
const ORIGINAL = join(VECTORS, "original");
const LINEAR = "*_proj.weight";

/** The recipes of a file, without the name of the program that wrote it. */
function recipesIn(metadata: Readonly<Record<string, string>>): Record<string, unknown> {
  const ownMetadata = Object.entries(metadata).filter(([key]) => key.startsWith("lockstep."));
  return Object.fromEntries(
    ownMetadata.map(([key, text]) => {
      const { backend: _, version: __, ...recipe } = JSON.parse(text);
      return [key, recipe];
    }),
  );
}

function expectSame({ tensors }: Contents, expected: Readonly<Record<string, { bytes: Uint8Array }>>): void {
  expect([...tensors.keys()].toSorted()).toEqual(Object.keys(expected).toSorted());
  for (const [name, { bytes }] of Object.entries(expected))
    expect([name, Buffer.compare(tensors.get(name)?.bytes ?? new Uint8Array(), bytes)]).toEqual([name, 0]);
}

it("every quantizer that makes its own scales is a form", () => {
  expect([...LOCKSTEP_TARGETS.values()].every((name) => blockFormat(name).scaleSource !== "given")).toBe(
    true,
  );
  expect([...LOCKSTEP_TARGETS.keys()]).toEqual(expect.arrayContaining(["lockstep-mxfp8", "lockstep-nvfp4"]));
  expect(LOCKSTEP_TARGETS.has("lockstep-fp8-delayed")).toBe(false);
});

describe.each(sampleCases([...LOCKSTEP_TARGETS], 4))("%s", (target, quantizer) => {
  it("has the tensors that quantize writes, and the values that dequantize computes", async () => {
    const input = join(ORIGINAL, "model.safetensors");
    await w.succeed("quantize", input, "-o", "@q.safetensors", "--quantizer", quantizer, "--tensors", LINEAR);
    const jsonReport = JSON.parse(
      await w.succeed("convert", ORIGINAL, "-o", "@out", "--to", target, "--json"),
    );
    const [expectedTensors, actual] = [await w.read("q.safetensors"), await readContents(w.path("out"))];
    expectSame(actual, expectedTensors.tensors);
    expect(recipesIn(actual.metadata)).toEqual(recipesIn(expectedTensors.metadata));

    const report = await reportOf(w.path("out"));
    expect([errorsIn(report.findings), Object.keys(report.lockstepWeights).toSorted()]).toEqual([
      [],
      jsonReport.converted.toSorted(),
    ]);
    expect(Object.values(report.lockstepWeights).map((weight) => weight.quantizer)).toEqual(
      Array(7).fill(quantizer),
    );
    expect(await w.succeed("inspect", "@out")).toMatch(
      new RegExp(`quantized by lockstep: .*, ${quantizer}, `),
    );

    await w.succeed("dequantize", "@q.safetensors", "-o", "@wide.safetensors");
    await w.succeed("convert", "@out", "-o", "@wide", "--to", "f32");
    const [expected, wideTensors] = [await w.read("wide.safetensors"), await readContents(w.path("wide"))];
    expectSame(wideTensors, expected.tensors);
    expect(recipesIn(wideTensors.metadata)).toEqual({});

    const original = await readContents(ORIGINAL);
    for (const { name, changed: numChanged, elements } of jsonReport.changes) {
      const bf16Bytes = original.tensors.get(name)?.bytes ?? new Uint8Array();
      const halves = new Uint16Array(bf16Bytes.buffer, bf16Bytes.byteOffset, bf16Bytes.length / 2);
      const originalValues = new Float32Array(Uint32Array.from(halves, (half) => half << 16).buffer);
      const bytes = wideTensors.tensors.get(name)?.bytes ?? new Uint8Array();
      const converted = new Float32Array(bytes.slice().buffer);
      expect(elements).toBe(originalValues.length);
      expect([name, numChanged]).toEqual([
        name,
        originalValues.filter((value, i) => value !== converted[i]).length,
      ]);
    }
  });

  it("becomes forms of other libraries, and theirs become it", async () => {
    await convertTo(backend(), ORIGINAL, w.path("own"), target);
    const salt = [...LOCKSTEP_TARGETS.keys()].indexOf(target);
    for (const otherTarget of sampleCases(["ct-mxfp8", "modelopt-fp8", "gguf-mxfp4"], 1, salt)) {
      const { plan } = await convertTo(backend(), w.path("own"), w.path(`${otherTarget}-there`), otherTarget);
      expect([...plan.converted.values()]).toEqual(Array(7).fill("quantized"));
      const report = await reportOf(w.path(`${otherTarget}-there`));
      expect([errorsIn(report.findings), report.weights.length, Object.keys(report.lockstepWeights)]).toEqual(
        [[], 7, []],
      );
      expect(report.tensors).toBe(otherTarget === "gguf-mxfp4" ? 12 : 19);
      const { changes } = await convertTo(
        backend(),
        w.path(`${otherTarget}-there`),
        w.path(`${otherTarget}-back`),
        target,
      );
      const back = await reportOf(w.path(`${otherTarget}-back`));
      expect([errorsIn(back.findings), Object.keys(back.lockstepWeights).length, changes.length]).toEqual([
        [],
        7,
        7,
      ]);
    }
  });
});

it("some layers can be dequantized, and the other layers keep their recipes", async () => {
  await convertTo(backend(), ORIGINAL, w.path("in"), "lockstep-nvfp4");
  await convertTo(backend(), w.path("in"), w.path("half"), "bf16", ["*mlp*"]);
  const report = await reportOf(w.path("half"));
  expect(errorsIn(report.findings)).toEqual([]);
  expect(Object.keys(report.lockstepWeights)).toHaveLength(4);
  expect(Object.keys(report.lockstepWeights).every((name) => name.includes("self_attn"))).toBe(true);
  const conversion = convertTo(backend(), w.path("in"), w.path("no"), "ct-mxfp8", ["*mlp*"]);
  await expect(conversion).rejects.toThrow(/is quantized already \(lockstep\)/);
});

it("weights of both kinds in one file are converted together", async () => {
  await convertTo(backend(), ORIGINAL, w.path("own"), "lockstep-mxfp8");
  expect((await valuesIn(w.path("own"))).size).toBe(0);
  await convertTo(backend(), w.path("own"), w.path("there"), "lockstep-mxfp4");
  expect(Object.values((await reportOf(w.path("there"))).lockstepWeights)[0]).toMatchObject({
    quantizer: "mxfp4",
  });
});
