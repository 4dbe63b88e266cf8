/** One element under both dialects, step by step, and why they differ. */
import type { Backend } from "lockstep";
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { Bits } from "../parts/bits.js";
import { NumberLine } from "../parts/number-line.js";
import {
  differenceAt,
  type ElementAnswer,
  explainElement,
  type Pair,
  type Quantization,
  reasons,
} from "../reference/index.js";
import { codeText, decisionText, percent, show } from "../words.js";

export function ElementPanel({
  backend,
  pair,
  at,
}: {
  readonly backend: Backend;
  readonly pair: Pair;
  readonly at: { readonly row: number; readonly column: number };
}) {
  const { a, b } = pair;
  const { row, column } = at;
  const [first, second] = useMemo(
    () => [explainElement(backend, a, row, column), explainElement(backend, b, row, column)] as const,
    [backend, a, b, row, column],
  );
  const difference = differenceAt(a, b, row * a.columns + column);
  const why = difference === "none" ? [] : reasons(first, second, [a.spec.format, b.spec.format]);
  return (
    <section class="panel" aria-labelledby="element-title">
      <h2 id="element-title">
        Row {row}, column {column}: <span class="digits">{show(first.input, 9)}</span>
      </h2>
      <div class="why" aria-live="polite">
        {difference === "value" ? null : <p>Both dialects give this element the same value.</p>}
        {why.map((text) => (
          <p key={text}>{text}</p>
        ))}
      </div>
      <div class="pair">
        <Steps answer={first} quantization={a} name="A" />
        <Steps answer={second} quantization={b} name="B" />
      </div>
    </section>
  );
}

function Step({ title, children }: { readonly title: string; readonly children: ComponentChildren }) {
  return (
    <>
      <dt>{title}</dt>
      <dd>{children}</dd>
    </>
  );
}

function Steps({
  answer,
  quantization,
  name,
}: {
  readonly answer: ElementAnswer;
  readonly quantization: Quantization;
  readonly name: "A" | "B";
}) {
  const { amax, amaxAt, block, rule, scale, scaling, rounded, element, value, input } = answer;
  const { spec, scales } = quantization;
  const [tall, long] = [block.rows[1] - block.rows[0], block.columns[1] - block.columns[0]];
  return (
    <div class={`side side-${name.toLowerCase()}`}>
      <h3 class={`name-${name.toLowerCase()}`}>{name}</h3>
      <dl>
        <Step title={`amax of its ${tall} × ${long} block`}>
          {show(amax, 9)}{" "}
          <span class="soft">
            at row {amaxAt[0]}, column {amaxAt[1]}
          </span>
        </Step>
        {scales.tensorAmax === undefined ? null : (
          <Step title="amax of the tensor">{show(scales.tensorAmax, 9)}</Step>
        )}
        <Step title={`scale, ${spec.scaleRule}`}>
          {show(scale.value, 9)} <code>{codeText(scale.code, scale.format)}</code>
          <span class="formula">{rule.formula}</span>
        </Step>
        <Step title={`input / scale, ${spec.elementScaling}`}>
          {rounded ? show(rounded.input, 9) : "not finite"}
          <span class="formula">{scaling.formula}</span>
        </Step>
        {rounded ? (
          <Step title={`rounded to ${spec.format}`}>
            <NumberLine rounded={rounded} labels />
            {decisionText(rounded, "tiesToEven")}
          </Step>
        ) : null}
        <Step title="code">
          <Bits code={element.code} format={spec.format} /> <code>{codeText(element.code, spec.format)}</code>{" "}
          = {show(element.value)}
        </Step>
        <Step title="value, code × scale">
          {show(value, 9)} <span class="soft">{errorText(value, input)}</span>
        </Step>
      </dl>
    </div>
  );
}

function errorText(value: number, input: number): string {
  if (value === input) return "exact";
  if (input === 0 || !Number.isFinite(input)) return "";
  return `${percent((value - input) / Math.abs(input))} of the input`;
}
