/** Stryker's mutators, and three of this project's own for frequent mistakes that Stryker does not make. */
import babel from "@babel/core";
import { Instrumenter } from "@stryker-mutator/instrumenter";
import { EXCHANGES } from "./exchanges.mjs";

const { types } = babel;
const clone = (node) => types.cloneNode(node, true, false);

/** Removes a property from an object literal. */
const propertyRemoval = {
  name: "PropertyRemoval",
  *mutate(path) {
    if (!path.isObjectExpression()) return;
    const { properties } = path.node;
    for (const left of properties)
      yield types.objectExpression(properties.filter((each) => each !== left).map(clone));
  },
};

/** Removes a call statement. */
const callRemoval = {
  name: "CallRemoval",
  *mutate(path) {
    if (
      path.isCallExpression() &&
      path.parentPath.isExpressionStatement() &&
      !types.isSuper(path.node.callee)
    )
      yield types.identifier("undefined");
  },
};

/** Removes the last argument of a call. */
const argumentRemoval = {
  name: "ArgumentRemoval",
  *mutate(path) {
    if (!path.isCallExpression() || path.node.arguments.length < 2 || types.isSuper(path.node.callee)) return;
    const call = clone(path.node);
    call.arguments.pop();
    yield call;
  },
};

/** Stryker's mutator that replaces an object by `{}` is excluded, because removing single properties tests more. */
const REPLACED = ["ObjectLiteral"];

/** The strings of error messages are not mutated. */
const messages = {
  shouldIgnore: (path) =>
    path.isThrowStatement() || (path.isNewExpression() && /Error$/.test(path.node.callee.name ?? ""))
      ? "what an error says"
      : undefined,
};

/** String literals are excluded: the compiler checks those that are names, and the others are prose. */
const EXCLUDED = ["StringLiteral", "Regex", ...REPLACED];

// the package exports neither its list of mutators nor a function to extend it
const { allMutators } = await import(
  new URL("./mutators/index.js", import.meta.resolve("@stryker-mutator/instrumenter")).href
);

/** The kinds of mutations: `usual` changes operators, conditions and calls; `exchanges` confuses names. */
const KINDS = {
  usual: [...allMutators, propertyRemoval, callRemoval, argumentRemoval],
  exchanges: EXCHANGES,
};
export const KIND_NAMES = Object.keys(KINDS);

const SILENT = {
  isTraceEnabled: () => false,
  isDebugEnabled: () => false,
  isInfoEnabled: () => false,
  isWarnEnabled: () => false,
  ...Object.fromEntries(["trace", "debug", "info", "warn", "error", "fatal"].map((name) => [name, () => {}])),
};

/** The files with all mutants of a kind behind switches, and the list of mutants. */
export async function instrument(files, kind) {
  allMutators.splice(0, allMutators.length, ...KINDS[kind]);
  const result = await new Instrumenter(SILENT).instrument(
    files.map(({ name, content }) => ({ name, content, mutate: true })),
    { plugins: null, excludedMutations: EXCLUDED, ignorers: [messages], noHeader: false },
  );
  return { files: result.files, mutants: result.mutants.filter(({ status }) => status !== "Ignored") };
}
