/**
 * Mutators that confuse names: a field, argument or variable is replaced by a similar one, exchanged with its neighbour, or left
 * out.
 */
import babel from "@babel/core";

const { types } = babel;
const clone = (node) => types.cloneNode(node, true, false);
const textOf = (path, { start, end }) => path.hub.file.code.slice(start, end);

/** The names after `name` in the list, continuing at its start; at most `most`. They are tried in place of `name`. */
function nextOf(names, name, most) {
  const at = names.indexOf(name);
  return [...names.slice(at + 1), ...names.slice(0, at)].slice(0, most);
}

/** Calls `swap(i)` for each two adjacent, different nodes i and i + 1 of a list. String literals are skipped. */
function* neighbours(list, swap) {
  for (let i = 0; i + 1 < list.length; i++) {
    const [one, other] = [list[i], list[i + 1]];
    const isText = [one, other].some((each) => types.isStringLiteral(each) || types.isTemplateLiteral(each));
    if (one && other && !isText && !types.isNodesEquivalent(one, other)) yield swap(i);
  }
}

function exchanged(list, i) {
  const copy = list.map((each) => each && clone(each));
  [copy[i], copy[i + 1]] = [copy[i + 1], copy[i]];
  return copy;
}

/** Exchanges the values of two adjacent properties of an object literal. */
const fieldExchange = {
  name: "FieldExchange",
  *mutate(path) {
    if (!path.isObjectExpression()) return;
    const { properties } = path.node;
    const fieldValue = (each) => (types.isObjectProperty(each) ? each.value : undefined);
    yield* neighbours(properties.map(fieldValue), (i) => {
      const values = exchanged(properties.map(fieldValue), i);
      return types.objectExpression(
        properties.map((each, at) => {
          if (at !== i && at !== i + 1) return clone(each);
          return types.objectProperty(clone(each.key), values[at], each.computed);
        }),
      );
    });
  },
};

/** Exchanges two adjacent arguments of a call. */
const argumentExchange = {
  name: "ArgumentExchange",
  *mutate(path) {
    if (!path.isCallExpression() && !path.isNewExpression()) return;
    if (types.isSuper(path.node.callee)) return;
    yield* neighbours(path.node.arguments, (i) => {
      const call = clone(path.node);
      call.arguments = exchanged(path.node.arguments, i);
      return call;
    });
  },
};

/** Exchanges two adjacent elements of an array literal, or removes one element. */
const elementExchange = {
  name: "ElementExchange",
  *mutate(path) {
    if (!path.isArrayExpression() || path.node.elements.length < 2) return;
    const { elements } = path.node;
    yield* neighbours(elements, (i) => types.arrayExpression(exchanged(elements, i)));
    for (const left of elements)
      yield types.arrayExpression(
        elements.filter((each) => each !== left).map((each) => each && clone(each)),
      );
  },
};

/** Replaces a call by one of its arguments. */
const callForgotten = {
  name: "CallForgotten",
  *mutate(path) {
    if (!path.isCallExpression() || path.parentPath.isExpressionStatement()) return;
    if (types.isSuper(path.node.callee)) return;
    for (const each of path.node.arguments)
      if (types.isIdentifier(each) || types.isMemberExpression(each) || types.isCallExpression(each))
        yield clone(each);
  },
};

/** Replaces `a ?? b` by `a`, and by `b`. */
const defaultForgotten = {
  name: "DefaultForgotten",
  *mutate(path) {
    if (!path.isLogicalExpression({ operator: "??" })) return;
    yield clone(path.node.left);
    yield clone(path.node.right);
  },
};

const fieldsOfFiles = new WeakMap();

/** Returns, for the text of each object expression, all fields that the file reads of that object. */
function fieldsOf(path) {
  const program = path.findParent((each) => each.isProgram());
  const cached = fieldsOfFiles.get(program.node);
  if (cached) return cached;
  const fields = new Map();
  const add = (object, name) => {
    const names = fields.get(object) ?? new Set();
    names.add(name);
    fields.set(object, names);
  };
  program.traverse({
    MemberExpression({ node }) {
      if (!node.computed && types.isIdentifier(node.property))
        add(textOf(path, node.object), node.property.name);
    },
    VariableDeclarator({ node }) {
      if (!types.isObjectPattern(node.id) || !node.init) return;
      for (const each of node.id.properties)
        if (types.isObjectProperty(each) && types.isIdentifier(each.key))
          add(textOf(path, node.init), each.key.name);
    },
  });
  fieldsOfFiles.set(program.node, fields);
  return fields;
}

const isRead = (path) =>
  !(path.parentPath.isAssignmentExpression() && path.key === "left") &&
  !(path.key === "callee") &&
  !path.parentPath.isUpdateExpression() &&
  !path.parentPath.isUnaryExpression({ operator: "delete" });

/** Replaces a field by another field of the same object, or by undefined. */
const otherField = {
  name: "OtherField",
  *mutate(path) {
    if (!path.isMemberExpression() || path.node.computed || !isRead(path)) return;
    const { object, property } = path.node;
    if (!types.isIdentifier(property)) return;
    const names = [...(fieldsOf(path).get(textOf(path, object)) ?? [])];
    for (const name of nextOf(names, property.name, 2))
      yield types.memberExpression(clone(object), types.identifier(name));
    if (!path.parentPath.isMemberExpression()) yield types.identifier("undefined");
  },
};

/** Removes one option from an object that is being destructured. */
const optionForgotten = {
  name: "OptionForgotten",
  *mutate(path) {
    const { parent } = path;
    if (!types.isVariableDeclarator(parent) || path.key !== "init" || !types.isObjectPattern(parent.id))
      return;
    if (!path.isIdentifier() && !path.isMemberExpression()) return;
    for (const each of parent.id.properties)
      if (types.isObjectProperty(each) && types.isIdentifier(each.key))
        yield types.objectExpression([
          types.spreadElement(clone(path.node)),
          types.objectProperty(clone(each.key), types.identifier("undefined")),
        ]);
  },
};

const parametersOf = ({ bindings }) =>
  Object.keys(bindings).filter((name) => bindings[name].kind === "param");

/** Replaces a variable by another one of the same declaration, or a parameter by another parameter. */
const otherVariable = {
  name: "OtherVariable",
  *mutate(path) {
    if (!path.isIdentifier() || path.node.name === "undefined") return;
    const { parentPath } = path;
    const used =
      (parentPath.isCallExpression() && path.listKey === "arguments") ||
      (parentPath.isObjectProperty() && path.key === "value" && parentPath.parentPath.isObjectExpression()) ||
      parentPath.isArrayExpression() ||
      parentPath.isBinaryExpression();
    const binding = used && path.scope.getBinding(path.node.name);
    if (!binding || !["const", "let", "param"].includes(binding.kind)) return;
    const names =
      binding.kind === "param"
        ? parametersOf(binding.scope)
        : Object.keys(binding.path.getBindingIdentifiers());
    for (const name of nextOf(names, path.node.name, 1)) yield types.identifier(name);
  },
};

export const EXCHANGES = [
  fieldExchange,
  argumentExchange,
  elementExchange,
  callForgotten,
  defaultForgotten,
  otherField,
  optionForgotten,
  otherVariable,
];
