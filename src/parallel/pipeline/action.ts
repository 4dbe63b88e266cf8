/** The steps of a pipeline stage, as plain data. */

/** The kind of a step of a stage. */
export type PipelineActionKind =
  | "recvForward"
  | "forward"
  | "sendForward"
  | "recvBackward"
  | "backward"
  | "sendBackward";

/** A step of a stage. `recvForward` and `sendForward` transfer activations, `recvBackward` and `sendBackward` gradients. */
export interface PipelineAction {
  /** The kind of the step. */
  readonly kind: PipelineActionKind;
  /** The index of the microbatch, from 0. */
  readonly microbatch: number;
  /** The index of the chunk of this rank that computes, sends or receives, from 0. */
  readonly chunk: number;
}
