/** The public names of the package: exports, members of exported types, and the strings that options accept. */
import { fileURLToPath } from "node:url";
import ts from "typescript";

const ROOT = new URL("../../../../", import.meta.url);

/** The published entry points. */
export const ENTRIES = [
  "dist/src/index.d.ts",
  "dist/src/io/index.d.ts",
  "dist/src/checkpoints/index.d.ts",
  "dist/src/models/index.d.ts",
  "dist/conformance/index.d.ts",
] as const;

export interface PublicNames {
  /** The exports of one entry point, without nested namespaces. */
  readonly exports: ReadonlyMap<string, readonly string[]>;
  /** The properties and methods of exported types, wherever the package declares them. */
  readonly members: ReadonlySet<string>;
  /** The string literals in the types of these members. */
  readonly strings: ReadonlySet<string>;
}

/** Reads the declarations that a build writes. */
export function publicNames(): PublicNames {
  const files = ENTRIES.map((entry) => fileURLToPath(new URL(entry, ROOT)));
  const program = ts.createProgram(files, {
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    target: ts.ScriptTarget.ES2022,
    lib: ["lib.es2022.d.ts", "lib.esnext.disposable.d.ts"],
    strict: true,
    skipLibCheck: true,
    types: [],
  });
  const reader = new Reader(program.getTypeChecker());
  const exports = new Map<string, readonly string[]>();
  ENTRIES.forEach((entry, i) => {
    const source = program.getSourceFile(files[i] ?? "");
    const module = source && reader.checker.getSymbolAtLocation(source);
    if (!module) throw new Error(`${entry} is not there; npm run build makes it`);
    exports.set(entry, reader.read(module));
  });
  return { exports, members: reader.members, strings: reader.strings };
}

class Reader {
  readonly members = new Set<string>();
  readonly strings = new Set<string>();

  constructor(readonly checker: ts.TypeChecker) {}

  read(module: ts.Symbol): readonly string[] {
    return this.checker.getExportsOfModule(module).map((each) => {
      const symbol = each.flags & ts.SymbolFlags.Alias ? this.checker.getAliasedSymbol(each) : each;
      if (symbol.flags & (ts.SymbolFlags.Interface | ts.SymbolFlags.Class | ts.SymbolFlags.TypeAlias))
        this.#readType(this.checker.getDeclaredTypeOfSymbol(symbol));
      return each.name;
    });
  }

  #readType(type: ts.Type): void {
    this.#readStrings(type);
    for (const member of type.getProperties()) {
      const declaration = member.declarations?.[0];
      if (!declaration || declaration.getSourceFile().fileName.includes("/node_modules/")) continue;
      if (member.name.startsWith("__")) continue;
      this.members.add(member.name);
      this.#readStrings(this.checker.getTypeOfSymbol(member));
    }
  }

  #readStrings(type: ts.Type): void {
    for (const member of type.isUnion() ? type.types : [type])
      if (member.isStringLiteral()) this.strings.add(member.value);
  }
}
