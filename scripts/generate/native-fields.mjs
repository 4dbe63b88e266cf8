// The fields of the addon's calls, from their declarations.
import { readFileSync } from "node:fs";
import { dirname } from "node:path";
import { filesIn } from "./lists.mjs";
import { KINDS, STRUCTS } from "./native-tables.mjs";
import { importSource } from "./source.mjs";

export const FOLDER = "src/backends/cuda";

export const pascal = (name) => name[0].toUpperCase() + name.slice(1);

/**
 * Returns the fields of a declaration. The form of a field is scalar, bounded, memory, internal, condition; `read` for a group
 * with a handwritten reader; group for a group with a generated reader; or other for a field without generated C++.
 */
function fieldsOf(declaration, kinds) {
  const { isMemory, isUnpassed, hasType, nameIn } = kinds;
  return Object.entries(declaration).map(([key, declared]) => {
    const field = { name: nameIn(key), isOptional: key.endsWith("?") };
    if (isMemory(declared)) return { ...field, ...declared, form: "memory", hasType: hasType(declared) };
    if (typeof declared.from === "number") return { ...field, ...declared, form: "bounded" };
    if (isUnpassed(declared))
      return { ...field, ...declared, form: declared.condition ? "condition" : "internal" };
    if (typeof declared.struct === "string") {
      if (STRUCTS[declared.struct]?.read) return { ...field, ...declared, form: "read", fields: [] };
      return { ...field, ...declared, form: "group", fields: fieldsOf(declared.fields, kinds) };
    }
    if (typeof declared.absent === "string") return { ...field, ...declared, form: "scalar" };
    return { ...field, kind: declared, form: KINDS[declared] ? "scalar" : "other" };
  });
}

const allOf = (fields) => fields.flatMap((field) => [field, ...allOf(field.fields ?? [])]);

/** All fields of a call, including the fields in its groups. */
export const deepFieldsOf = ({ fields }) => allOf(fields);

/** Whether the C++ of a call can be generated: it has memory, and declares the size of all of it. */
function isComplete(call) {
  const all = deepFieldsOf(call);
  const hasMemory = all.some(({ form, struct }) => form === "memory" || STRUCTS[struct]?.hasMemory);
  return hasMemory && all.every(({ form }) => form !== "other");
}

const isGenerated = ({ file }) => file.includes(".gen.");
const byHand = (a, b) => Number(isGenerated(a)) - Number(isGenerated(b));

/** The calls whose C++ can be generated, by their header: { file, header, calls: [{ name, isList, fields }] }. */
export async function declaredCalls() {
  const kinds = await importSource(`${FOLDER}/native-slots.ts`);
  const files = filesIn(FOLDER, ".ts").filter(
    (file) =>
      dirname(file) !== FOLDER && /^export const \w+_(CALLS|LISTS) = /m.test(readFileSync(file, "utf8")),
  );
  const all = await Promise.all(
    files.map(async (file) => {
      const exports = Object.entries(await importSource(file)).filter(([name]) =>
        /_(CALLS|LISTS)$/.test(name),
      );
      const calls = exports.flatMap(([exported, declarations]) =>
        Object.entries(declarations)
          .map(([name, declaration]) => ({
            name,
            isList: exported.endsWith("_LISTS"),
            fields: fieldsOf(declaration, kinds),
          }))
          .filter(isComplete),
      );
      return { file, header: file.replace(FOLDER, "kernels").replace(/(\.gen)?\.ts$/, ".gen.h"), calls };
    }),
  );
  // lowerings of an operation's file may be partly generated
  const headers = [...new Set(all.map(({ header }) => header))];
  return headers
    .map((header) => [header, all.filter((each) => each.header === header).sort(byHand)])
    .map(([header, files]) => ({
      file: isGenerated(files[0]) ? "src/backends/ops" : files[0].file,
      header,
      calls: files.flatMap(({ calls }) => calls),
    }))
    .filter(({ calls }) => calls.length > 0);
}
