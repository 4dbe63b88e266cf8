/** A language model in f64 and plain loops. It tests the structure of a model: which operation follows which. */
import type { TinyModel } from "./tiny-model.js";

type Vector = readonly number[];

const dot = (a: Vector, b: Vector): number => a.reduce((sum, x, i) => sum + x * (b[i] as number), 0);
const plus = (a: Vector, b: Vector): Vector => a.map((x, i) => x + (b[i] as number));

/** The logits of each position of a text. */
export function plainLogits({ config, tensors }: TinyModel, tokens: readonly number[]): readonly Vector[] {
  const number = (name: string): number => Number(config[name]);
  const [heads, groups, width] = [
    number("num_attention_heads"),
    number("num_key_value_heads"),
    number("head_dim"),
  ];
  const values = (name: string): Vector | undefined => {
    const entry = tensors.get(name);
    return entry && [...entry.values];
  };
  const rows = (name: string): readonly Vector[] => {
    const { shape, values: allValues } = tensors.get(name) as NonNullable<ReturnType<typeof tensors.get>>;
    const [count, columns] = shape as readonly [number, number];
    return Array.from({ length: count }, (_, i) => [...allValues.subarray(i * columns, (i + 1) * columns)]);
  };
  const linear = (name: string, x: Vector): Vector => {
    const out = rows(`${name}.weight`).map((row) => dot(row, x));
    const bias = values(`${name}.bias`);
    return bias ? plus(out, bias) : out;
  };
  const norm = (name: string, x: Vector): Vector => {
    const weight = values(`${name}.weight`);
    if (!weight) return x;
    const factor = 1 / Math.sqrt(dot(x, x) / x.length + number("rms_norm_eps"));
    return x.map((value, i) => value * factor * (weight[i] as number));
  };
  const { inverse, factor } = frequencies(config, width);
  const rotate = (x: Vector, position: number): Vector =>
    x.map((value, i) => {
      const half = width / 2;
      const angle = position * (inverse[i % half] as number);
      const partner = i < half ? -(x[i + half] as number) : (x[i - half] as number);
      return factor * (value * Math.cos(angle) + partner * Math.sin(angle));
    });
  const split = (x: Vector): readonly Vector[] =>
    Array.from({ length: x.length / width }, (_, i) => x.slice(i * width, (i + 1) * width));
  const dense = (prefix: string, x: Vector): Vector => {
    const gate = linear(`${prefix}.gate_proj`, x).map((value) => value / (1 + Math.exp(-value)));
    const up = linear(`${prefix}.up_proj`, x);
    return linear(
      `${prefix}.down_proj`,
      gate.map((value, i) => value * (up[i] as number)),
    );
  };
  const feedForward = (prefix: string, x: Vector): Vector => {
    if (!tensors.has(`${prefix}.gate.weight`)) return dense(prefix, x);
    const scores = linear(`${prefix}.gate`, x).map(Math.exp);
    const expertIndices = scores
      .map((_, i) => i)
      .sort((i, j) => (scores[j] as number) - (scores[i] as number))
      .slice(0, number("num_experts_per_tok"));
    const total = (config.norm_topk_prob ? expertIndices : scores.map((_, i) => i)).reduce(
      (sum, i) => sum + (scores[i] as number),
      0,
    );
    return expertIndices
      .map(
        (i): Vector =>
          dense(`${prefix}.experts.${i}`, x).map((value) => (value * (scores[i] as number)) / total),
      )
      .reduce(plus);
  };

  let hidden = tokens.map((token) => rows("model.embed_tokens.weight")[token] as Vector);
  for (let layer = 0; layer < number("num_hidden_layers"); layer++) {
    const prefix = `model.layers.${layer}`;
    const inputs = hidden.map((x) => norm(`${prefix}.input_layernorm`, x));
    const headsOf = (kind: "q" | "k"): readonly (readonly Vector[])[] =>
      inputs.map((x, position) =>
        split(linear(`${prefix}.self_attn.${kind}_proj`, x)).map((head) =>
          rotate(norm(`${prefix}.self_attn.${kind}_norm`, head), position),
        ),
      );
    const [queries, keys] = [headsOf("q"), headsOf("k")];
    const keyValues = inputs.map((x) => split(linear(`${prefix}.self_attn.v_proj`, x)));
    const firstVisible = (position: number): number =>
      slides(config, layer) ? Math.max(0, position - number("sliding_window") + 1) : 0;
    hidden = hidden.map((x, position) => {
      const attended = Array.from({ length: heads }, (_, head) => {
        const group = Math.floor(head / (heads / groups));
        const visible = Array.from({ length: position + 1 }, (_, j) => j).slice(firstVisible(position));
        const query = queries[position]?.[head] as Vector;
        const scores = visible.map((j) =>
          Math.exp(dot(query, keys[j]?.[group] as Vector) / Math.sqrt(width)),
        );
        const total = scores.reduce((sum, score) => sum + score, 0);
        return Array.from({ length: width }, (_, dimension) =>
          visible.reduce(
            (sum, j, i) =>
              sum + ((scores[i] as number) / total) * (keyValues[j]?.[group]?.[dimension] as number),
            0,
          ),
        );
      }).flat();
      const middle = plus(x, linear(`${prefix}.self_attn.o_proj`, attended));
      const y = norm(`${prefix}.post_attention_layernorm`, middle);
      return plus(middle, feedForward(`${prefix}.mlp`, y));
    });
  }
  const head = config.tie_word_embeddings ? "model.embed_tokens" : "lm_head";
  return hidden.map((x) => linear(head, norm("model.norm", x)));
}

