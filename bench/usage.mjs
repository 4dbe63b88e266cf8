// Preloaded by node --import: writes the CPU seconds and the peak resident bytes of the process to the descriptor 3 at its end.
import { writeSync } from "node:fs";
import { isMainThread } from "node:worker_threads";

if (isMainThread)
  process.on("exit", () => {
    const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage();
    writeSync(
      3,
      JSON.stringify({
        cpu: (userCPUTime + systemCPUTime) / 1e6,
        system: systemCPUTime / 1e6,
        peak: maxRSS * 1024,
      }),
    );
  });
