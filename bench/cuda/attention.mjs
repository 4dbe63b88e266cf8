// Attention through the public interface: a whole sequence compared with cuDNN and FlashAttention-2 on the same GPU in the same
// rounds, if python3 has PyTorch, and one query for each of many sequences compared with a copy of the keys and values.
import { attention, attentionBackward, Scope, tensor } from "lockstep";
import { median } from "../timing.mjs";
import { normalBf16 } from "./device.mjs";
import { openServer } from "./server.mjs";
import { batch, callsOf, measureDevice, shuffled } from "./timing.mjs";

const BATCH = 2;
const TOKENS = 8192;
const HEADS = 32;
const WIDTH = 128;
const LIBRARIES = ["cuDNN", "FlashAttention-2"];

/** The sizes of the decoding case. */
const SEQUENCES = 32;
const KEY_HEADS = 8;
const PAGE = 128;

/** Runs `body` and frees its tensors. */
function scoped(body) {
  return () => {
    const scope = new Scope();
    body();
    scope.dispose();
  };
}

function sequenceCases(backend) {
  const shape = [BATCH, TOKENS, HEADS, WIDTH];
  const [q, k, v, grad] = [1, 2, 3, 4].map((seed) => normalBf16(backend, shape, seed));
  const product = 2 * BATCH * HEADS * TOKENS ** 2 * WIDTH;
  return [false, true].flatMap((causal) => {
    const name = causal ? "causal" : "full";
    const half = causal ? product / 2 : product;
    return [
      // two products forward, five backward
      { name: `${name}, forward`, operations: 2 * half, run: scoped(() => attention(q, k, v, { causal })) },
      {
        name: `${name}, forward and backward`,
        operations: 7 * half,
        run: scoped(() => {
          const { out, lse } = attention(q, k, v, { causal });
          attentionBackward(grad, q, k, v, out, lse, { causal });
        }),
      },
    ];
  });
}

/** The rows of whole sequences: TFLOP/s of each library, and ours divided by cuDNN's. */
async function sequenceRows(backend, wait, rounds) {
  const sizes = [BATCH, TOKENS, HEADS, WIDTH];
  const scope = new Scope();
  const ours = sequenceCases(backend);
  wait();
  const torch = await openServer("torch_attention.py", sizes, "PyTorch");
  const ourCases = ours.map((each) => ({
    name: each.name,
    time: (calls) => batch(each, calls, wait),
    calls: callsOf(each, wait),
  }));
  const itsCases = [];
  for (const name of torch?.cases ?? []) {
    const once = await torch.seconds(name, 5);
    const time = (calls) => torch.seconds(name, calls);
    itsCases.push({ name, time, calls: Math.max(5, Math.ceil(0.02 / once)) });
  }
  const all = [...ourCases, ...itsCases];
  const seconds = new Map(all.map(({ name }) => [name, []]));
  for (let round = -2; round < rounds; round++) {
    for (const { name, time, calls } of shuffled(all)) {
      const each = await time(calls);
      if (round >= 0) seconds.get(name).push(each);
    }
  }
  torch?.close();
  scope.dispose();
  const title = `${BATCH} x ${TOKENS} tokens, ${HEADS} heads of ${WIDTH}, bf16, TFLOP/s; ${torch?.version ?? "no PyTorch"}`;
  return ours.map(({ name, operations }) => {
    const rate = (key) => seconds.has(key) && operations / median(seconds.get(key)) / 1e12;
    const [cudnn, flash] = LIBRARIES.map((library) => rate(`${name} ${library}`) || undefined);
    return {
      [title]: name,
      ours: rate(name),
      cuDNN: cudnn,
      "FlashAttention-2": flash,
      "ours / cuDNN": cudnn && rate(name) / cudnn,
    };
  });
}

/** The rows of decoding: bytes of keys and values per second, and their share of a device-to-device copy of as many bytes. */
function decodeRows(backend, copies, wait, rounds) {
  const scope = new Scope();
  const shape = [SEQUENCES, TOKENS, KEY_HEADS, WIDTH];
  const pagesOfSequence = TOKENS / PAGE;
  const pageShape = [SEQUENCES * pagesOfSequence, PAGE, KEY_HEADS, WIDTH];
  const q = normalBf16(backend, [SEQUENCES, 1, HEADS, WIDTH], 1);
  const [k, v] = [2, 3].map((seed) => normalBf16(backend, shape, seed));
  const [pagedK, pagedV] = [k, v].map((x) => x.view(0, pageShape));
  // an odd factor, so that each page has a different position
  const places = Int32Array.from({ length: pageShape[0] }, (_, i) => (i * 1237) % pageShape[0]);
  const options = {
    pages: tensor(backend, places, [SEQUENCES, pagesOfSequence], "i32"),
    keyLengths: tensor(backend, new Int32Array(SEQUENCES).fill(TOKENS), undefined, "i32"),
  };
  const bytes = 2 * 2 * SEQUENCES * TOKENS * KEY_HEADS * WIDTH;
  const size = `${SEQUENCES} x ${TOKENS} keys, ${HEADS}/${KEY_HEADS} heads of ${WIDTH}, 1 query`;
  const cases = [
    copies.copyCase([SEQUENCES * TOKENS, KEY_HEADS * WIDTH]),
    { name: size, bytes, run: scoped(() => attention(q, k, v)) },
    {
      name: `${size}, pages of ${PAGE}`,
      bytes,
      run: scoped(() => attention(q, pagedK, pagedV, options)),
    },
  ];
  const times = measureDevice(cases, wait, rounds);
  scope.dispose();
  const rate = (i) => cases[i].bytes / times[i].median / 1e9;
  return cases.map(({ name }, i) => ({ name, "GB/s": rate(i), "of copy": rate(i) / rate(0) }));
}

export async function attentionRows(backend, copies, wait, rounds) {
  return {
    attention: await sequenceRows(backend, wait, rounds),
    "attention with one query": decodeRows(backend, copies, wait, rounds),
  };
}
