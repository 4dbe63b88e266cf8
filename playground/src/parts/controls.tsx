/** Controls with their labels. */
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface FieldProps {
  readonly label: string;
  readonly value: string;
  readonly onChange: (value: string) => void;
}

/** A text field. `fault` describes an error in its content. */
export function TextField({
  label,
  value,
  onChange,
  fault,
  kind = "text",
  wide = false,
  lines,
}: FieldProps & {
  readonly fault?: string | undefined;
  readonly kind?: "text" | "number";
  readonly wide?: boolean;
  readonly lines?: number;
}) {
  const id = useId();
  const shared = {
    id,
    value,
    spellcheck: false,
    autocomplete: "off",
    "aria-invalid": fault ? true : undefined,
    "aria-describedby": fault ? `${id}-fault` : undefined,
    onInput: (event: { readonly currentTarget: { readonly value: string } }) =>
      onChange(event.currentTarget.value),
  } as const;
  return (
    <div class={wide ? "field wide" : "field"}>
      <label for={id}>{label}</label>
      {lines ? (
        <textarea {...shared} rows={lines} />
      ) : kind === "number" ? (
        <input {...shared} type="number" />
      ) : (
        <input {...shared} type="text" />
      )}
      {fault ? (
        <p class="fault" id={`${id}-fault`}>
          {fault}
        </p>
      ) : null}
    </div>
  );
}

/** A choice from a list. Options with a group are listed under its name. */
export function Choose({
  label,
  value,
  onChange,
  options,
}: FieldProps & {
  readonly options: readonly { readonly value: string; readonly text?: string; readonly group?: string }[];
}) {
  const id = useId();
  const groups = [...new Set(options.map(({ group }) => group))];
  const shown = (group: string | undefined) =>
    options
      .filter((option) => option.group === group)
      .map((option) => (
        <option key={option.value} value={option.value}>
          {option.text ?? option.value}
        </option>
      ));
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {groups.map((group) =>
          group === undefined ? (
            shown(group)
          ) : (
            <optgroup key={group} label={group}>
              {shown(group)}
            </optgroup>
          ),
        )}
      </select>
    </div>
  );
}

/** A group of buttons, one of which is pressed. */
export function Segments({
  label,
  value,
  onChange,
  options,
}: FieldProps & {
  readonly options: readonly (readonly [value: string, text: string])[];
}) {
  return (
    <fieldset class="segments">
      <legend class="hidden">{label}</legend>
      {options.map(([each, text]) => (
        <button type="button" key={each} aria-pressed={each === value} onClick={() => onChange(each)}>
          {text}
        </button>
      ))}
    </fieldset>
  );
}

/** A list of examples. */
export function Examples({ children }: { readonly children: ComponentChildren }) {
  return <p class="examples">{children}</p>;
}

/** A button that sets an example. */
export function Example({ text, onPick }: { readonly text: string; readonly onPick: () => void }) {
  return (
    <button type="button" class="chip" onClick={onPick}>
      {text}
    </button>
  );
}
