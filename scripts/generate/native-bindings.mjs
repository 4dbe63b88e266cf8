// Generates the bindings that read the arguments of the addon's calls, check them, and launch kernels.
import { deepFieldsOf, FOLDER, pascal } from "./native-fields.mjs";
import { ELEMENTS, FUNCTIONS, KINDS, STRUCTS } from "./native-tables.mjs";

/** An expression with the names of fields as C++ names them: the fields of the innermost scope that has them. */
function inCpp(expression, scopes) {
  return expression.replace(/(?<![\w.:])[A-Za-z_]\w*(\.\w+)*/g, (path) => {
    const [first] = path.split(".");
    const scope = scopes.find(({ names }) => names.has(first));
    return scope ? scope.target + path : path;
  });
}

/** The factors of a product, split at the asterisks outside of parentheses. */
function factorsOf(size) {
  const factors = [""];
  let depth = 0;
  for (const token of size.split(/( \* |[()])/)) {
    if (token === "(") depth++;
    if (token === ")") depth--;
    if (token === " * " && depth === 0) factors.push("");
    else factors[factors.length - 1] += token;
  }
  return factors;
}

/** The size of memory as a C++ expression of a u64. */
function sizeOf(size, scopes) {
  const wide = factorsOf(size).map((factor) =>
    /^\d+$/.test(factor) ? factor : `static_cast<uint64_t>(${inCpp(factor, scopes)})`,
  );
  return wide.length === 1 ? wide[0] : `product({${wide.join(", ")}})`;
}

function readScalar({ name, kind, form, from, to, type, absent }, path, scopes) {
  const slot = `"${path}${name}"`;
  if (absent !== undefined) {
    const read = readScalar({ name, kind }, path, scopes);
    return `call.has(${slot}) ? ${read} : ${inCpp(absent, scopes)}`;
  }
  if (form === "bounded") {
    const isCount = from === 0 && to === 2 ** 53;
    return `static_cast<${type}>(${isCount ? `call.count(${slot})` : `call.between(${slot}, ${from}, ${to})`})`;
  }
  const readers = {
    count: `static_cast<int64_t>(call.count(${slot}))`,
    word: `call.word(${slot})`,
    int: `call.i32(${slot})`,
    float: `call.f32(${slot})`,
    flag: `call.flag(${slot})`,
  };
  return readers[kind] ?? `call.member<${KINDS[kind][0]}>(${slot})`;
}

/** The lines that read memory. `path` is the prefix of its slot, and the first scope is the one of its field. */
function readMemory(field, path, scopes) {
  const { name, element, access, isOptional, hasType, size, isAlignedToElements } = field;
  const { type, bits } = ELEMENTS[element];
  const bytes = `bytesOf(${sizeOf(size, scopes)}, ${inCpp(bits(field), scopes)})`;
  const pointee = `${access === "reads" ? "const " : ""}${type}`;
  const target = `${scopes[0].target}${name}`;
  const slot = `"${path}${name}"`;
  if (access === "scratch") {
    const read = `${target} = call.workspace<${type}>(${bytes});`;
    return [isOptional ? `if (call.has(${slot})) ${read}` : read];
  }
  if (isOptional && !hasType && !isAlignedToElements)
    return [`${target} = call.optional<${pointee}>(${slot}, ${bytes});`];
  const reads = [
    isAlignedToElements
      ? `${target} = call.elements<${pointee}>(${slot}, ${bytes}, ${inCpp(bits(field), scopes)});`
      : `${target} = call.pointer<${pointee}>(${slot}, ${bytes});`,
  ];
  if (hasType) reads.unshift(`${target}Type = call.wide("${path}${name}Type");`);
  return isOptional ? [`if (call.has(${slot})) {`, ...reads.map((line) => `  ${line}`), "}"] : reads;
}

function scopeOf(fields, target) {
  const names = fields.flatMap(({ name, hasType }) => (hasType ? [name, `${name}Type`] : [name]));
  return { target, names: new Set(names), fields };
}

const isScalar = ({ form, struct }) =>
  form === "scalar" || form === "bounded" || (form === "read" && !STRUCTS[struct].hasMemory);

/** Whether a condition depends on scalars only. */
function isEarly({ condition }, scopes) {
  return [...condition.matchAll(/(?<![\w.:])[A-Za-z_]\w*/g)].every(([name]) => {
    const scope = scopes.find(({ names }) => names.has(name));
    return !scope || scope.fields.some((field) => field.name === name && isScalar(field));
  });
}

