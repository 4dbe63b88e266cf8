// The arguments of the reference's exports, read from the AssemblyScript compiler, so that TypeScript checks calls with named
// arguments against the signatures (src/backends/wasm/call.ts). An export takes at most five positions. If the first one is a
// task, an @unmanaged class, the fields of the class are arguments of the export: they are written to memory at the offsets that
// the compiler gave them. A field that is an @unmanaged class itself is an argument with named fields.

/** The arguments that a job supplies to each of its parts: scratch memory and the range. */
const OF_THE_PART = ["scratch", "begin", "end"];

/** The TypeScript type of a field or a parameter, by its type in assembly/. */
const TYPES = {
  bool: "boolean",
  f32: "number",
  f64: "number",
  i32: "number",
  u32: "number",
  usize: "number",
};

/** The view by which a field is written: its name, and the bytes of its elements. */
const VIEWS = {
  bool: ["bytes", 1],
  f32: ["floats", 4],
  f64: ["doubles", 8],
  i32: ["words", 4],
  u32: ["words", 4],
  usize: ["words", 4],
};

const checkedType = (where, type) => {
  if (type in TYPES) return type;
  throw new Error(
    `${where} has the type ${type}, which TypeScript cannot pass; use ${Object.keys(TYPES).join(", ")}`,
  );
};

const aligned = (bytes) => Math.ceil(bytes / 16) * 16;

/**
 * The fields of an @unmanaged class at an offset, inherited ones first, and the end of its memory. A field whose type is such a
 * class is a record: the field has its address, and the fields of the record follow those of the class.
 */
function recordOf(type, start) {
  let end = aligned(start + type.nextMemoryOffset);
  const fields = [];
  for (const { instance } of type.members.values()) {
    if (!(instance?.memoryOffset >= 0)) continue;
    const { name, memoryOffset, type: fieldType } = instance;
    const where = `${type.internalName}.${name}`;
    const offset = start + memoryOffset;
    const inner = fieldType.classReference;
    if (!inner) {
      fields.push({ name, offset, type: checkedType(where, fieldType.toString()) });
      continue;
    }
    const record = recordOf(inner, end);
    fields.push({ name, offset, record: record.fields, address: end });
    end = record.end;
  }
  return { fields, end };
}

/**
 * The exports of a compiled program: [{ name, task, parameters, returns }], where `task` has the fields and the size of the task,
 * if there is one.
 */
export function exportsOf(program, entry) {
  const { exports } = program.filesByName.get(entry) ?? {};
  return [...exports].map(([name, { instances }]) => {
    const instance = instances.get("");
    const parameters = instance.signature.parameterTypes.map((type, i) => ({
      name: instance.getParameterName(i),
      type,
    }));
    const task = parameters[0]?.type.classReference;
    return {
      name,
      task: task && recordOf(task, 0),
      parameters: parameters.slice(task ? 1 : 0).map((each) => ({
        name: each.name,
        type: checkedType(`${name}.${each.name}`, each.type.toString()),
      })),
      returns: instance.signature.returnType.toString() === "void" ? "void" : "number",
    };
  });
}

/** The statements that write fields to memory; `from` is the object that has their values. */
function writeFields(fields, from) {
  return fields.flatMap(({ name, type, offset, record, address }) => {
    if (record)
      return [`v.words[${offset / 4}] = v.address + ${address};`, ...writeFields(record, `${from}.${name}`)];
    const [view, bytes] = VIEWS[type];
    return [`v.${view}[${offset / bytes}] = ${from}.${name};`];
  });
}

function callOf({ name, task, parameters }) {
  const values = parameters.map(({ name: each }) => (OF_THE_PART.includes(each) ? each : `a.${each}`));
  const positions = [...(task ? ["v.address"] : []), ...values].join(", ");
  const writes = writeFields(task?.fields ?? [], "a")
    .map((line) => `      ${line}\n`)
    .join("");
  return `  ${name}: {
    write: (v, a) => {
${writes}    },
    order: (v, a, ${OF_THE_PART.join(", ")}) => [${positions}],
  },
`;
}

const objectType = (fields) =>
  `{ ${fields.map(({ name, type, record }) => `readonly ${name}: ${record ? objectType(record) : TYPES[type]}`).join("; ")} }`;

/** The source of a module with the functions that pass the arguments of each export, and of its declarations. */
export function parametersOf(exported) {
  const signatures = exported.map(({ name, task, parameters, returns }) => {
    const list = [...(task ? [{ name: "task", type: "usize" }] : []), ...parameters];
    const positions = list.map((each) => `${each.name}: ${TYPES[each.type]}`).join(", ");
    return `  readonly ${name}: (${positions}) => ${returns};\n`;
  });
  const types = exported.map(({ name, task, parameters }) => {
    const args = [...(task?.fields ?? []), ...parameters];
    return `  readonly ${name}: ${objectType(args)};\n`;
  });
  const bytes = Math.max(...exported.map(({ task }) => task?.end ?? 0));
  return {
    module: `export const TASK_BYTES = ${bytes};
export const CALLS = {\n${exported.map(callOf).join("")}};\n`,
    declarations: `/** What each export takes, by name. */
export interface Arguments {
${types.join("")}}

/** The functions of the compiled module. A task is passed by its address. */
export interface Exports extends WebAssembly.Exports {
${signatures.join("")}}

type Value = number | boolean;

/** Arguments by name. A record is an object of arguments. */
export interface NamedArguments {
  readonly [name: string]: Value | NamedArguments;
}

/** The size of the largest task in bytes. */
export declare const TASK_BYTES: number;

/** Memory of TASK_BYTES bytes at an address, which holds the task of a call. */
export interface TaskMemory {
  readonly address: number;
  readonly bytes: Uint8Array;
  readonly words: Uint32Array;
  readonly floats: Float32Array;
  readonly doubles: Float64Array;
}

/** How each export is called: \`write\` writes the fields of its task, \`order\` returns its arguments by position. */
export declare const CALLS: {
  readonly [K in keyof Arguments]: {
    readonly write: (task: TaskMemory, args: NamedArguments) => void;
    readonly order: (
      task: TaskMemory,
      args: NamedArguments,
      ${OF_THE_PART.map((each) => `${each}: number`).join(",\n      ")},
    ) => Value[];
  };
};
`,
  };
}
