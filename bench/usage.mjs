// Preloaded by node --import: at its end, the process writes its CPU seconds and peak resident bytes to file descriptor 3.
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
