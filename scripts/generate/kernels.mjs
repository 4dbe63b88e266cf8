// Generates the C++ of the addon's calls whose declaration says how many elements each tensor has: the structs of their kernels'
// parameters with the launchers' prototypes, in a header beside the kernels, and the bindings that read the arguments.
import { readFileSync } from "node:fs";
import { dirname } from "node:path";
import { filesIn } from "./lists.mjs";
import { importSource } from "./source.mjs";

const FOLDER = "src/backends/cuda";
const NATIVE = "native/calls.gen.cc";

/** The functions that may stand in the size of a tensor, and the headers that define them. */
const FUNCTIONS = {
  chunksOf: "kernels/rows/column-sum.h",
  squarePieces: "kernels/update/square-piece.h",
  packedElements: "native/layout/packed-elements.h",
};

/** The C++ type of an argument of each kind, and its default. */
const KINDS = {
  count: ["int64_t", "0"],
  word: ["uint32_t", "0"],
  int: ["int32_t", "0"],
  float: ["float", "0"],
  flag: ["bool", "false"],
  wide: ["Wide", "Wide::kF32"],
  rounding: ["Rounding", "Rounding::kTiesToEven"],
  overflow: ["Overflow", "Overflow::kSaturate"],
  activation: ["Activation", "Activation::kGelu"],
  scaleRule: ["ScaleRule", "ScaleRule::kF32"],
};

/** The C++ type of an element, and its bits. */
const ELEMENTS = {
  wide: { type: "void", bits: ({ name, like }) => `bitsOf(p.${like ?? name}Type)` },
  codes: { type: "void", bits: () => "storageBits(p.word)" },
  f32: { type: "float", bits: () => "32" },
  i32: { type: "int32_t", bits: () => "32" },
  u32: { type: "uint32_t", bits: () => "32" },
  bf16: { type: "uint16_t", bits: () => "16" },
  bytes: { type: "void", bits: () => "8" },
  bits: { type: "void", bits: () => "static_cast<uint64_t>(p.bits)" },
};

/**
 * The groups of arguments that are a struct of their own: its type, its header, and the function that reads it, with its
 * header.
 */
const GROUPS = {
  random: {
    type: "RandomSource",
    header: "kernels/core/random.cuh",
    reader: "native/core/random.h",
    read: "readRandom(call)",
  },
};

const pascal = (name) => name[0].toUpperCase() + name.slice(1);

/** Returns the fields of a call, or undefined if the call has memory whose size it does not declare. */
function fieldsOf(declaration, { isMemory, isBounded, hasType }) {
  const fields = Object.entries(declaration).map(([key, declared]) => {
    const field = { name: key.replace("?", ""), isOptional: key.endsWith("?") };
    if (isMemory(declared)) return { ...field, ...declared, form: "memory", hasType: hasType(declared) };
    if (isBounded(declared)) return { ...field, ...declared, form: "bounded" };
    if (GROUPS[field.name] && typeof declared === "object") return { ...field, form: "group" };
    return { ...field, kind: declared, form: KINDS[declared] ? "scalar" : "other" };
  });
  const isWhole =
    fields.some(({ form }) => form === "memory") && fields.every(({ form }) => form !== "other");
  return isWhole ? fields : undefined;
}

/** The calls of every file that declares some whose C++ can be generated: { file, calls: [{ name, fields }] }. */
async function generated() {
  const kinds = await importSource(`${FOLDER}/native-arguments.ts`);
  const files = filesIn(FOLDER, ".ts").filter(
    (file) => dirname(file) !== FOLDER && /^export const \w+_CALLS = /m.test(readFileSync(file, "utf8")),
  );
  const all = await Promise.all(
    files.map(async (file) => {
      const exports = Object.entries(await importSource(file)).filter(([name]) => name.endsWith("_CALLS"));
      const calls = exports.flatMap(([, declarations]) =>
        Object.entries(declarations).flatMap(([name, declaration]) => {
          const fields = fieldsOf(declaration, kinds);
          return fields ? [{ name, fields }] : [];
        }),
      );
      return { file, header: file.replace(FOLDER, "kernels").replace(/(\.gen)?\.ts$/, ".gen.h"), calls };
    }),
  );
  return all.filter(({ calls }) => calls.length > 0);
}

function declarationsOf(field) {
  const { name, form, about } = field;
  const comment = about ? `  // ${about}\n` : "";
  if (form === "group") return `  ${GROUPS[name].type} ${name}{};\n`;
  if (form === "bounded") return `  ${field.type} ${name} = ${field.from};\n`;
  if (form === "scalar") return `  ${KINDS[field.kind][0]} ${name} = ${KINDS[field.kind][1]};\n`;
  const constant = field.access === "reads" ? "const " : "";
  const type = field.hasType ? `  Wide ${name}Type = Wide::kF32;\n` : "";
  return `${comment}  ${constant}${ELEMENTS[field.element].type}* ${name} = nullptr;\n${type}`;
}

