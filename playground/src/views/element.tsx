/** One element under both dialects, step by step, and why they differ. */
import { ELEMENT_SCALINGS, explainDifference, type QuantizeExplanation, SCALE_RULES } from "lockstep";
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { Bits } from "../parts/bits.js";
import { NumberLine } from "../parts/number-line.js";
import { differenceAt, explainElement, type Pair, type Quantization } from "../reference/index.js";
import { codeText, decisionText, percent, show, stepText } from "../words.js";

export function ElementPanel({
  pair,
  at,
}: {
  readonly pair: Pair;
  readonly at: { readonly row: number; readonly column: number };
}) {
  const { a, b } = pair;
  const { row, column } = at;
  const [first, second] = useMemo(
    () => [explainElement(a, row, column), explainElement(b, row, column)] as const,
    [a, b, row, column],
  );
  const difference = differenceAt(a, b, row * a.columns + column);
  const why = difference === "none" ? [] : explainDifference(first, second).words;
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
        <Steps explained={first} quantization={a} name="A" />
        <Steps explained={second} quantization={b} name="B" />
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

function Formulas({ of }: { readonly of: QuantizeExplanation["scaled"] }) {
  return of.steps.map((step) => (
    <span class="formula" key={stepText(step)}>
      {stepText(step)}
    </span>
  ));
}

function Steps({
  explained,
  quantization,
  name,
}: {
  readonly explained: QuantizeExplanation;
  readonly quantization: Quantization;
  readonly name: "A" | "B";
}) {
  const { spec, input, block, tensorAmax, tensorScale, scale, scaled, rounding, code, dequantized } =
    explained;
  return (
    <div class={`side side-${name.toLowerCase()}`}>
      <h3 class={`name-${name.toLowerCase()}`}>{name}</h3>
      <dl>
        {block ? <Block block={block} quantization={quantization} /> : null}
        {tensorAmax ? <Step title="amax of the tensor">{show(tensorAmax.value, 9)}</Step> : null}
        {tensorScale ? (
          <Step title="scale of the tensor">
            {show(tensorScale.value, 9)}
            <Formulas of={tensorScale} />
          </Step>
        ) : null}
        <Step title={`scale, ${spec.scaleRule}: ${SCALE_RULES[spec.scaleRule].formula}`}>
          {show(scale.value, 9)} <code>{codeText(scale.code, scale.dtype)}</code>
          <Formulas of={scale} />
        </Step>
        <Step title={`scaled, ${spec.elementScaling}: ${ELEMENT_SCALINGS[spec.elementScaling].formula}`}>
          {show(scaled.value, 9)}
          <Formulas of={scaled} />
        </Step>
        <Step title={`rounded to ${spec.format}`}>
          <NumberLine rounding={rounding} labels />
          {decisionText(rounding)}
        </Step>
        <Step title="code">
          <Bits code={code} format={spec.format} /> <code>{codeText(code, spec.format)}</code> ={" "}
          {show(rounding.result)}
        </Step>
        <Step title="value">
          {show(dequantized.value, 9)} <span class="soft">{errorText(dequantized.value, input)}</span>
          <Formulas of={dequantized} />
        </Step>
      </dl>
    </div>
  );
}

function Block({
  block,
  quantization: { rows, columns },
}: {
  readonly block: NonNullable<QuantizeExplanation["block"]>;
  readonly quantization: Quantization;
}) {
  const { top, left, amax } = block;
  // without the zero padding of the matrix
  const [bottom, right] = [Math.min(block.bottom, rows), Math.min(block.right, columns)];
  return (
    <Step title={`amax of its ${bottom - top} × ${right - left} block`}>
      {show(amax.value, 9)}{" "}
      {amax.at ? (
        <span class="soft">
          at row {amax.at[0]}, column {amax.at[1]}
        </span>
      ) : null}
    </Step>
  );
}

function errorText(value: number, input: number): string {
  if (value === input) return "exact";
  if (input === 0 || !Number.isFinite(input)) return "";
  return `${percent((value - input) / Math.abs(input))} of the input`;
}
