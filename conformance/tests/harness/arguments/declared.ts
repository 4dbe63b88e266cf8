/**
 * Reads the package's declarations: every exported function, constructor and method with the types of its parameters.
 */
import { fileURLToPath } from "node:url";
import ts from "typescript";

/** A callable under the name that rows use: `gemm`, `Linear`, `Linear.forward`, `functional.add`. */
export interface Callable {
  readonly name: string;
  readonly parameters: readonly Parameter[];
  /** The docstring with its tags. The docstring of a constructor includes the docstring of the class. */
  readonly doc: string;
}

export interface Parameter {
  readonly name: string;
  readonly type: ts.Type;
  readonly isRest: boolean;
}

export interface Declarations {
  readonly checker: ts.TypeChecker;
  readonly callables: readonly Callable[];
  /** The exports that are not callable: tables and numbers. */
  readonly data: readonly string[];
}

const ROOT = new URL("../../../../", import.meta.url);

/** The callables of entry points, which are files relative to the root of the repository. */
export function readDeclarations(...entries: readonly string[]): Declarations {
  const files = entries.map((entry) => fileURLToPath(new URL(entry, ROOT)));
  const program = ts.createProgram(files, {
    target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    lib: ["lib.es2022.d.ts", "lib.esnext.disposable.d.ts"],
    strict: true,
    exactOptionalPropertyTypes: true,
    skipLibCheck: true,
    types: [],
  });
  const checker = program.getTypeChecker();
  const finder = new Finder(checker);
  for (const file of files) {
    const source = program.getSourceFile(file);
    const module = source && checker.getSymbolAtLocation(source);
    if (!module) throw new Error(`${file} is not there; npm run build makes it`);
    finder.visitModule(module, "");
  }
  const { callables, data } = finder;
  return { checker, callables: [...callables.values()], data };
}

class Finder {
  readonly callables = new Map<string, Callable>();
  readonly data: string[] = [];

  constructor(private readonly checker: ts.TypeChecker) {}

  visitModule(module: ts.Symbol, prefix: string): void {
    for (const exported of this.checker.getExportsOfModule(module)) {
      const symbol =
        exported.flags & ts.SymbolFlags.Alias ? this.checker.getAliasedSymbol(exported) : exported;
      this.#visit(prefix + exported.name, symbol);
    }
  }

  #visit(name: string, symbol: ts.Symbol): void {
    if (symbol.flags & (ts.SymbolFlags.Module | ts.SymbolFlags.Namespace)) {
      this.visitModule(symbol, `${name}.`);
      return;
    }
    if (!(symbol.flags & ts.SymbolFlags.Value)) return;
    if (symbol.flags & ts.SymbolFlags.Class) {
      this.#visitClass(name, symbol);
      return;
    }
    const [signature] = this.checker.getTypeOfSymbol(symbol).getCallSignatures();
    if (signature) this.#add(name, signature, symbol);
    else this.data.push(name);
  }

  #visitClass(name: string, symbol: ts.Symbol): void {
    const isAbstract = symbol.declarations?.some(
      (declaration) => ts.getCombinedModifierFlags(declaration) & ts.ModifierFlags.Abstract,
    );
    const [construct] = this.checker.getTypeOfSymbol(symbol).getConstructSignatures();
    if (construct && !isAbstract) this.#add(name, construct, symbol);
    const instance = this.checker.getDeclaredTypeOfSymbol(symbol);
    for (const member of this.checker.getPropertiesOfType(instance)) {
      const declaration = member.valueDeclaration;
      if (!declaration || member.name.startsWith("__")) continue;
      const hidden = ts.ModifierFlags.Private | ts.ModifierFlags.Protected | ts.ModifierFlags.Abstract;
      if (ts.getCombinedModifierFlags(declaration) & hidden) continue;
      // members inherited from the language's own classes, such as an error's toString, do not belong to this package
      if (declaration.getSourceFile().fileName.includes("/typescript/lib/")) continue;
      if (!ts.isMethodDeclaration(declaration)) continue;
      const [signature] = this.checker.getTypeOfSymbol(member).getCallSignatures();
      if (signature) this.#add(`${name}.${member.name}`, signature, member);
    }
  }

  #docstring(documented: ts.Symbol | ts.Signature): string {
    const tags = documented
      .getJsDocTags()
      .map(({ name, text }) => `@${name} ${ts.displayPartsToString(text)}`);
    return [ts.displayPartsToString(documented.getDocumentationComment(this.checker)), ...tags].join("\n");
  }

  #add(name: string, signature: ts.Signature, symbol: ts.Symbol): void {
    const parameters = signature.getParameters().map((parameter): Parameter => {
      const declaration = parameter.valueDeclaration as ts.ParameterDeclaration;
      const isRest = declaration.dotDotDotToken !== undefined;
      const type = this.checker.getTypeOfSymbol(parameter);
      const element = isRest ? this.checker.getIndexTypeOfType(type, ts.IndexKind.Number) : undefined;
      return { name: parameter.name, type: element ?? type, isRest };
    });
    const doc = `${this.#docstring(symbol)}\n${this.#docstring(signature)}`;
    this.callables.set(name, { name, parameters, doc });
  }
}
