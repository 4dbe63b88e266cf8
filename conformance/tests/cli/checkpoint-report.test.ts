/** With --json, commands on checkpoints print JSON whatever the outcome. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { share } from "../arbitraries/share.js";
import { GGUF, VECTORS } from "../checkpoints/files/checkpoints.js";
import { useWorkspace } from "../harness/cli.js";
import { draws } from "../harness/draws.js";

const w = useWorkspace();
const FILES = [join(GGUF, "gguf-model.gguf"), join(VECTORS, "modelopt-nvfp4", "model.safetensors")];
const COMMANDS = [["verify"], ["inspect"], ["convert", "-o", "@out", "--to", "f32"]] as const;

it("a file that is cut off gives JSON with the error, or with findings", async () => {
  const cutFiles = fc.record({
    file: fc.constantFrom(...FILES),
    command: fc.constantFrom(...COMMANDS),
    kept: share.map((fraction) => 0.9 * fraction),
  });
  await fc.assert(
    fc.asyncProperty(cutFiles, async ({ file, command: [name, ...options], kept }) => {
      const bytes = readFileSync(file);
      const path = w.path(file.endsWith(".gguf") ? "cut.gguf" : "cut.safetensors");
      writeFileSync(path, bytes.subarray(0, Math.floor(kept * bytes.length)));
      const { status, stdout, stderr } = await w.run(name, path, ...options, "--json");
      const report = JSON.parse(stdout);
      expect(status).toBe(2);
      expect(report).toMatchObject({ path, ok: false, error: { code: "FILE" } });
      expect(stderr).toContain(report.error.message.slice(0, 20));
    }),
    { numRuns: draws(12) },
  );
});

it("so does a path that leads nowhere", async () => {
  for (const [name, ...options] of COMMANDS) {
    const { status, stdout } = await w.run(name, "@none", ...options, "--json");
    expect([name, status, stdout]).toEqual([name, 2, expect.stringContaining('"ok":false')]);
  }
});
