/** Finds the places where source code decides something by a name: comparisons, cases, searches, keys of tables, instanceof. */
import ts from "typescript";

/** The names to look for: strings, classes, and the tables whose rows have such names. */
export interface WatchedNames {
  readonly strings: ReadonlySet<string>;
  readonly classes: ReadonlySet<string>;
  readonly tables: ReadonlySet<string>;
  /** Strings that may not be keys of other tables. */
  readonly keys: ReadonlySet<string>;
}

const COMPARISONS: ReadonlySet<ts.SyntaxKind> = new Set([
  ts.SyntaxKind.EqualsEqualsEqualsToken,
  ts.SyntaxKind.ExclamationEqualsEqualsToken,
  ts.SyntaxKind.EqualsEqualsToken,
  ts.SyntaxKind.ExclamationEqualsToken,
]);

const SEARCHES: ReadonlySet<string> = new Set([
  "includes",
  "startsWith",
  "endsWith",
  "indexOf",
  "has",
  "test",
  "match",
]);

/** The names by which `text` decides something, in the order of the source. */
export function findDecisions(
  text: string,
  { strings, classes, tables, keys }: WatchedNames,
): readonly string[] {
  const file = ts.createSourceFile("source.ts", text, ts.ScriptTarget.Latest, true);
  const decisions: string[] = [];
  const literal = (node: ts.Node): string[] =>
    ts.isStringLiteralLike(node) && strings.has(node.text) ? [node.text] : [];
  const visit = (node: ts.Node): void => {
    decisions.push(...nodeDecisions(node));
    ts.forEachChild(node, visit);
  };
  const nodeDecisions = (node: ts.Node): readonly string[] => {
    if (ts.isBinaryExpression(node)) {
      const { kind } = node.operatorToken;
      if (COMPARISONS.has(kind)) return [...literal(node.left), ...literal(node.right)];
      const right = node.right.getText();
      return kind === ts.SyntaxKind.InstanceOfKeyword && classes.has(right) ? [right] : [];
    }
    if (ts.isCaseClause(node)) return literal(node.expression);
    if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression))
      return searchDecisions(node.expression, node.arguments);
    if (ts.isPropertyAccessExpression(node))
      return tables.has(node.expression.getText()) && strings.has(node.name.text) ? [node.name.text] : [];
    if (ts.isElementAccessExpression(node))
      return tables.has(node.expression.getText()) ? literal(node.argumentExpression) : [];
    if (ts.isPropertyAssignment(node) && (ts.isStringLiteral(node.name) || ts.isIdentifier(node.name)))
      return keys.has(node.name.text) ? [node.name.text] : [];
    return [];
  };
  const searchDecisions = (
    callee: ts.PropertyAccessExpression,
    args: readonly ts.Expression[],
  ): readonly string[] => {
    if (!SEARCHES.has(callee.name.text)) return [];
    const receiver = ts.isArrayLiteralExpression(callee.expression) ? callee.expression.elements : [];
    return [...receiver, ...args].flatMap(literal);
  };
  visit(file);
  return decisions;
}
