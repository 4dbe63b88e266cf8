/** Runs the commands of docs/test-my-kernel.md as written and compares their output. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";

const root = new URL("../../../", import.meta.url).pathname;
const program = join(root, "dist/src/cli/bin.js");
const page = readFileSync(join(root, "docs/test-my-kernel.md"), "utf8");
const numpy = spawnSync("python3", ["-c", "import numpy"], { encoding: "utf8" });
const missingReason = !existsSync(program)
  ? "not built: npm run build makes dist"
  : numpy.status === 0
    ? ""
    : `python3 with numpy is not here: ${numpy.stderr}`;

describe.skipIf(missingReason !== "")(`docs/test-my-kernel.md ${missingReason}`, () => {
  const folder = mkdtempSync(join(tmpdir(), "lockstep-page-"));
  symlinkSync(join(root, "examples"), join(folder, "examples"));
  afterAll(() => rmSync(folder, { recursive: true }));

  /** Runs the commands of a block in the folder. */
  const run = (commands: string) => {
    const local = commands.replaceAll("npx lockstep", `"${process.execPath}" "${program}"`);
    return spawnSync("bash", ["-c", local], { cwd: folder, encoding: "utf8" });
  };
  const section = page.slice(page.indexOf("## As a program"));
  const blocks = Array.from(
    section.matchAll(/```sh\n([\s\S]*?)```\n[\s\S]*?```\n([\s\S]*?)```/g),
    ([, commands = "", output = ""]) => ({ commands, output }),
  );

  it("shows what its commands print, for a right and for a wrong kernel", () => {
    expect(blocks.length).toBe(2);
    for (const [status, { commands, output }] of blocks.entries()) {
      const result = run(commands);
      expect({ status: result.status, stdout: result.stdout }).toEqual({ status, stdout: output });
    }
    const command = /again by: (lockstep .*)/.exec(blocks[1]?.output ?? "")?.[1] ?? "";
    expect(run(`npx ${command}`).status).toBe(1);
  }, 300_000);
});
