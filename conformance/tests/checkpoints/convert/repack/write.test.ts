/**
 * Copied codes are judged while they are read: an error stops a conversion that copies codes as it stops one that writes nothing.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { useWorkspace } from "../../../harness/cli.js";
import { errorsIn, readContents, reportOf, VECTORS, writeContents } from "../../files/checkpoints.js";

const w = useWorkspace();

/** Fixtures, a target that has the same codes, a finding, and the byte that fills a kind of tensor to cause it. */
const CASES = [
  ["ct-nvfp4", "modelopt-nvfp4", "scale-zero", ".weight_scale", 0],
  ["ct-nvfp4", "torchao-nvfp4-two-level", "scale-zero", ".weight_scale", 0],
  ["modelopt-nvfp4", "ct-nvfp4", "scale-zero", ".weight_scale", 0],
  ["ct-nvfp4", "modelopt-nvfp4", "scale-constant", ".weight_scale", 0x70],
  ["ct-mxfp4", "deepseek-mxfp4", "scale-zero", ".weight_scale", 0],
  ["ct-mxfp8", "modelopt-mxfp8", "codes-nan", ".weight", 0x7f],
  ["ct-fp8-channel", "torchao-fp8-row", "codes-nan", ".weight", 0x7f],
] as const;

describe.each(CASES)("%s to %s, with %s", (fixture, target, finding, suffix, byte) => {
  it.each([1, 2])("in %i of its weights: is refused with all errors, and leaves nothing", async (count) => {
    const conversions = JSON.parse(
      await w.succeed("convert", join(VECTORS, fixture), "-o", "@out", "--to", target, "--dry-run", "--json"),
    ).ways;
    expect(new Set(Object.values(conversions))).toEqual(new Set(["carried"]));
    const contents = await readContents(join(VECTORS, fixture));
    const weights = (await reportOf(join(VECTORS, fixture))).weights.map(({ name }) => name);
    const tensors = new Map(contents.tensors);
    // the last tensors, so that other weights are copied first
    for (const name of weights.slice(-count)) {
      const [part, tensor] =
        [...tensors].find(([tensorName]) => tensorName === name.replace(/\.weight$/, "") + suffix) ?? [];
      if (part === undefined || tensor === undefined) throw new Error(`${name} has no ${suffix}`);
      tensors.set(part, { ...tensor, bytes: tensor.bytes.map(() => byte) });
    }
    mkdirSync(w.path("in"));
    await writeContents(w.path("in"), { ...contents, tensors });
    const errors = errorsIn((await reportOf(w.path("in"))).findings);
    expect(errors.map(({ name }) => name)).toEqual(Array.from({ length: count }, () => finding));
    const planRun = await w.run("convert", "@in", "-o", "@out", "--to", target, "--dry-run");
    const writeRun = await w.run("convert", "@in", "-o", "@out", "--to", target);
    expect(writeRun).toEqual(planRun);
    expect(writeRun.status).toBe(2);
    expect(writeRun.stderr).toContain(`${finding}: ${weights.at(-count)}`);
    expect(writeRun.stderr.includes("(and 1 more, which lockstep verify lists)")).toBe(count === 2);
    expect(w.names).toEqual(["in"]);
  });
});
