/** The source of the matrix. */
import { useMemo, useState } from "preact/hooks";
import { DISTRIBUTION_HELP } from "../data/distribution.js";
import { sizeOf } from "../data/file.js";
import { countOf, listOf, MAX_LISTED } from "../data/tensor-list.js";
import { INPUT_TYPES, type Source } from "../data/use-matrix.js";
import type { Params, SetParams } from "../params.js";
import { Choose, Example, Examples, Segments, TextField } from "../parts/controls.js";

const SOURCES = [
  ["draw", "distribution"],
  ["numbers", "pasted numbers"],
  ["file", "safetensors file"],
] as const;

const EXAMPLES = [
  "normal(0, 1)",
  "student(4)",
  "normal(0, 0.02) + outliers(0.1%, 50)",
  "uniform(-1, 1)",
  "ramp(-8, 8)",
];

interface SourceProps {
  readonly source: Source;
  readonly params: Params;
  readonly set: SetParams;
}

export function SourcePanel({ source, params, set }: SourceProps) {
  const [isOver, setOver] = useState(false);
  const open = async (files: readonly File[]) => {
    if (files.length === 0) return;
    const { name, tensor } = await source.open(files);
    set({ source: "file", file: name, tensor: tensor ?? "", from: "0,0", at: "" });
  };
  return (
    <section
      class={isOver ? "panel dropping" : "panel"}
      aria-labelledby="source-title"
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        open([...(event.dataTransfer?.files ?? [])]);
      }}
    >
      <div class="head">
        <h2 id="source-title">A tensor</h2>
        <Segments
          label="Source"
          value={params.source}
          onChange={(to) => set({ source: to, at: "" })}
          options={SOURCES}
        />
      </div>
      <div class="controls">
        {params.source === "draw" ? <Drawn source={source} params={params} set={set} /> : null}
        {params.source === "numbers" ? (
          <TextField
            label="Numbers; each line is a row"
            value={params.numbers}
            onChange={(numbers) => set({ numbers, at: "" })}
            fault={source.fault}
            lines={5}
            wide
          />
        ) : null}
        {params.source === "file" ? (
          <Dropped source={source} params={params} set={set} onOpen={open} />
        ) : null}
        <Choose
          label="Input type"
          value={params.dtype}
          onChange={(dtype) => set({ dtype })}
          options={INPUT_TYPES.map((value) => ({ value }))}
        />
      </div>
      {params.source === "draw" ? (
        <Examples>
          {EXAMPLES.map((text) => (
            <Example key={text} text={text} onPick={() => set({ draw: text, at: "" })} />
          ))}
        </Examples>
      ) : null}
    </section>
  );
}

function Drawn({ source, params, set }: SourceProps) {
  return (
    <>
      <TextField
        label={`Distribution: ${DISTRIBUTION_HELP.map((text) => text.split("(")[0]).join(", ")}`}
        value={params.draw}
        onChange={(draw) => set({ draw, at: "" })}
        fault={source.fault}
        wide
      />
      <TextField label="Rows" kind="number" value={params.rows} onChange={(rows) => set({ rows, at: "" })} />
      <TextField
        label="Columns"
        kind="number"
        value={params.columns}
        onChange={(columns) => set({ columns, at: "" })}
      />
      <TextField label="Seed" kind="number" value={params.seed} onChange={(seed) => set({ seed, at: "" })} />
    </>
  );
}

function Dropped({
  source,
  params,
  set,
  onOpen,
}: SourceProps & { readonly onOpen: (files: readonly File[]) => void }) {
  const { file, fault } = source;
  const [part, setPart] = useState("");
  const count = file ? countOf(file) : 0;
  const listed = useMemo(() => (file ? listOf(file, part, params.tensor) : []), [file, part, params.tensor]);
  const shown = file?.quantized.get(params.tensor) ?? file?.tensors.get(params.tensor);
  return (
    <>
      <div class="field wide">
        <label for="file">
          Drop a file anywhere in this box, or choose it; its config.json too, if there is one
        </label>
        <input
          id="file"
          type="file"
          accept=".safetensors,.json"
          multiple
          onChange={(event) => onOpen([...(event.currentTarget.files ?? [])])}
        />
        {fault ? <p class={file ? "fault" : "hint"}>{fault}</p> : null}
      </div>
      {file ? (
        <>
          {count > MAX_LISTED ? (
            <TextField
              label={`Part of a name: ${listed.length === MAX_LISTED ? "the first " : ""}${listed.length} of ${count} tensors are listed`}
              value={part}
              onChange={setPart}
            />
          ) : null}
          <Choose
            label={`Tensor of ${file.name}`}
            value={params.tensor}
            onChange={(tensor) => set({ tensor, from: "0,0", at: "" })}
            options={listed}
          />
          <TextField
            label={`From row, column${shown ? ` of ${sizeOf(shown).join(" × ")}` : ""}`}
            value={params.from}
            onChange={(from) => set({ from, at: "" })}
          />
        </>
      ) : null}
    </>
  );
}
