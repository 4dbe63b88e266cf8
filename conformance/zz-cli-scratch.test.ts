import { it } from "vitest";
import { runCli } from "../src/cli/main.js";
it("x", async () => {
  const lines = (process.env.CLI ?? "").split("\n").filter(Boolean);
  for (const line of lines) {
    const t = Date.now();
    const status = await runCli(line.split(" "), { stdout: process.stdout, stderr: process.stderr });
    process.stdout.write(`[${line.slice(0, 60)}] -> ${status} in ${Date.now() - t} ms\n`);
  }
}, 600000);
