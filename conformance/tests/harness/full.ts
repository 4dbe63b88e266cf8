/** Whether this run draws the full number of inputs and cases. */
export const IS_FULL = process.env.LOCKSTEP_TESTS === "full";
