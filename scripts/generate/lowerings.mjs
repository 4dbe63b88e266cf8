// Generates the lowerings of operations that declare their calls' arguments (`lowering` of src/backends/tensors.ts), the
// declarations of the addon's calls, and the tasks of the reference. Such an operation is one function of its name in assembly/
// and one launcher in kernels/.
import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { filesIn } from "./lists.mjs";
import { pascal } from "./native-fields.mjs";
import { importSource } from "./source.mjs";

const FOLDER = "src/backends/ops";

const executes = (text, name) => new RegExp(`\\b(execute\\([\\w.]+, |compute\\()"${name}"`).test(text);

/** The operations with a declared lowering, by the path FAMILY/OPERATION of their entry points. */
export async function declaredLowerings() {
  const files = new Map();
  const entryPoints = filesIn("src/ops", ".ts").map((path) => [path, readFileSync(path, "utf8")]);
  for (const file of readdirSync(FOLDER).filter((name) => !name.includes(".gen."))) {
    for (const [name, operation] of Object.entries(await importSource(join(FOLDER, file)))) {
      if (!operation?.lowering) continue;
      const [source] = entryPoints.find(([, text]) => executes(text, name)) ?? [];
      if (!source) throw new Error(`${FOLDER}/${file}: no file of src/ops executes ${name}`);
      const path = source.replace(/^src\/ops\/(.*)\.ts$/, "$1");
      files.set(path, [
        ...(files.get(path) ?? []),
        { name, ...operation.lowering, writes: operation.writes },
      ]);
    }
  }
  return files;
}

const nameIn = (key) => key.replace(/\?$/, "");
const isTensor = (taken) => typeof taken === "object";
const isSize = (taken) => !isTensor(taken) && taken.includes(".");
const namesOf = ({ takes }) => Object.keys(takes).map(nameIn);

/** The names of the arguments that a lowering reads. */
function argumentsOf({ takes }) {
  const names = Object.entries(takes).map(([key, taken]) =>
    isSize(taken) ? taken.split(".")[0] : nameIn(key),
  );
  return [...new Set(names)].join(", ");
}

/** The lines that set the sizes. */
function sizeLines({ takes }) {
  const shapes = new Map();
  const lines = [];
  for (const [name, taken] of Object.entries(takes).filter(([, each]) => isSize(each))) {
    const [tensor, part] = taken.split(".");
    if (part === "size") lines.push(`const ${name} = ${taken};`);
    else shapes.set(tensor, { ...shapes.get(tensor), [part]: name });
  }
  for (const [tensor, { rows = "", columns }] of shapes) {
    const names = columns === undefined ? rows : `${rows}, ${columns}`;
    lines.push(`const [${names}] = asMatrix(${tensor}.shape);`);
  }
  return lines.map((line) => `    ${line}\n`).join("");
}

/** The fields by which a call of the reference takes a tensor: its address and, if it has one of several types, its type. */
function tensorFields(key, element) {
  const tensor = nameIn(key);
  const isOptional = tensor !== key;
  const address = isOptional ? `${tensor}?.address ?? 0` : `${tensor}.address`;
  const type = isOptional ? `${tensor} ? wideOf(${tensor}) : WIDE.f32` : `wideOf(${tensor})`;
  return [`${tensor}: ${address}`, ...(element === "wide" ? [`${tensor}Type: ${type}`] : [])];
}

/**
 * The field by which a call of the reference takes a number. The number of rows that indices select is at most 2^31, because
 * indices are i32. A tensor without columns may have more rows, which a u32 of the reference could not hold.
 */
const numberField = (key, taken) =>
  isSize(taken) && taken.endsWith(".rows") ? `${key}: Math.min(${key}, 2 ** 31)` : key;

