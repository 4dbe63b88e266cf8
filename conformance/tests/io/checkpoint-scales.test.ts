/** A checkpoint has the scales of FP8 attention beside those of linear products, and each has its number of tensors. */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import { FileError } from "../../../src/errors.js";
import { loadCheckpoint, saveCheckpoint } from "../../../src/io/index.js";
import { SafetensorsFile } from "../../../src/io/safetensors.js";
import { MultiheadAttention } from "../../../src/modules/multihead-attention.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { DelayedScaling } from "../../../src/recipes/per-tensor.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import { useBackend } from "../harness/suite.js";
import { waves } from "../modules/attention/drawn.js";
import { useFolder } from "./folder.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
let path = "";
useFolder((folder) => {
  path = join(folder, "run.safetensors");
});

const makeRun = (heads = 2) => {
  const random = new RandomState(2n);
  return { module: new MultiheadAttention(backend(), 32, heads, { attentionDropout: 0.1, random }), random };
};

/** Trains for a step and returns the bits of its result and of the gradients. */
function step({ module }: ReturnType<typeof makeRun>, seed: number): string {
  using _ = new Scope();
  const x = new Variable(waves(backend(), seed, [8, 2, 32]), true);
  const recipe = new DelayedScaling({ fp8Mha: true, amaxHistoryLen: 3 });
  const out = autocast({ recipe }, () => module.forward(x));
  out.backward(waves(backend(), seed + 50, out.shape));
  const leaves = [x, ...module.parameters()];
  const bits = [out.tensor, ...leaves.map(({ grad }) => grad)]
    .map((scaleTensor) => String(scaleTensor?.dataSync()))
    .join("\n");
  for (const leaf of leaves) leaf.zeroGrad();
  return bits;
}

describe("a checkpoint of FP8 attention", () => {
  it("continues with the bits of a run that was not interrupted", async () => {
    const uninterruptedRun = makeRun();
    step(uninterruptedRun, 1);
    step(uninterruptedRun, 2);
    await saveCheckpoint(path, uninterruptedRun);
    const file = await SafetensorsFile.open(path);
    const shapeOf = (pass: string, field: string) =>
      file.tensors.get(`quantization.coreAttention.attention.${pass}.${field}`)?.shape;
    for (const pass of ["forward", "backward"]) {
      expect(shapeOf(pass, "scale")).toEqual([3]);
      expect(shapeOf(pass, "amaxHistory")).toEqual([3, 3]);
    }
    await file.close();
    const resumedRun = makeRun();
    await loadCheckpoint(path, resumedRun);
    for (const seed of [3, 4]) expect(step(resumedRun, seed)).toBe(step(uninterruptedRun, seed));
    for (const { module } of [uninterruptedRun, resumedRun]) module.dispose();
  });

  it("is refused if a state has the number of tensors of a linear product", async () => {
    const run = makeRun();
    step(run, 1);
    const states = run.module.namedQuantizations();
    const linear = states.get("proj.linear")?.snapshotSync();
    const attention = states.get("coreAttention.attention");
    if (!attention) throw new Error("the module has no state of attention");
    const { slots } = attention;
    Object.assign(attention, { slots: undefined, snapshotSync: () => linear });
    await saveCheckpoint(path, run);
    Object.assign(attention, { slots });
    const otherRun = makeRun();
    await expect(loadCheckpoint(path, otherRun)).rejects.toThrow(FileError);
    for (const { module } of [run, otherRun]) module.dispose();
  });
});
