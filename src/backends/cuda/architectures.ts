/**
 * Checks whether the kernels of an addon were compiled for a GPU. Architectures are in the notation of CMake's
 * CUDA_ARCHITECTURES.
 */
import type { DeviceFacts } from "./addon.js";

/** The lowest compute capability with FP8, 8.9, as 10 * major + minor. */
const OLDEST = 89;

/**
 * An entry of the list. "89-real" is machine code, "89-virtual" is code that the driver compiles for later GPUs, "89" is both.
 * The suffix a limits code to one compute capability, and f to its family.
 */
const ENTRY = /^(\d{2,3})([af]?)(-real|-virtual)?$/;

type Capability = Pick<DeviceFacts, "major" | "minor">;

/** Whether a GPU runs the code of an entry. An entry of unknown notation counts as running. */
function runs(entry: string, { major, minor }: Capability): boolean {
  const [, number, suffix, kind] = ENTRY.exec(entry) ?? [];
  if (number === undefined) return true;
  const [capability, compiled] = [10 * major + minor, Number(number)];
  if (suffix === "a") return capability === compiled;
  const isFamily = major === Math.floor(compiled / 10) && capability >= compiled;
  // machine code runs on later GPUs of the same major number, virtual code on all later ones
  return isFamily || (suffix === "" && kind !== "-real" && capability >= compiled);
}

/**
 * Returns why an addon does not run on a GPU, with what to do about it; undefined if it does. `architectures` is the list for
 * which the addon was compiled, separated by semicolons or spaces.
 */
export function deviceFault(architectures: string, device: DeviceFacts): string | undefined {
  const { name, major, minor } = device;
  const description = `${name} is sm_${major}${minor}`;
  if (10 * major + minor < OLDEST) return `${description}; FP8 needs sm_${OLDEST} or later`;
  const entries = architectures.split(/[; ]+/).filter((entry) => entry !== "");
  if (entries.some((entry) => runs(entry, device))) return undefined;
  const compiled = entries.map((entry) => `sm_${entry.replace(/-real$/, "")}`).join(", ");
  const architecture = `${major}${minor}${major >= 9 ? "a" : ""}-real`;
  return `${description}, and the addon has code for ${compiled} only; \`npx lockstep build-cuda --architectures ${architecture}\` builds it for this GPU`;
}