function wasmLowering(operation) {
  const { name, takes, each, weight } = operation;
  const fields = Object.entries(takes)
    .filter(([key]) => key !== each)
    .flatMap(([key, taken]) => (isTensor(taken) ? tensorFields(key, taken[0]) : [numberField(key, taken)]));
  return `export const ${name}: Lowering<"${name}"> = {
  run({ pool }, { ${argumentsOf(operation)} }) {
${sizeLines(operation)}    const job = { total: ${each}, weight: ${weight} };
    pool.run("${name}", job, { ${fields.join(", ")} });
  },
};
`;
}

/** The types of numbers in assembly/, by their kinds. Sizes and counts are usize. */
const NUMBERS = { float: "f32", int: "i32", flag: "bool" };

/** The class of a call's task. Its fields are those that `wasmLowering` passes. */
function taskClass({ name, takes, each: rangeKey }) {
  const fields = Object.entries(takes)
    .filter(([key]) => key !== rangeKey)
    .flatMap(([key, type]) => {
      if (!isTensor(type)) return [`${key}: ${NUMBERS[type] ?? "usize"}`];
      return [`${nameIn(key)}: usize`, ...(type[0] === "wide" ? [`${nameIn(key)}Type: u32`] : [])];
    });
  return `/** The arguments of \`${name}\`. */
@unmanaged
export class ${pascal(name)}Task {
${fields.map((field) => `  ${field};\n`).join("")}}
`;
}

function nativeCall({ name, takes, writes }) {
  const lines = Object.entries(takes).map(([key, taken]) => {
    const field = key === nameIn(key) ? key : `"${key}"`;
    if (!isTensor(taken)) return `${field}: "${isSize(taken) ? "count" : taken}"`;
    const [element, size] = taken;
    return `${field}: ${key in writes ? "writes" : "reads"}.${element}("${size}")`;
  });
  return `  ${name}: {\n${lines.map((line) => `    ${line},\n`).join("")}  },\n`;
}

const cudaLowering = (operation) => `export const ${operation.name}: Lowering<"${operation.name}"> = {
  run({ addon, device }, { ${argumentsOf(operation)} }) {
${sizeLines(operation)}    addon.${operation.name}(device, { ${namesOf(operation).join(", ")} });
  },
};
`;

const TITLE = (path, command) =>
  `/** Lowerings of operations of ${path}. Generated by \`${command}\` from ${FOLDER}. */\n`;

const importIf = (isNeeded, name, path) =>
  isNeeded ? `import { ${name} } from "../../../${path}.js";\n` : "";

function wasmFile(path, operations, command) {
  const text = operations.map(wasmLowering).join("\n");
  return `${TITLE(path, command)}${importIf(text.includes("WIDE."), "WIDE", "formats/contract.gen")}${importIf(text.includes("asMatrix"), "asMatrix", "tensor/shape")}import { type Lowering, wideOf } from "../lowering.js";

${text}`;
}

function cudaFile(path, operations, command) {
  const text = operations.map(cudaLowering).join("\n");
  return `${TITLE(path, command)}${importIf(text.includes("asMatrix"), "asMatrix", "tensor/shape")}import type { Lowering } from "../lowering.js";
import { type Declarations, reads, writes } from "../native-arguments.js";

export const ${basename(path).replaceAll("-", "_").toUpperCase()}_DECLARED_CALLS = {
${operations.map(nativeCall).join("")}} as const satisfies Declarations;

${text}`;
}

const taskFile = (path, operations, command) =>
  `// The tasks of ${path}. Generated by \`${command}\` from ${FOLDER}, which says what the fields mean.
${operations.map(taskClass).join("\n")}`;

/** Returns the generated files as { path: text }. */
export async function loweringFiles(command) {
  const files = [...(await declaredLowerings())];
  return Object.fromEntries([
    ...files.map(([path, each]) => [`assembly/${path}.gen.ts`, taskFile(path, each, command)]),
    ...files.map(([path, each]) => [`src/backends/wasm/${path}.gen.ts`, wasmFile(path, each, command)]),
    ...files.map(([path, each]) => [`src/backends/cuda/${path}.gen.ts`, cudaFile(path, each, command)]),
  ]);
}