const structOf = ({ name, fields }) => `struct ${pascal(name)}Params {
${fields.map(declarationsOf).join("")}};

cudaError_t launch${pascal(name)}(const ${pascal(name)}Params& p, cudaStream_t stream);
`;

const includes = (paths) =>
  [...new Set(paths)]
    .sort()
    .map((path) => `#include "${path}"\n`)
    .join("");

function headerOf({ file, calls }, command) {
  const groups = calls.flatMap(({ fields }) => fields.filter(({ form }) => form === "group"));
  const paths = ["kernels/core/contract.gen.h", ...groups.map(({ name }) => GROUPS[name].header)];
  return `// The parameters of kernels. Generated by \`${command}\` from ${file}, which says what they mean.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

${includes(paths)}
namespace lockstep {

${calls.map(structOf).join("\n")}
}  // namespace lockstep
`;
}

/** The size of memory with \`p.\` before each argument that it names, as a C++ expression of a u64. */
function sizeOf(size, fields) {
  const names = fields.map(({ name }) => name).join("|");
  const factors = size
    .split(" * ")
    .map((factor) => factor.replace(new RegExp(`\\b(${names})\\b`, "g"), "p.$1"));
  const wide = factors.map((factor) => (/^\d+$/.test(factor) ? factor : `static_cast<uint64_t>(${factor})`));
  return wide.length === 1 ? wide[0] : `product({${wide.join(", ")}})`;
}

function readScalar({ name, kind, form, from, to, type }) {
  if (form === "group") return GROUPS[name].read;
  if (form === "bounded") return `static_cast<${type}>(call.between("${name}", ${from}, ${to}))`;
  const [cpp] = KINDS[kind];
  const readers = {
    count: `static_cast<int64_t>(call.count("${name}"))`,
    word: `call.word("${name}")`,
    int: `call.i32("${name}")`,
    float: `call.f32("${name}")`,
    flag: `call.flag("${name}")`,
  };
  return readers[kind] ?? `call.member<${cpp}>("${name}")`;
}

function readMemory(field, fields) {
  const { name, element, access, isOptional, size } = field;
  const { type, bits } = ELEMENTS[element];
  const bytes = `bytesOf(${sizeOf(size, fields)}, ${bits(field)})`;
  const target = `${access === "reads" ? "const " : ""}${type}`;
  if (access === "scratch") return `  p.${name} = call.workspace<${type}>(${bytes});\n`;
  if (!isOptional) {
    const wide = field.hasType ? `  p.${name}Type = call.wide("${name}Type");\n` : "";
    return `${wide}  p.${name} = call.pointer<${target}>("${name}", ${bytes});\n`;
  }
  if (!field.hasType) return `  p.${name} = call.optional<${target}>("${name}", ${bytes});\n`;
  return `  if (call.has("${name}")) {
    p.${name}Type = call.wide("${name}Type");
    p.${name} = call.pointer<${target}>("${name}", ${bytes});
  }
`;
}

// A size may depend on scalars, and on whether an optional tensor is there; a workspace comes last.
function bindingOf({ name, fields }) {
  const scalars = fields.filter(({ form }) => form !== "memory");
  const tensors = fields.filter(({ form, access }) => form === "memory" && access !== "scratch");
  const workspaces = fields.filter(({ access }) => access === "scratch");
  const type = pascal(name);
  return `void run${type}(const Call<calls::${type}>& call) {
  ${type}Params p{};
${scalars.map((field) => `  p.${field.name} = ${readScalar(field)};\n`).join("")}${[...tensors, ...workspaces]
  .map((field) => readMemory(field, fields))
  .join("")}  call.check("${name}", launch${type}(p, call.stream()));
}
`;
}

function bindings(files, command) {
  const calls = files.flatMap((each) => each.calls);
  const fields = calls.flatMap((each) => each.fields);
  const functions = Object.entries(FUNCTIONS).filter(([name]) =>
    fields.some(({ size }) => size?.includes(`${name}(`)),
  );
  const readers = fields.filter(({ form }) => form === "group").map(({ name }) => GROUPS[name].reader);
  const paths = [
    "kernels/core/format.h",
    "native/addon.h",
    "native/core/call.h",
    ...files.map(({ header }) => header),
    ...functions.map(([, header]) => header),
    ...readers,
  ];
  return `// The calls whose declarations say how many elements each tensor has. Generated by \`${command}\` from ${FOLDER}.
${includes(paths)}
namespace lockstep {

namespace {

${calls.map(bindingOf).join("\n")}
}  // namespace

void registerCalls(Napi::Env env, Napi::Object exports) {
${calls.map(({ name }) => `  expose<run${pascal(name)}>(env, exports);\n`).join("")}}

}  // namespace lockstep
`;
}

/** Returns the generated files as { path: text }. */
export async function kernelFiles(command) {
  const files = await generated();
  return {
    ...Object.fromEntries(files.map((each) => [each.header, headerOf(each, command)])),
    [NATIVE]: bindings(files, command),
  };
}
