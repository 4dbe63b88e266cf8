/** Determines from a declared type which kinds of values it accepts. */
import ts from "typescript";

export interface AcceptedTypes {
  /** True for `unknown`, and for types that accept everything. */
  readonly acceptsAll: boolean;
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
  /** Whether the type is an object type with a method, and so is not an options object. */
  readonly hasMethods: boolean;
}

type MutableAcceptedTypes = {
  acceptsAll: boolean;
  optional: boolean;
  kinds: Set<"boolean" | "number" | "string" | "bigint" | "function" | "array" | "object">;
  literals: Set<string | number>;
  classes: Set<string>;
  dtypes: Set<string> | undefined;
  fields: Map<string, { type: ts.Type; optional: boolean }>;
  hasMethods: boolean;
};

const DTYPE_COUNT = 10;

export function acceptedTypes(checker: ts.TypeChecker, type: ts.Type): AcceptedTypes {
  const accepted: MutableAcceptedTypes = {
    acceptsAll: false,
    optional: false,
    kinds: new Set(),
    literals: new Set(),
    classes: new Set(),
    dtypes: undefined,
    fields: new Map(),
    hasMethods: false,
  };
  visit(checker, type, accepted);
  return accepted;
}

function visit(checker: ts.TypeChecker, type: ts.Type, accepted: MutableAcceptedTypes): void {
  const { flags } = type;
  if (type.isUnion()) {
    for (const member of type.types) visit(checker, member, accepted);
  } else if (flags & ts.TypeFlags.TypeParameter) {
    const constraint = checker.getBaseConstraintOfType(type);
    if (constraint && !(constraint.flags & ts.TypeFlags.Unknown)) visit(checker, constraint, accepted);
    else accepted.acceptsAll = true;
  } else if (flags & (ts.TypeFlags.Any | ts.TypeFlags.Unknown)) accepted.acceptsAll = true;
  else if (flags & ts.TypeFlags.Undefined) accepted.optional = true;
  else if (flags & ts.TypeFlags.BooleanLike) accepted.kinds.add("boolean");
  else if (type.isStringLiteral() || type.isNumberLiteral()) accepted.literals.add(type.value);
  else if (flags & ts.TypeFlags.NumberLike) accepted.kinds.add("number");
  else if (flags & ts.TypeFlags.StringLike) accepted.kinds.add("string");
  else if (flags & ts.TypeFlags.BigIntLike) accepted.kinds.add("bigint");
  else if (flags & (ts.TypeFlags.Object | ts.TypeFlags.Intersection)) visitObject(checker, type, accepted);
}

function visitObject(checker: ts.TypeChecker, type: ts.Type, accepted: MutableAcceptedTypes): void {
  const name = type.getSymbol()?.name ?? "";
  if (type.getCallSignatures().length > 0) accepted.kinds.add("function");
  else if (checker.isArrayLikeType(type) || name === "ArrayLike") accepted.kinds.add("array");
  else if (isClass(type)) {
    accepted.classes.add(name);
    if (name === "Tensor") addDTypes(checker, type, accepted);
  } else visitFields(checker, type, accepted);
}

/** Whether the type is a class of the package, or a class of the language, which libraries declare as an interface. */
function isClass(type: ts.Type): boolean {
  const symbol = type.getSymbol();
  if (!symbol) return false;
  if (symbol.flags & ts.SymbolFlags.Class) return true;
  return /^(Readonly)?Map$|Array$/.test(symbol.name);
}

function addDTypes(checker: ts.TypeChecker, type: ts.Type, accepted: MutableAcceptedTypes): void {
  const [argument] = checker.getTypeArguments(type as ts.TypeReference);
  const names = acceptedTypes(checker, argument as ts.Type).literals;
  if (names.size === 0 || names.size >= DTYPE_COUNT) return;
  accepted.dtypes = new Set([...(accepted.dtypes ?? []), ...[...names].map(String)]);
}

function visitFields(checker: ts.TypeChecker, type: ts.Type, accepted: MutableAcceptedTypes): void {
  accepted.kinds.add("object");
  for (const property of checker.getPropertiesOfType(type)) {
    // in a union of objects, `?: undefined` only marks properties that another member has
    if (checker.getTypeOfSymbol(property).flags & ts.TypeFlags.Undefined) continue;
    const optional = (property.flags & ts.SymbolFlags.Optional) !== 0;
    accepted.fields.set(property.name, { type: checker.getTypeOfSymbol(property), optional });
    if (property.flags & ts.SymbolFlags.Method) accepted.hasMethods = true;
  }
}
