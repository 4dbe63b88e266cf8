/** The functions and tasks of assembly/, as its sources declare them. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";
import { listFiles, ROOT } from "./sources.js";

/** A field of a task, or a parameter (whose offset is 0). A field that is a record has fields itself. */
export interface Field {
  readonly name: string;
  readonly type: string;
  readonly offset: number;
  readonly record?: readonly Field[];
}

/** An export of the reference: the fields of its task, if it has one, and its other parameters. */
export interface ReferenceExport {
  readonly name: string;
  readonly task: readonly Field[] | undefined;
  readonly parameters: readonly Field[];
}

/** A function or method of assembly/. */
export interface AssemblyFunction {
  readonly file: string;
  readonly name: string;
  readonly parameters: readonly { readonly name: string; readonly type: string }[];
}

const BYTES: Readonly<Record<string, number>> = { bool: 1, f32: 4, i32: 4, u32: 4, usize: 4, f64: 8 };

const parseSources = (): readonly (readonly [file: string, ts.SourceFile])[] =>
  listFiles("assembly")
    .filter((file) => file.endsWith(".ts"))
    .map((file) => {
      const text = readFileSync(join(ROOT, file), "utf8");
      return [file, ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true)];
    });

/** Every function and method of assembly/, in the order of the sources. */
export function assemblyFunctions(): readonly AssemblyFunction[] {
  return parseSources().flatMap(([file, source]) => {
    const functions: AssemblyFunction[] = [];
    const visit = (node: ts.Node): void => {
      if (ts.isFunctionLike(node) && "body" in node) {
        const name = node.name?.getText() ?? "a function without a name";
        const parameters = node.parameters.map((parameter) => ({
          name: parameter.name.getText(),
          type: parameter.type?.getText() ?? "",
        }));
        functions.push({ file, name, parameters });
      }
      ts.forEachChild(node, visit);
    };
    visit(source);
    return functions;
  });
}

interface Layout {
  readonly fields: readonly Field[];
  readonly bytes: number;
}

/** Lays out the fields of a class as a C compiler does, the base class's fields first. */
function layOutFields(name: string, classes: ReadonlyMap<string, ts.ClassDeclaration>): Layout {
  const declaration = classes.get(name);
  if (!declaration) throw new Error(`assembly/ has no class ${name}`);
  const base = declaration.heritageClauses?.[0]?.types[0]?.expression.getText();
  const inherited = base ? layOutFields(base, classes) : { fields: [], bytes: 0 };
  let offset = inherited.bytes;
  const ownFields = declaration.members.filter(ts.isPropertyDeclaration).map((member): Field => {
    const type = member.type?.getText() ?? "";
    const bytes = BYTES[type] ?? 4;
    const start = Math.ceil(offset / bytes) * bytes;
    offset = start + bytes;
    const field = { name: member.name.getText(), type, offset: start };
    return type in BYTES ? field : { ...field, record: layOutFields(type, classes).fields };
  });
  return { fields: [...inherited.fields, ...ownFields], bytes: offset };
}

/** The exports of the reference that assembly/index.gen.ts lists. */
export function referenceExports(): readonly ReferenceExport[] {
  const classes = new Map<string, ts.ClassDeclaration>();
  for (const [, source] of parseSources())
    for (const statement of source.statements)
      if (ts.isClassDeclaration(statement) && statement.name) classes.set(statement.name.text, statement);
  const index = readFileSync(join(ROOT, "assembly/index.gen.ts"), "utf8");
  const exportedNames = new Set(
    [...index.matchAll(/export \{([^}]*)\} from "\.\/([^"]+)"/g)].flatMap(([, names = "", path]) =>
      names.split(",").map((name) => `assembly/${path}.ts ${name.trim()}`),
    ),
  );
  return assemblyFunctions()
    .filter(({ file, name }) => exportedNames.has(`${file} ${name}`))
    .map(({ name, parameters }) => {
      const [taskParameter] = parameters;
      const hasTask = taskParameter !== undefined && classes.has(taskParameter.type);
      return {
        name,
        task: hasTask ? layOutFields(taskParameter.type, classes).fields : undefined,
        parameters: parameters.slice(hasTask ? 1 : 0).map((each) => ({ ...each, offset: 0 })),
      };
    });
}
