// Marks in C++ and CUDA sources: which loops took a turn and a second one, and which way each `if` went. The text of a
// source goes in, the text with marks comes out; turns.h has what the marks call.
import { createRequire } from "node:module";
import { Language, Parser } from "web-tree-sitter";

/** @typedef {{ kind: "loop" | "branch", line: number, text: string }} Site */

const LOOPS = ["for_statement", "for_range_loop", "while_statement", "do_statement"];

/** A parser of CUDA, of which C++ is a part. @returns {Promise<Parser>} */
export async function cudaParser() {
  await Parser.init();
  const grammar = createRequire(import.meta.url).resolve("tree-sitter-cuda/tree-sitter-cuda.wasm");
  return new Parser().setLanguage(await Language.load(grammar));
}

/** Nodes from `node` outwards. */
function* ancestors(node) {
  for (let at = node.parent; at; at = at.parent) yield at;
}

/** Names that are known when a template is compiled, at this node. */
function templateNames(node) {
  const names = new Set();
  for (const each of ancestors(node)) {
    const parameters = each.type === "template_declaration" && each.childForFieldName("parameters");
    for (const name of parameters ? parameters.descendantsOfType("identifier") : []) names.add(name.text);
  }
  return names;
}

/** Whether a compiler may run the function around this node: no marks there. */
function isConstexpr(node) {
  for (const each of ancestors(node)) {
    if (each.type !== "function_definition") continue;
    const head = each.text.slice(0, each.childForFieldName("declarator").startIndex - each.startIndex);
    if (/\b(constexpr|consteval)\b/.test(head)) return true;
  }
  return false;
}

/** Whether the number of turns is written in the source: bounds are constants, which are named kName, or template parameters. */
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
  const known = new Set([...declared, ...templateNames(loop)]);
  return [first, bound, next].every((part) => {
    if (part.descendantsOfType(["call_expression", "subscript_expression", "field_expression"]).length > 0)
      return false;
    return part.descendantsOfType("identifier").every(({ text }) => known.has(text) || /^k[A-Z]/.test(text));
  });
}

/** The pragmas right before a statement, or the statement. */
function beginOf(statement) {
  let first = statement;
  while (first.previousSibling?.type === "preproc_call" && first.previousSibling.text.startsWith("#pragma"))
    first = first.previousSibling;
  return first.startIndex;
}

/** One line of a node's head, for people to read and for a table to name it by. */
function headOf(source, from, to) {
  return source.slice(from, to).replace(/\s+/g, " ").trim();
}

/**
 * `source` with marks, and what they mark: sites { kind, line, text } numbered from `first`. With `branches`, the
 * conditions of `if` too. `loops` counts all loops, those without marks too.
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
