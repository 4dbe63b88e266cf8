/** Runs the kernel and the command of docs/kernels.md as written. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";

const root = new URL("../../../", import.meta.url).pathname;
const program = join(root, "dist/src/cli/bin.js");
const page = readFileSync(join(root, "docs/kernels.md"), "utf8");
const blockOf = (language: string): string =>
  new RegExp(`\`\`\`${language}\n([\\s\\S]*?)\`\`\``).exec(page)?.[1] ?? "";
const numpy = spawnSync("python3", ["-c", "import numpy"], { encoding: "utf8" });
const missing = !existsSync(program)
  ? "not built: npm run build makes dist"
  : numpy.status === 0
    ? ""
    : `python3 with numpy is not here: ${numpy.stderr}`;

describe.skipIf(missing !== "")(`docs/kernels.md ${missing}`, () => {
  const folder = mkdtempSync(join(tmpdir(), "lockstep-page-"));
  symlinkSync(join(root, "examples"), join(folder, "examples"));
  afterAll(() => rmSync(folder, { recursive: true }));

  const run = (kernel: string, command: string) => {
    writeFileSync(join(folder, "kernel.py"), kernel);
    const localCommand = command.replace("npx lockstep", `"${process.execPath}" "${program}"`);
    return spawnSync("bash", ["-c", localCommand], { cwd: folder, encoding: "utf8" });
  };

  it("has a kernel of less than 20 lines, whose mistake is found, named, explained and written", () => {
    const kernel = blockOf("python");
    expect(kernel.trim().split("\n").length).toBeLessThan(24);
    const { status, stdout, stderr } = run(kernel, blockOf("sh"));
    expect({ status, stderr }).toEqual({ status: 1, stderr: "" });
    const shown = /```\n(FAILS[\s\S]*?)```/.exec(page)?.[1]?.trim().split("\n") ?? [];
    expect(shown.length).toBe(2);
    const lines = stdout.split("\n");
    for (const [i, line] of shown.entries()) expect(lines[i]?.startsWith(line), lines[i]).toBe(true);
    expect(stdout).toMatch(/x = f32 \[1, 32\]/);
    expect(stdout).toMatch(/e8m0 of p, rounded up/);
    const again = /again by: lockstep (.*)/.exec(stdout)?.[1] ?? "";
    const repeated = run(kernel, `PYTHONPATH=examples/subjects npx lockstep ${again}`);
    expect(repeated.status).toBe(1);
    const right = kernel.replace("e8m0Up", "e8m0Floor");
    const { status: held, stdout: output } = run(right, blockOf("sh"));
    expect({ held, said: output }).toMatchObject({
      held: 0,
      said: expect.stringMatching(/1 of 1 laws hold/),
    });
  }, 180_000);
});
