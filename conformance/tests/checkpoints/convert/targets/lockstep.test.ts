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
  const own = Object.entries(metadata).filter(([key]) => key.startsWith("lockstep."));
  return Object.fromEntries(
    own.map(([key, text]) => {
      const { backend: _, version: __, ...recipe } = JSON.parse(text);
      return [key, recipe];
    }),
  );
}

function expectSame({ tensors }: Contents, theirs: Readonly<Record<string, { bytes: Uint8Array }>>): void {
  expect([...tensors.keys()].toSorted()).toEqual(Object.keys(theirs).toSorted());
  for (const [name, { bytes }] of Object.entries(theirs))
    expect([name, Buffer.compare(tensors.get(name)?.bytes ?? new Uint8Array(), bytes)]).toEqual([name, 0]);
}

it("every quantizer that makes its own scales is a form", () => {
  expect([...LOCKSTEP_TARGETS.values()].every((name) => blockFormat(name).scaleSource !== "given")).toBe(
    true,
  );
  expect([...LOCKSTEP_TARGETS.keys()]).toEqual(expect.arrayContaining(["lockstep-mxfp8", "lockstep-nvfp4"]));
  expect(LOCKSTEP_TARGETS.has("lockstep-fp8-delayed")).toBe(false);
});

describe.each(sampleCases([...LOCKSTEP_TARGETS], 4))("%s", (to, quantizer) => {
  it("has the tensors that quantize writes, and its values are those of dequantize", async () => {
    const input = join(ORIGINAL, "model.safetensors");
    await w.succeed("quantize", input, "-o", "@q.safetensors", "--quantizer", quantizer, "--tensors", LINEAR);
    const said = JSON.parse(await w.succeed("convert", ORIGINAL, "-o", "@out", "--to", to, "--json"));
    const [theirs, actual] = [await w.read("q.safetensors"), await readContents(w.path("out"))];
    expectSame(actual, theirs.tensors);
    expect(recipesIn(actual.metadata)).toEqual(recipesIn(theirs.metadata));

    const report = await reportOf(w.path("out"));
    expect([errorsIn(report.findings), Object.keys(report.lockstepWeights).toSorted()]).toEqual([
      [],
      said.converted.toSorted(),
    ]);
    expect(Object.values(report.lockstepWeights).map((each) => each.quantizer)).toEqual(
      Array(7).fill(quantizer),
    );
    expect(await w.succeed("inspect", "@out")).toMatch(
      new RegExp(`quantized by lockstep: .*, ${quantizer}, `),
    );

    await w.succeed("dequantize", "@q.safetensors", "-o", "@wide.safetensors");
    await w.succeed("convert", "@out", "-o", "@wide", "--to", "f32");
    const [expected, wide] = [await w.read("wide.safetensors"), await readContents(w.path("wide"))];
    expectSame(wide, expected.tensors);
    expect(recipesIn(wide.metadata)).toEqual({});

    const original = await readContents(ORIGINAL);
    for (const { name, changed, elements } of said.changes) {
      const held = original.tensors.get(name)?.bytes ?? new Uint8Array();
      const halves = new Uint16Array(held.buffer, held.byteOffset, held.length / 2);
      const before = new Float32Array(Uint32Array.from(halves, (half) => half << 16).buffer);
      const bytes = wide.tensors.get(name)?.bytes ?? new Uint8Array();
      const after = new Float32Array(bytes.slice().buffer);
      expect(elements).toBe(before.length);
      expect([name, changed]).toEqual([name, before.filter((value, i) => value !== after[i]).length]);
    }
  });

  it("becomes forms of other libraries, and theirs become it", async () => {
    await convertTo(backend(), ORIGINAL, w.path("own"), to);
    const salt = [...LOCKSTEP_TARGETS.keys()].indexOf(to);
    for (const other of sampleCases(["ct-mxfp8", "modelopt-fp8", "gguf-mxfp4"], 1, salt)) {
      const { plan } = await convertTo(backend(), w.path("own"), w.path(`${other}-there`), other);
      expect([...plan.converted.values()]).toEqual(Array(7).fill("quantized"));
      const there = await reportOf(w.path(`${other}-there`));
      expect([errorsIn(there.findings), there.weights.length, Object.keys(there.lockstepWeights)]).toEqual([
        [],
        7,
        [],
      ]);
      expect(there.tensors).toBe(other === "gguf-mxfp4" ? 12 : 19);
      const { changes } = await convertTo(backend(), w.path(`${other}-there`), w.path(`${other}-back`), to);
      const back = await reportOf(w.path(`${other}-back`));
      expect([errorsIn(back.findings), Object.keys(back.lockstepWeights).length, changes.length]).toEqual([
        [],
        7,
        7,
      ]);
    }
  });
});

it("a part is dequantized alone, and the rest keeps its recipes", async () => {
  await convertTo(backend(), ORIGINAL, w.path("in"), "lockstep-nvfp4");
  await convertTo(backend(), w.path("in"), w.path("half"), "bf16", ["*mlp*"]);
  const report = await reportOf(w.path("half"));
  expect(errorsIn(report.findings)).toEqual([]);
  expect(Object.keys(report.lockstepWeights)).toHaveLength(4);
  expect(Object.keys(report.lockstepWeights).every((name) => name.includes("self_attn"))).toBe(true);
  const refused = convertTo(backend(), w.path("in"), w.path("no"), "ct-mxfp8", ["*mlp*"]);
  await expect(refused).rejects.toThrow(/is quantized already \(lockstep\)/);
});

it("weights of both kinds in one file are converted together", async () => {
  await convertTo(backend(), ORIGINAL, w.path("own"), "lockstep-mxfp8");
  expect((await valuesIn(w.path("own"))).size).toBe(0);
  await convertTo(backend(), w.path("own"), w.path("there"), "lockstep-mxfp4");
  expect(Object.values((await reportOf(w.path("there"))).lockstepWeights)[0]).toMatchObject({
    quantizer: "mxfp4",
  });
});
