// Opens two backends and a device, makes a kernel fail on the device, and prints the result of the next call of each.
import { encode, openBackend, tensor } from "lockstep";
import { platform } from "../../../../dist/src/backends/platform/node.js";

const { exports: addon } = platform.loadAddon();
const outcomeOf = async (body) => {
  try {
    return String(await body());
  } catch (error) {
    return `${error.code}: ${error.message}`;
  }
};
const codes = (backend) => outcomeOf(() => encode(tensor(backend, [1, -2]), { format: "e4m3" }).dataSync());
const [other, wasm] = [await openBackend("cuda"), await openBackend("wasm")];
const device = new addon.Device(0);
const before = await codes(other);
addon.fault(device);
const first = await outcomeOf(() => addon.synchronize(device));
const again = await outcomeOf(() => addon.allocate(device, 16));
const { live } = addon.memory(device);
const answers = [await codes(other), await codes(other), await outcomeOf(() => openBackend("cuda"))];
addon.close(device);
await other.dispose();
console.log(JSON.stringify({ before, first, again, live, answers, wasm: await codes(wasm) }));
await wasm.dispose();
