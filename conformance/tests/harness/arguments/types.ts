/** Determines from a declared type which kinds of values it accepts. */
import ts from "typescript";

export interface Taken {
  /** True for `unknown`, and for types that accept everything. */
  readonly anything: boolean;
  readonly optional: boolean;
  readonly kinds: ReadonlySet<"boolean" | "number" | "string" | "bigint" | "function" | "array" | "object">;
  /** The literal strings and numbers of unions. */
  readonly literals: ReadonlySet<string | number>;
  /** The names of the classes whose instances are accepted. */
  readonly classes: ReadonlySet<string>;
  /** The element types of `Tensor<...>`; undefined if the type does not restrict them. */
  readonly dtypes: ReadonlySet<string> | undefined;
  /** The properties of the plain objects that are accepted, and whether each is optional. */
  readonly fields: ReadonlyMap<string, { readonly type: ts.Type; readonly optional: boolean }>;
  /** True for an object type with a method: a service, not options. */
  readonly works: boolean;
}

type Mutable = {
  anything: boolean;
  optional: boolean;
  kinds: Set<"boolean" | "number" | "string" | "bigint" | "function" | "array" | "object">;
  literals: Set<string | number>;
  classes: Set<string>;
  dtypes: Set<string> | undefined;
  fields: Map<string, { type: ts.Type; optional: boolean }>;
  works: boolean;
};

const ALL_DTYPES = 10;

export function takenBy(checker: ts.TypeChecker, type: ts.Type): Taken {
  const taken: Mutable = {
    anything: false,
    optional: false,
    kinds: new Set(),
    literals: new Set(),
    classes: new Set(),
    dtypes: undefined,
    fields: new Map(),
    works: false,
  };
  visit(checker, type, taken);
  return taken;
}

function visit(checker: ts.TypeChecker, type: ts.Type, taken: Mutable): void {
  const { flags } = type;
  if (type.isUnion()) {
    for (const each of type.types) visit(checker, each, taken);
  } else if (flags & ts.TypeFlags.TypeParameter) {
    const constraint = checker.getBaseConstraintOfType(type);
    if (constraint && !(constraint.flags & ts.TypeFlags.Unknown)) visit(checker, constraint, taken);
    else taken.anything = true;
  } else if (flags & (ts.TypeFlags.Any | ts.TypeFlags.Unknown)) taken.anything = true;
  else if (flags & ts.TypeFlags.Undefined) taken.optional = true;
  else if (flags & ts.TypeFlags.BooleanLike) taken.kinds.add("boolean");
  else if (type.isStringLiteral() || type.isNumberLiteral()) taken.literals.add(type.value);
  else if (flags & ts.TypeFlags.NumberLike) taken.kinds.add("number");
  else if (flags & ts.TypeFlags.StringLike) taken.kinds.add("string");
  else if (flags & ts.TypeFlags.BigIntLike) taken.kinds.add("bigint");
  else if (flags & (ts.TypeFlags.Object | ts.TypeFlags.Intersection)) visitObject(checker, type, taken);
}

function visitObject(checker: ts.TypeChecker, type: ts.Type, taken: Mutable): void {
  const name = type.getSymbol()?.name ?? "";
  if (type.getCallSignatures().length > 0) taken.kinds.add("function");
  else if (checker.isArrayLikeType(type) || name === "ArrayLike") taken.kinds.add("array");
  else if (isClass(type)) {
    taken.classes.add(name);
    if (name === "Tensor") addDTypes(checker, type, taken);
  } else visitFields(checker, type, taken);
}

/** Whether the type is a class of the package, or a class of the language, which libraries declare as an interface. */
function isClass(type: ts.Type): boolean {
  const symbol = type.getSymbol();
  if (!symbol) return false;
  if (symbol.flags & ts.SymbolFlags.Class) return true;
  return /^(Readonly)?Map$|Array$/.test(symbol.name);
}

function addDTypes(checker: ts.TypeChecker, type: ts.Type, taken: Mutable): void {
  const [argument] = checker.getTypeArguments(type as ts.TypeReference);
  const names = takenBy(checker, argument as ts.Type).literals;
  if (names.size === 0 || names.size >= ALL_DTYPES) return;
  taken.dtypes = new Set([...(taken.dtypes ?? []), ...[...names].map(String)]);
}

function visitFields(checker: ts.TypeChecker, type: ts.Type, taken: Mutable): void {
  taken.kinds.add("object");
  for (const property of checker.getPropertiesOfType(type)) {
    // in a union of objects, `?: undefined` only marks properties that another member has
    if (checker.getTypeOfSymbol(property).flags & ts.TypeFlags.Undefined) continue;
    const optional = (property.flags & ts.SymbolFlags.Optional) !== 0;
    taken.fields.set(property.name, { type: checker.getTypeOfSymbol(property), optional });
    if (property.flags & ts.SymbolFlags.Method) taken.works = true;
  }
}
