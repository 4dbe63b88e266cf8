// Instruments C++ and CUDA sources with marks that record which loops ran one and two iterations, and which way each
// `if` went. It maps the text of a source to the text with marks; turns.h defines the functions that the marks call.
import { createRequire } from "node:module";
import { Language, Parser } from "web-tree-sitter";

/** @typedef {{ kind: "loop" | "branch", line: number, text: string }} Site */

const LOOPS = ["for_statement", "for_range_loop", "while_statement", "do_statement"];

/**
 * A parser for CUDA, which includes C++.
 *
 * @returns {Promise<Parser>}
 */
export async function cudaParser() {
  await Parser.init();
  const grammar = createRequire(import.meta.url).resolve("tree-sitter-cuda/tree-sitter-cuda.wasm");
  return new Parser().setLanguage(await Language.load(grammar));
}

/** The ancestors of `node`, starting with itself. */
function* ancestors(node) {
  for (let at = node.parent; at; at = at.parent) yield at;
}

/** The names of template parameters that are visible at this node. */
function templateNames(node) {
  const names = new Set();
  for (const each of ancestors(node)) {
    const parameters = each.type === "template_declaration" && each.childForFieldName("parameters");
    for (const name of parameters ? parameters.descendantsOfType("identifier") : []) names.add(name.text);
  }
  return names;
}

/**
 * Whether the node lies in a constexpr function. Such functions get no marks, because the compiler may evaluate them.
 */
function isConstexpr(node) {
  for (const each of ancestors(node)) {
    if (each.type !== "function_definition") continue;
    const head = each.text.slice(0, each.childForFieldName("declarator").startIndex - each.startIndex);
    if (/\b(constexpr|consteval)\b/.test(head)) return true;
  }
  return false;
}

/**
 * Whether the loop's number of iterations is fixed in the source: its bounds are constants (named kName) or template
 * parameters.
 */
function isCounted(loop) {
  if (loop.type === "for_range_loop") return loop.childForFieldName("right")?.type === "initializer_list";
  if (loop.type !== "for_statement") return false;
  const [first, bound, next] = ["initializer", "condition", "update"].map((field) =>
    loop.childForFieldName(field),
  );
  if (!first || !bound || !next || first.type !== "declaration") return false;
  const declared = first
    .descendantsOfType("init_declarator")
    .map((each) => each.childForFieldName("declarator").text);
  const names = new Set([...declared, ...templateNames(loop)]);
  return [first, bound, next].every((part) => {
    if (part.descendantsOfType(["call_expression", "subscript_expression", "field_expression"]).length > 0)
      return false;
    return part.descendantsOfType("identifier").every(({ text }) => names.has(text) || /^k[A-Z]/.test(text));
  });
}

/** The first of the pragmas directly before a statement, or the statement itself. */
function beginOf(statement) {
  let first = statement;
  while (first.previousSibling?.type === "preproc_call" && first.previousSibling.text.startsWith("#pragma"))
    first = first.previousSibling;
  return first.startIndex;
}

/** The head of a statement on one line, in the form of reports and of the table of exceptions. */
function headOf(source, from, to) {
  return source.slice(from, to).replace(/\s+/g, " ").trim();
}

/**
 * Returns `source` with marks, and the marked sites { kind, line, text }, numbered from `first`. With `branches` it
 * also marks the conditions of `if`. `loops` is the number of all loops, unmarked ones included.
 *
 * @returns {{ text: string, sites: Site[], loops: number }}
 */
export function instrument(parser, source, { first = 0, branches = false } = {}) {
  const tree = parser.parse(source);
  const sites = [];
  const insertions = [];
  const insert = (at, rank, text) => insertions.push({ at, rank, order: insertions.length, text });
  const add = (kind, node, text) => {
    sites.push({ kind, line: node.startPosition.row + 1, text });
    return first + sites.length - 1;
  };

  const markLoop = (node) => {
    const body = node.childForFieldName("body");
    const text = node.type === "do_statement" ? "do" : headOf(source, node.startIndex, body.startIndex);
    const site = add("loop", node, text);
    const turn = `lockstepTurn${site}`;
    const mark = `::lockstep::turns::turn(${site}, ${turn});`;
    insert(beginOf(node), 1, `{ int ${turn} = 0;\n`);
    if (body.type === "compound_statement") insert(body.startIndex + 1, 1, mark);
    else insert(body.startIndex, 1, `{ ${mark} `);
    return () => {
      if (body.type !== "compound_statement") insert(body.endIndex, 0, " }");
      insert(node.endIndex, 0, " }");
    };
  };

  const markBranch = (node) => {
    const condition = node.childForFieldName("condition")?.childForFieldName("value");
    if (!condition || condition.type === "declaration" || /^if\s+constexpr/.test(node.text)) return undefined;
    const site = add(
      "branch",
      node,
      headOf(source, node.startIndex, node.childForFieldName("condition").endIndex),
    );
    insert(condition.startIndex, 1, `::lockstep::turns::branch(${site}, static_cast<bool>(`);
    return () => insert(condition.endIndex, 0, "))");
  };

  const markOf = (node) => {
    if (LOOPS.includes(node.type)) return isCounted(node) ? undefined : markLoop;
    return branches && node.type === "if_statement" ? markBranch : undefined;
  };

  let loops = 0;
  const walk = (node) => {
    if (LOOPS.includes(node.type)) loops++;
    const mark = markOf(node);
    const close = mark && !isConstexpr(node) ? mark(node) : undefined;
    for (const child of node.children) if (child) walk(child);
    close?.();
  };
  walk(tree.rootNode);

  insertions.sort((a, b) => a.at - b.at || a.rank - b.rank || a.order - b.order);
  let text = "";
  let at = 0;
  for (const each of insertions) {
    text += source.slice(at, each.at) + each.text;
    at = each.at;
  }
  return { text: text + source.slice(at), sites, loops };
}
