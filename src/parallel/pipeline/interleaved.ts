/**
 * The interleaved 1F1B schedule, for ranks that have several chunks of the model each (D. Narayanan et al., "Efficient
 * Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021, section 2.2.2). In the model, chunk c of rank
 * r follows chunk c of rank r - 1, and chunk c of rank 0 follows chunk c - 1 of the last rank.
 */
import type { PipelineAction, PipelineActionKind } from "./action.js";

/** The number of ranks, of chunks of each rank, and of microbatches, a multiple of the number of ranks. */
export interface InterleavedSize {
  readonly ranks: number;
  readonly chunks: number;
  readonly microbatches: number;
}

/** A forward or backward pass of a microbatch through a chunk. */
interface Pass {
  readonly kind: "forward" | "backward";
  readonly chunk: number;
  readonly microbatch: number;
}

/** The number of passes of a rank: each microbatch passes every chunk forward and backward. */
const countOf = ({ chunks, microbatches }: InterleavedSize): number => 2 * chunks * microbatches;

/**
 * Pass `i` of a rank. Microbatches run in groups of as many as there are ranks; a group passes every chunk in turn. The rank
 * first runs the forward passes that later ranks need before their first backward pass; then forward and backward passes
 * alternate.
 */
function passAt(rank: number, i: number, size: InterleavedSize): Pass {
  const { ranks, chunks } = size;
  const forwards = countOf(size) / 2;
  const warmup = Math.min(forwards, 2 * (ranks - 1 - rank) + (chunks - 1) * ranks);
  const alternating = i - warmup;
  const [kind, k]: readonly [Pass["kind"], number] =
    alternating < 0
      ? ["forward", i]
      : alternating >= 2 * (forwards - warmup)
        ? ["backward", i - forwards]
        : alternating % 2 === 0
          ? ["forward", warmup + alternating / 2]
          : ["backward", (alternating - 1) / 2];
  const turn = Math.floor(k / ranks) % chunks;
  return {
    kind,
    chunk: kind === "forward" ? turn : chunks - 1 - turn,
    microbatch: Math.floor(k / (ranks * chunks)) * ranks + (k % ranks),
  };
}

/** The passes that have run, of all ranks. A place is the index of a chunk in the order of layers: chunk * ranks + rank. */
class Done {
  readonly #passes: Uint8Array;

  constructor(private readonly size: InterleavedSize) {
    this.#passes = new Uint8Array(countOf(size) * size.ranks);
  }

  #indexOf(kind: Pass["kind"], place: number, microbatch: number): number {
    const { ranks, chunks, microbatches } = this.size;
    return ((kind === "forward" ? 0 : ranks * chunks) + place) * microbatches + microbatch;
  }

  add({ kind, microbatch }: Pass, place: number): void {
    this.#passes[this.#indexOf(kind, place, microbatch)] = 1;
  }

  /**
   * Whether the pass whose result this pass needs has run. The first backward pass of a microbatch needs its last forward pass.
   */
  allows({ kind, microbatch }: Pass, place: number): boolean {
    const last = this.size.ranks * this.size.chunks - 1;
    if (kind === "forward")
      return place === 0 || this.#passes[this.#indexOf("forward", place - 1, microbatch)] === 1;
    const index =
      place === last
        ? this.#indexOf("forward", place, microbatch)
        : this.#indexOf("backward", place + 1, microbatch);
    return this.#passes[index] === 1;
  }
}

/** The kinds of the messages after a pass: the action of the sender, then the action of the receiver. */
const MESSAGES = {
  forward: ["sendForward", "recvForward"],
  backward: ["sendBackward", "recvBackward"],
} as const satisfies Record<Pass["kind"], readonly PipelineActionKind[]>;

/**
 * Returns the actions of rank `ownRank`. All ranks are simulated in turns; forward and backward turns alternate. In each turn, a
 * rank runs its next pass if its direction is the direction of the turn and the passes that it depends on ran in earlier turns.
 * After a turn, the results are transferred; even ranks send first. So all messages have one order, which senders and receivers
 * follow, and no rank waits forever even if a `send` waits for its `recv`. All ranks run the same direction in a turn, so a
 * `send` does not wait for a longer pass of its receiver.
 */
export function interleavedSchedule(ownRank: number, size: InterleavedSize): readonly PipelineAction[] {
  const { ranks, chunks } = size;
  const actions: PipelineAction[] = [];
  const add = (rank: number, kind: PipelineActionKind, chunk: number, microbatch: number): void => {
    if (rank === ownRank) actions.push({ kind, microbatch, chunk });
  };
  const transfer = (from: number, { kind, chunk, microbatch }: Pass): void => {
    const to = chunk * ranks + from + (kind === "forward" ? 1 : -1);
    if (to < 0 || to === ranks * chunks) return;
    const [send, receive] = MESSAGES[kind];
    add(from, send, chunk, microbatch);
    add(to % ranks, receive, Math.floor(to / ranks), microbatch);
  };
  const completed = new Done(size);
  const next = new Uint32Array(ranks);
  const evenFirst = Array.from(next, (_, rank) => rank).sort((a, b) => (a % 2) - (b % 2));
  const count = countOf(size);
  let remaining = count * ranks;
  for (let turn = 0; remaining > 0; turn++) {
    const direction = turn % 2 === 0 ? "forward" : "backward";
    const runningRanks = evenFirst.flatMap((rank) => {
      const passIndex = next[rank] as number;
      if (passIndex === count) return [];
      const pass = passAt(rank, passIndex, size);
      const runs = pass.kind === direction && completed.allows(pass, pass.chunk * ranks + rank);
      return runs ? [{ rank, pass }] : [];
    });
    for (const { rank, pass } of runningRanks) {
      add(rank, pass.kind, pass.chunk, pass.microbatch);
      completed.add(pass, pass.chunk * ranks + rank);
      next[rank] = (next[rank] as number) + 1;
    }
    for (const { rank, pass } of runningRanks) transfer(rank, pass);
    remaining -= runningRanks.length;
  }
  return actions;
}
