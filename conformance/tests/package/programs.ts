/** One program in the syntax of each kind of project. All print the same line. */

const NAMES = "decode, encode, gemm, missingBackends, MXFP8Quantizer, openBackend, tensor";

/** Uses two threads, so that a worker has to start; computes products and codes, and looks for a GPU. */
const BODY = `
  const backend = await openBackend("wasm", { threads: 2 });
  const values = Float32Array.from({ length: 64 * 128 }, (_, i) => (i % 251) / 100 - 1.2);
  const x = tensor(backend, values, [64, 128]);
  const quantized = new MXFP8Quantizer().quantize(x);
  const { out } = gemm({ x: quantized, w: quantized, datapath: "hopper", outDtype: "f32" });
  const codes = await encode(x, { format: "e4m3" }).data();
  let hash = 0;
  for (const bits of [...new Uint32Array((await out.data()).buffer), ...codes]) hash = (Math.imul(hash, 31) + bits) | 0;
  console.log(backend.threads, hash, typeof decode, missingBackends().length);
  await backend.dispose();
`;

export const PROGRAMS = {
  imported: `import { ${NAMES} } from "lockstep";\n${BODY}`,
  /** For hosts without workers. */
  onOneThread: `import { ${NAMES} } from "lockstep";\n${BODY.replace("threads: 2", "threads: 1")}`,
  required: `const { ${NAMES} } = require("lockstep");\n(async () => {${BODY}})();\n`,
  importedDynamically: `(async () => {\nconst { ${NAMES} } = await import("lockstep");\n${BODY}})();\n`,
};

/** Two calls that must not compile: they show that the types are not `any`. */
const MISTAKES = `
// @ts-expect-error
openBackend("gpu");
// @ts-expect-error
encode(1, { format: "e4m3" });
`;

/** Imports every entry point in TypeScript. */
const SUBPATHS = `
import { type LawReport, LAWS, runConformance } from "lockstep/conformance";
import { saveCheckpoint } from "lockstep/io";
export const report: Promise<{ laws: readonly LawReport[] }> | undefined =
  LAWS.length > 0 ? undefined : openBackend("wasm").then((backend) => runConformance({ backend }));
export const save: Function = saveCheckpoint;
export const absent = () => [openBackend("wasm", { threads: undefined }), new MXFP8Quantizer({ format: undefined })];
`;

export const TYPED = `import { ${NAMES} } from "lockstep";\n${SUBPATHS}\nasync function main() {${BODY}}\nmain();\n${MISTAKES}`;
