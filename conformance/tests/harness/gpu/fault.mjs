// Opens two backends and a device, makes a kernel fail on the device, and prints the result of the next call of each.
import { encode, openBackend, tensor } from "lockstep";
import { platform } from "../../../../dist/src/backends/platform/node.js";

const { exports: addon } = platform.loadAddon();
const describeOutcome = async (body) => {
  try {
    return String(await body());
  } catch (error) {
    return `${error.code}: ${error.message}`;
  }
};
const codes = (backend) =>
  describeOutcome(() => encode(tensor(backend, [1, -2]), { format: "e4m3" }).dataSync());
const [cuda, wasm] = [await openBackend("cuda"), await openBackend("wasm")];
const device = new addon.Device(0);
const codesBefore = await codes(cuda);
addon.fault(device);
const firstError = await describeOutcome(() => addon.synchronize(device));
const secondError = await describeOutcome(() => addon.allocate(device, 16));
const { live } = addon.memory(device);
const answers = [await codes(cuda), await codes(cuda), await describeOutcome(() => openBackend("cuda"))];
addon.close(device);
await cuda.dispose();
console.log(
  JSON.stringify({
    before: codesBefore,
    first: firstError,
    again: secondError,
    live,
    answers,
    wasm: await codes(wasm),
  }),
);
await wasm.dispose();
