/** `lockstep info`: what is here. */
import { availableParallelism } from "node:os";
import { missingBackends } from "../backends/open.js";
import { defineCommand } from "./command.js";
import { VERSION } from "./version.js";

export const info = defineCommand({
  name: "info",
  summary: "prints the version, the backends, why others are missing, threads and SIMD",
  inputs: [],
  options: {},
  async run({ session }) {
    const backend = await session.backend();
    const missing = missingBackends();
    const { name, description, threads, datapath } = backend;
    const report = {
      version: VERSION,
      node: process.version,
      platform: `${process.platform}-${process.arch}`,
      backends: [{ name, description, threads, datapath, simd: "simd128" }],
      missing,
      devices: [{ name: "cpu", parallelism: availableParallelism() }],
    };
    session.result(report, [
      `lockstep ${VERSION} on node ${process.version}, ${report.platform}`,
      `backend ${name}: ${description}; GEMM datapath ${datapath} unless told otherwise`,
      ...missing.map((backend) => `no ${backend.name}: ${backend.reason}`),
      `device cpu: ${availableParallelism()} threads available`,
    ]);
    return 0;
  },
});
