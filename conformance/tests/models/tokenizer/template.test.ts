/** Templates are rendered as Jinja renders them, but in bounded time and memory. */
import { Template } from "@huggingface/jinja";
import { expect, it } from "vitest";
import { renderBounded } from "../../../../src/models/tokenizer/template.js";
import { sampleCases } from "../../harness/draws.js";

const VALUES = { messages: [{ role: "user", content: "Hi" }], bos_token: "<s>" };
const render = (source: string): string => renderBounded(new Template(source), VALUES);

it.each([
  "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m['content'] | trim }}{% endfor %}",
  "{% for i in range(3) %}{{ i }}{% endfor %}{% for i in range(1, 9, 3) %}{{ i }}{% endfor %}",
  "{% for i in range(5, 0, -2) %}{{ i }}{% endfor %}{% for i in range(3, 1) %}{{ i }}{% endfor %}",
  "{% if true and True and not false and none == None and not False %}{{ range is defined }}{% endif %}",
  "{{ strftime_now('%Y') }}{% set ns = namespace(n=1) %}{% for i in range(9) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
  "{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(1) }}{% for m in messages if m.role == 'user' %}{{ loop.last }}{% endfor %}",
])("%s is rendered as by @huggingface/jinja", (source) => {
  expect(render(source)).toBe(new Template(source).render(VALUES));
});

const DOUBLED =
  "{% set ns = namespace(x=START) %}{% for i in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}";

const ENDLESS = [
  "{% for i in range(1000000000) %}x{% endfor %}",
  "{% for i in range(0, 1, 0) %}x{% endfor %}",
  "{% set r = range(65536) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
  "{% set r = range(65536) %}{% for a in r %}{% for b in r if b < 0 %}{% endfor %}{% endfor %}",
  DOUBLED.replace("START", "[1]"),
  DOUBLED.replace("START", "'abcdefgh'"),
];

it.each(sampleCases(ENDLESS))("%s ends with an error", (source) => {
  expect(() => render(source)).toThrow(/it takes more than 4194304 steps|65536 are the most|string length/);
});

it("a template says why it refuses messages", () => {
  expect(() => render("{{ raise_exception('no system') }}")).toThrow(/^no system$/);
});

it("a conversation of 2000 messages is rendered", () => {
  const messages = new Array(2000).fill({ role: "user", content: "x".repeat(1000) });
  const source =
    "{% for m in messages %}{% if loop.index0 > 0 and messages[loop.index0 - 1].role == m.role %}{{ m.content | trim }}{% endif %}{% endfor %}";
  expect(renderBounded(new Template(source), { messages })).toBe("x".repeat(1999 * 1000));
});
