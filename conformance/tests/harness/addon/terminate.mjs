// Terminates worker threads while they use the addon; prints a line when all have ended.
import { createRequire } from "node:module";
import { Worker } from "node:worker_threads";

const path = process.env.LOCKSTEP_ADDON;
const addon = createRequire(import.meta.url)(path);
const body = `
  const { parentPort, workerData } = require("node:worker_threads");
  const addon = require(${JSON.stringify(path)});
  const device = new addon.Device(0);
  const at = addon.allocate(device, 2 ** 25);
  const small = addon.allocate(device, 64);
  addon.write(device, at, new Uint8Array(2 ** 25).fill(7));
  for (const bytes of [64, 2 ** 20, 2 ** 25]) for (let i = 0; i < 3; i++) addon.read(device, at, bytes).catch(() => {});
  parentPort.postMessage("reading");
  const { way } = workerData;
  if (way === "throws") throw new Error("on its own");
  if (way === "exits") process.exit(3);
  if (way === "closes") { addon.read(device, at, 2 ** 25); addon.close(device); }
  if (way === "loops") for (;;) addon.readSync(device, small, 64);
  if (way === "fails") for (;;) try { addon.allocate(device, NaN); } catch {}
  if (way === "awaits") (async () => { for (;;) await addon.read(device, at, 2 ** 24); })();
`;

async function endWorker(mode) {
  const worker = new Worker(body, { eval: true, workerData: { way: mode } });
  worker.on("error", () => {});
  const exit = new Promise((resolve) => worker.once("exit", resolve));
  await Promise.race([new Promise((resolve) => worker.once("message", resolve)), exit]);
  await new Promise((resolve) => setTimeout(resolve, Math.random() * 20));
  await worker.terminate();
  await exit;
}

const MODES = ["throws", "exits", "closes", "loops", "fails", "awaits"];
for (let repetition = 0; repetition < 2; repetition++) await Promise.all(MODES.map(endWorker));
const device = new addon.Device(0);
const address = addon.allocate(device, 2 ** 24);
addon.write(device, address, new Uint8Array(2 ** 24).fill(9));
const bytes = await addon.read(device, address, 2 ** 24);
console.log(`all gone; ${bytes[0]} ${bytes.at(-1)}`);
// this thread also ends with pending reads
addon.read(device, address, 2 ** 24);
process.exit(0);
