import { it } from "vitest";
import { openBackend } from "../src/backends/open.js";
import { LAWS } from "./harness/laws.js";
import { backendSubject, ORACLE } from "./harness/operations.js";
it("times", async () => {
  const b = await openBackend("wasm", { threads: 2 });
  const s = backendSubject(b);
  for (const l of LAWS) {
    const t = performance.now();
    const r = await l.check(s, ORACLE, { runs: 150, seed: 7 });
    console.log(l.name, (performance.now() - t).toFixed(0), r.runs, JSON.stringify(r.declined), r.failure ? JSON.stringify(r.failure).slice(0, 1500) : "ok");
  }
  await b.dispose();
});
