/** `lockstep info`: prints the version and the available backends. */
import { availableParallelism } from "node:os";
import { cudaDevices, missingBackends } from "../../backends/open.js";
import { defineCommand } from "../command.js";
import { VERSION } from "../manifest.js";

export const info = defineCommand({
  name: "info",
  summary: "prints the version, the available backends, the reasons why others are missing, threads and SIMD",
  example: "--json",
  inputs: [],
  options: {},
  async run({ session }) {
    const backend = await session.backend();
    const missing = missingBackends();
    const gpus = cudaDevices();
    const { name, description, threads, datapath } = backend;
    const simd = name === "wasm" ? { simd: "simd128" } : {};
    const cpu = { name: "cpu", parallelism: availableParallelism() };
    const report = {
      version: VERSION,
      node: process.version,
      platform: `${process.platform}-${process.arch}`,
      backends: [{ name, description, threads, datapath, ...simd }],
      missing,
      devices: [cpu, ...gpus],
    };
    session.result(report, [
      `lockstep ${VERSION} on node ${process.version}, ${report.platform}`,
      `backend ${name}: ${description}; GEMM datapath ${datapath} unless told otherwise`,
      ...missing.flatMap(({ name, reason, attempts }) => [
        `no ${name}: ${reason}`,
        ...attempts.map((attempt) => `  tried ${attempt}`),
      ]),
      `device cpu: ${cpu.parallelism} threads available`,
      ...gpus.flatMap((gpu, i) => [
        `device cuda ${i}: ${gpu.name}, sm_${gpu.major}${gpu.minor}, ${gpu.multiprocessors} multiprocessors, ${(gpu.bytes / 2 ** 30).toFixed(0)} GiB`,
        ...(gpu.fault === undefined ? [] : [`  cannot be opened: ${gpu.fault}`]),
        `  GEMM datapath ${gpu.datapath}, ${gpu.unverified === undefined ? "measured to the bit" : `unverified: ${gpu.unverified}`}`,
        ...(gpu.emulates.length > 0
          ? [`  as bf16, for want of an instruction: ${gpu.emulates.join(", ")}`]
          : []),
      ]),
    ]);
    return 0;
  },
});
