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
    const found = tensors.get(name);
    return found && [...found.values];
  };
  const rows = (name: string): readonly Vector[] => {
    const { shape, values: all } = tensors.get(name) as NonNullable<ReturnType<typeof tensors.get>>;
    const [count, columns] = shape as readonly [number, number];
    return Array.from({ length: count }, (_, i) => [...all.subarray(i * columns, (i + 1) * columns)]);
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
    return x.map((each, i) => each * factor * (weight[i] as number));
  };
  const { inverse, factor } = frequencies(config, width);
  const rotate = (x: Vector, position: number): Vector =>
    x.map((each, i) => {
      const half = width / 2;
      const angle = position * (inverse[i % half] as number);
      const other = i < half ? -(x[i + half] as number) : (x[i - half] as number);
      return factor * (each * Math.cos(angle) + other * Math.sin(angle));
    });
  const split = (x: Vector): readonly Vector[] =>
    Array.from({ length: x.length / width }, (_, i) => x.slice(i * width, (i + 1) * width));
  const dense = (at: string, x: Vector): Vector => {
    const gate = linear(`${at}.gate_proj`, x).map((each) => each / (1 + Math.exp(-each)));
    const up = linear(`${at}.up_proj`, x);
    return linear(
      `${at}.down_proj`,
      gate.map((each, i) => each * (up[i] as number)),
    );
  };
  const feedForward = (at: string, x: Vector): Vector => {
    if (!tensors.has(`${at}.gate.weight`)) return dense(at, x);
    const scores = linear(`${at}.gate`, x).map(Math.exp);
    const chosen = scores
      .map((_, i) => i)
      .sort((i, j) => (scores[j] as number) - (scores[i] as number))
      .slice(0, number("num_experts_per_tok"));
    const total = (config.norm_topk_prob ? chosen : scores.map((_, i) => i)).reduce(
      (sum, i) => sum + (scores[i] as number),
      0,
    );
    return chosen
      .map(
        (i): Vector => dense(`${at}.experts.${i}`, x).map((each) => (each * (scores[i] as number)) / total),
      )
      .reduce(plus);
  };

  let hidden = tokens.map((token) => rows("model.embed_tokens.weight")[token] as Vector);
  for (let layer = 0; layer < number("num_hidden_layers"); layer++) {
    const at = `model.layers.${layer}`;
    const inputs = hidden.map((x) => norm(`${at}.input_layernorm`, x));
    const headsOf = (kind: "q" | "k"): readonly (readonly Vector[])[] =>
      inputs.map((x, position) =>
        split(linear(`${at}.self_attn.${kind}_proj`, x)).map((head) =>
          rotate(norm(`${at}.self_attn.${kind}_norm`, head), position),
        ),
      );
    const [queries, keys] = [headsOf("q"), headsOf("k")];
    const keyValues = inputs.map((x) => split(linear(`${at}.self_attn.v_proj`, x)));
    const first = (position: number): number =>
      slides(config, layer) ? Math.max(0, position - number("sliding_window") + 1) : 0;
    hidden = hidden.map((x, position) => {
      const attended = Array.from({ length: heads }, (_, head) => {
        const group = Math.floor(head / (heads / groups));
        const visible = Array.from({ length: position + 1 }, (_, j) => j).slice(first(position));
        const query = queries[position]?.[head] as Vector;
        const scores = visible.map((j) =>
          Math.exp(dot(query, keys[j]?.[group] as Vector) / Math.sqrt(width)),
        );
        const total = scores.reduce((sum, each) => sum + each, 0);
        return Array.from({ length: width }, (_, d) =>
          visible.reduce(
            (sum, j, i) => sum + ((scores[i] as number) / total) * (keyValues[j]?.[group]?.[d] as number),
            0,
          ),
        );
      }).flat();
      const middle = plus(x, linear(`${at}.self_attn.o_proj`, attended));
      const y = norm(`${at}.post_attention_layernorm`, middle);
      return plus(middle, feedForward(`${at}.mlp`, y));
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
  const plain = Array.from({ length: width / 2 }, (_, i) => theta ** ((-2 * i) / width));
  const rule = config.rope_scaling as Readonly<Record<string, number | string>> | undefined;
  if (!rule) return { inverse: plain, factor: 1 };
  const scale = Number(rule.factor);
  const original = Number(rule.original_max_position_embeddings);
  if ((rule.rope_type ?? rule.type) === "linear")
    return { inverse: plain.map((each) => each / scale), factor: 1 };
  if (rule.rope_type === "llama3") {
    const [low, high] = [Number(rule.low_freq_factor), Number(rule.high_freq_factor)];
    const inverse = plain.map((each) => {
      const turns = (original * each) / (2 * Math.PI);
      const kept = Math.min(1, Math.max(0, (turns - low) / (high - low)));
      return each * (kept + (1 - kept) / scale);
    });
    return { inverse, factor: 1 };
  }
  // YaRN with its defaults: pairs of 32 or more turns are kept, pairs of one turn or less are divided
  const pairOf = (turns: number): number =>
    (width * Math.log(original / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
  const begin = Math.max(0, Math.floor(pairOf(32)));
  const end = Math.min(width - 1, Math.ceil(pairOf(1)));
  const inverse = plain.map((each, i) => {
    const divided = Math.min(1, Math.max(0, (i - begin) / Math.max(end - begin, 0.001)));
    return each * (1 - divided + divided / scale);
  });
  return { inverse, factor: 0.1 * Math.log(scale) + 1 };
}