const check = ({ condition, message }, scopes) =>
  `if (!(${inCpp(condition, scopes)})) throw Failure{"ARGUMENT", "${message}"};`;

/**
 * The lines that read fields: first scalars, which sizes and conditions may depend on, then tensors on whose presence a size
 * depends, other memory and groups in order, and a workspace last.
 */
function readFields(fields, path, scopes) {
  const [{ target }] = scopes;
  const scalars = fields.filter(isScalar);
  const conditions = fields.filter(({ form }) => form === "condition");
  const memory = fields.filter(
    (field) => /^(memory|group|read)$/.test(field.form) && field.access !== "scratch" && !isScalar(field),
  );
  const workspaces = fields.filter(({ access }) => access === "scratch");
  const isInSize = ({ name }) =>
    memory.some(({ size }) => size && new RegExp(`(?<![\\w.:])${name}\\b`).test(size));
  const readOne = (field) => {
    if (field.form === "memory") return readMemory(field, path, scopes);
    if (field.form === "read") {
      const { read } = STRUCTS[field.struct];
      return [
        `${target}${field.name} = ${read(`${path}${field.name}`, inCpp(field.reading ?? "", scopes))};`,
      ];
    }
    return readGroup(field, path, scopes);
  };
  return [
    ...scalars.flatMap((field) =>
      field.form === "read"
        ? readOne(field)
        : [`${target}${field.name} = ${readScalar(field, path, scopes)};`],
    ),
    ...fields
      .filter(({ form, value }) => form === "internal" && value)
      .map(({ name, value }) => `${target}${name} = ${value};`),
    ...conditions.filter((each) => isEarly(each, scopes)).map((each) => check(each, scopes)),
    ...[...memory.filter(isInSize), ...memory.filter((field) => !isInSize(field)), ...workspaces].flatMap(
      readOne,
    ),
    ...conditions.filter((each) => !isEarly(each, scopes)).map((each) => check(each, scopes)),
  ];
}

function readGroup({ name, fields, isOptional }, path, scopes) {
  const scope = scopeOf(fields, `${scopes[0].target}${name}.`);
  const lines = readFields(fields, `${path}${name}.`, [scope, ...scopes]);
  if (!isOptional) return lines;
  const required = fields.filter(
    ({ form, isOptional }) => /^(memory|scalar|bounded)$/.test(form) && !isOptional,
  );
  const first = required.find(({ form }) => form === "memory") ?? required[0];
  return [`if (call.has("${path}${name}.${first.name}")) {`, ...lines.map((line) => `  ${line}`), "}"];
}

/** The binding of a call that takes a list of argument sets. */
function listBindingOf({ name, fields }) {
  const type = pascal(name);
  const lines = readFields(fields, "", [scopeOf(fields, "p.")]);
  return `void run${type}(const ListCall<calls::${type}>& call) {
  std::vector<${type}Params> list(call.size());
  for (${type}Params& p : list) {
    call.select(static_cast<size_t>(&p - list.data()));
${lines.map((line) => `    ${line}\n`).join("")}  }
  call.check("${name}", launch${type}(list, call.stream()));
}
`;
}

function bindingOf(call) {
  if (call.isList) return listBindingOf(call);
  const { name, fields } = call;
  const type = pascal(name);
  const lines = readFields(fields, "", [scopeOf(fields, "p.")]);
  return `void run${type}(const Call<calls::${type}>& call) {
  ${type}Params p{};
${lines.map((line) => `  ${line}\n`).join("")}  call.check("${name}", launch${type}(p, call.stream()));
}
`;
}

const expressionsOf = ({ size, condition, of, reading, absent }) =>
  [size, condition, of, reading, absent].filter(Boolean).join(" ");

/** The text of the file that holds all bindings. */
export function bindings(files, includes, command) {
  const calls = files.flatMap((each) => each.calls);
  const fields = calls.flatMap(deepFieldsOf);
  const text = fields.map(expressionsOf).join(" ");
  const functions = Object.entries(FUNCTIONS).filter(([name]) => text.includes(`${name}(`));
  const readers = fields.filter(({ form }) => form === "read").map(({ struct }) => STRUCTS[struct].reader);
  const paths = [
    "kernels/core/format.h",
    "native/addon.h",
    "native/core/call.h",
    ...files.map(({ header }) => header),
    ...functions.map(([, header]) => header),
    ...readers,
  ];
  return `// The calls whose declarations say how many elements each tensor has. Generated by \`${command}\` from ${FOLDER}.
#include <vector>

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