function slides(config: TinyModel["config"], layer: number): boolean {
  if (config.sliding_window === undefined) return false;
  const isEvery = ["mistral", "qwen3_moe"].includes(String(config.model_type));
  return isEvery || layer >= Number(config.max_window_layers);
}

/** The frequencies of pairs, and the factor of cosines and sines. */
function frequencies(config: TinyModel["config"], width: number) {
  const parameters = config.rope_parameters as { rope_theta: number } | undefined;
  const theta = Number(config.rope_theta ?? parameters?.rope_theta);
  const frequencies = Array.from({ length: width / 2 }, (_, i) => theta ** ((-2 * i) / width));
  const rule = config.rope_scaling as Readonly<Record<string, number | string>> | undefined;
  if (!rule) return { inverse: frequencies, factor: 1 };
  const scale = Number(rule.factor);
  const original = Number(rule.original_max_position_embeddings);
  if ((rule.rope_type ?? rule.type) === "linear")
    return { inverse: frequencies.map((frequency) => frequency / scale), factor: 1 };
  if (rule.rope_type === "llama3") {
    const [low, high] = [Number(rule.low_freq_factor), Number(rule.high_freq_factor)];
    const inverse = frequencies.map((frequency) => {
      const rotations = (original * frequency) / (2 * Math.PI);
      const keptShare = Math.min(1, Math.max(0, (rotations - low) / (high - low)));
      return frequency * (keptShare + (1 - keptShare) / scale);
    });
    return { inverse, factor: 1 };
  }
  // YaRN with its defaults: pairs of 32 or more turns are kept, pairs of one turn or less are divided
  const pairOf = (rotations: number): number =>
    (width * Math.log(original / (rotations * 2 * Math.PI))) / (2 * Math.log(theta));
  const begin = Math.max(0, Math.floor(pairOf(32)));
  const end = Math.min(width - 1, Math.ceil(pairOf(1)));
  const inverse = frequencies.map((frequency, i) => {
    const dividedShare = Math.min(1, Math.max(0, (i - begin) / Math.max(end - begin, 0.001)));
    return frequency * (1 - dividedShare + dividedShare / scale);
  });
  return { inverse, factor: 0.1 * Math.log(scale) + 1 };
}
